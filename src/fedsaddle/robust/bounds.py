"""Bounds on the replies of one exchange; a reply inside them is not touched, not by a bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.federation.clients import Floats, Ints
from fedsaddle.federation.records import From, Kept, Visibility, bounds_marks, tensors, visibility
from fedsaddle.robust.running_scales import RunningScales
from fedsaddle.robust.settings import Robust

FEW = 4.0  # numbers, below which an update has too few to have a usual length
TAILS = 5.0  # scores may be so many times farther from what is usual than updates
SLACK = 1e-6  # of rounding, for bounds that honest replies meet exactly


def origin(kind: type, name: str, sent: Any) -> Tensor | None:
    """What an update of that field is measured from: a field of what was sent, or None for 0."""
    mark = bounds_marks(kind).get(name)
    found = getattr(sent, mark.field, None) if isinstance(mark, From) else None
    return found if isinstance(found, Tensor) else None


def lengths(value: Tensor, start: Tensor | None) -> Floats:
    """`|value_c - start|` of each client, in double precision."""
    update = value.double() if start is None else value.double() - start.double()
    norms = torch.linalg.vector_norm(update.flatten(1), dim=1) if value.ndim > 1 else update.abs()
    found: Floats = norms.numpy()
    return found


def bounded(
    how: Robust, scales: RunningScales, task: str, sent: Any, clients: Ints, all_rows: Ints, reply: Any
) -> tuple[dict[str, Tensor], list[tuple[int, str]]]:
    """The fields that have to be changed, of all replies stacked, and which client's which field that was."""
    changed: dict[str, Tensor] = {}
    touched: list[tuple[int, str]] = []
    for name, value, new, wrong in _looked_at(how, scales, task, sent, all_rows[clients], len(all_rows), reply):
        if wrong.any():
            changed[name] = value.clone()
            changed[name][wrong] = new[wrong]
            touched += [(int(clients[c]), name) for c in wrong.nonzero()[:, 0].tolist()]
    return changed, touched


def _looked_at(
    how: Robust, scales: RunningScales, task: str, sent: Any, rows: Ints, count: int, reply: Any
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Each field with its bounded value, and the clients whose value exceeds the bounds."""
    visible, marks = visibility(type(reply)), bounds_marks(type(reply))
    for name, value in tensors(reply):
        key, mark = f"{task}.{name}", marks.get(name)
        if not value.is_floating_point():
            continue
        if mark is Kept.COUNT:
            new = torch.minimum(value.clamp(min=0), torch.from_numpy(rows).to(value.dtype))
            yield name, value, new, value != new
        elif mark is Kept.WIDE:
            new = torch.minimum(value.clamp(min=0), torch.from_numpy(rows * count).to(value.dtype))
            yield name, value, new, value != new
        elif visible[name] is Visibility.AVERAGED:
            start = origin(type(reply), name, sent)
            yield name, value, *_shortened(value, start, how.norm_factor, scales, key)
        elif visible[name] is Visibility.PER_CLIENT and value.ndim == 1:
            yield name, value, *_lowered(value, how.loss_factor, scales, key)
        elif visible[name] is Visibility.POOLED and value.ndim == 3:
            yield name, value, *_clamped(value, mark is Kept.WEIGHTS_FIRST, rows, TAILS * how.norm_factor, scales, key)


def _shortened(
    value: Tensor, start: Tensor | None, factor: float, scales: RunningScales, key: str
) -> tuple[Tensor, Tensor]:
    """Updates that are more than `factor` times as long as usual, made as long as usual; their directions stay.

    The length of a few numbers is often close to 0 by chance, so d numbers may be `1 + 4 / d` times as long as that.
    """
    norms = lengths(value, start)
    usual = scales.scale(key, norms)
    wrong = norms > factor * (1 + FEW / max(1, value[0].numel())) * usual
    scales.add(key, np.where(wrong, usual, norms))
    if not wrong.any():
        return value, torch.from_numpy(wrong)
    share = torch.from_numpy(np.where(wrong, usual / np.where(wrong, norms, 1.0), 1.0))
    share = share.view(-1, *[1] * (value.ndim - 1))
    exact = value.double()
    new = share * exact if start is None else start.double() + share * (exact - start.double())
    return new.to(value.dtype), torch.from_numpy(wrong)


def _lowered(value: Tensor, factor: float, scales: RunningScales, key: str) -> tuple[Tensor, Tensor]:
    """Numbers above `median + factor max(MAD, their usual size)`, replaced by the median."""
    values = value.double().numpy()
    middle = float(np.median(values))
    spread = max(float(np.median(np.abs(values - middle))), scales.scale(key, np.abs(values)))
    wrong = values > middle + factor * spread
    scales.add(key, np.abs(np.where(wrong, middle, values)))
    return torch.full_like(value, middle), torch.from_numpy(wrong)


def _clamped(
    value: Tensor, weighted: bool, rows: Ints, factor: float, scales: RunningScales, key: str
) -> tuple[Tensor, Tensor]:
    """Columns with a number more than `factor` times as large as clients' largest usually are, cut to what is usual.

    Shared scores have heavier tails than updates, so their factor is larger. A column of labels stays as it is.

    The first column, where it holds weights, is not below 0, and its mean is at most the client's rows.
    """
    new = value.clone()
    if weighted and value.shape[1]:
        weights = value[..., 0].clamp(min=0)
        mean, most = weights.mean(1), torch.from_numpy(rows).to(value.dtype)
        over = mean > most * (1 + SLACK)
        new[..., 0] = torch.where(over[:, None], weights * (most / mean.clamp(min=1e-30))[:, None], weights)
    for column in range(1 if weighted else 0, value.shape[2]):
        own = value[..., column]
        largest: Floats = own.abs().amax(1).double().numpy() if own.shape[1] else np.zeros(len(own))
        whole = (own == own.round()).all(1)
        if int(whole.sum()) * 2 > len(whole):
            continue
        usual = scales.scale(f"{key}.{column}", largest)
        wrong = largest > factor * usual
        scales.add(f"{key}.{column}", np.where(wrong, usual, largest))
        if wrong.any():
            new[..., column] = torch.where(torch.from_numpy(wrong)[:, None], own.clamp(-usual, usual), own)
    return new, (value != new).flatten(1).any(1)

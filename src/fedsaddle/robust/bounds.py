"""Bounds on the replies of one exchange; a reply within them stays bit-identical."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.federation.records import ExactBounds, UpdateOf, Visibility, bounds_marks, tensors, visibility
from fedsaddle.robust.settings import Robust

WINDOW = 10  # exchanges of one kind that a running median looks back on
SETTLED = 5  # exchanges, from which on a running median is remembered
MOST_KEPT = 16  # numbers that stand for the sizes of one exchange
GROWTH = 3.0  # times what was usual, that clients together may grow by in one exchange
ENOUGH = 3  # replies, from which on their own median counts too


@dataclass
class RunningScales:
    """Sizes in the last exchanges and the largest running median so far, by field.

    What a round adds becomes valid when the round is committed.
    """

    sizes: dict[str, list[list[float]]] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    pending: list[tuple[str, list[float]]] = field(default_factory=list)

    def begin(self) -> None:
        """Discard what an unfinished round has added."""
        self.pending.clear()

    def commit(self) -> None:
        """Make what the round has added valid."""
        for key, few in self.pending:
            self.sizes[key] = [*self.sizes.get(key, []), few][-WINDOW:]
            if len(self.sizes[key]) >= SETTLED:
                self.largest[key] = max(self.largest.get(key, 0.0), self.running(key, np.empty(0)))
        self.pending.clear()

    def add(self, key: str, sizes: Floats) -> None:
        """Add the sizes of one exchange."""
        if len(sizes):
            at = np.linspace(0, len(sizes) - 1, min(len(sizes), MOST_KEPT)).round().astype(int)
            self.pending.append((key, np.sort(sizes)[at].tolist()))

    def running(self, key: str, sizes: Floats) -> float:
        """The median of the sizes above 0, of these and of the last exchanges; 0 if there are none."""
        past = [size for few in self.sizes.get(key, []) for size in few]
        return _middle(np.concatenate([past, sizes]))

    def scale(self, key: str, sizes: Floats) -> float:
        """Reference norm: largest of the running medians, with this exchange's, and of its own median if it suffices.

        So nobody is cut short when updates grow, nor when most clients have little left to learn and a few have not; a
        small cohort is compared with earlier ones. Once there are enough of these, the clients' own median counts no
        more than `GROWTH` times what was usual, as hostile clients may be the most of a cohort by chance.
        """
        usual = max(self.running(key, sizes), self.largest.get(key, 0.0))
        if int((sizes > 0).sum()) < ENOUGH:
            return usual
        own = _middle(sizes)
        settled = len(self.sizes.get(key, ())) >= SETTLED and usual > 0
        return max(usual, min(own, GROWTH * usual) if settled else own)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"sizes": dict(self.sizes), "largest": dict(self.largest)}

    def restore(self, stored: dict[str, Any]) -> None:
        """Restore the scales from a checkpoint."""
        self.sizes, self.largest = dict(stored["sizes"]), dict(stored["largest"])
        self.pending.clear()


def _middle(sizes: Floats) -> float:
    """The median of the positive entries; 0 if there are none."""
    found = sizes[sizes > 0]
    return float(np.median(found)) if len(found) else 0.0


FEW = 4.0  # numbers, below which an update has too few to have a usual length
TAILS = 5.0  # scores may be so many times farther from what is usual than updates
SLACK = 1e-6  # of rounding, for bounds that honest replies meet exactly


def origin(kind: type, name: str, sent: Any) -> Tensor | None:
    """What an update of that field is measured from: a field of what was sent, or None for 0."""
    mark = bounds_marks(kind).get(name)
    found = getattr(sent, mark.field, None) if isinstance(mark, UpdateOf) else None
    return found if isinstance(found, Tensor) else None


def lengths(value: Tensor, start: Tensor | None) -> Floats:
    """`|value_c - start|` of each client, in double precision."""
    update = value.double() if start is None else value.double() - start.double()
    norms = torch.linalg.vector_norm(update.flatten(1), dim=1) if value.ndim > 1 else update.abs()
    found: Floats = norms.numpy()
    return found


def bounded(
    settings: Robust, scales: RunningScales, task: str, sent: Any, clients: Ints, all_rows: Ints, reply: Any
) -> tuple[dict[str, Tensor], list[tuple[int, str]]]:
    """The fields changed by the bounds, with all replies stacked, and the (client, field) pairs that exceeded them."""
    changed: dict[str, Tensor] = {}
    touched: list[tuple[int, str]] = []
    for name, value, new, wrong in _looked_at(settings, scales, task, sent, all_rows[clients], len(all_rows), reply):
        if wrong.any():
            changed[name] = value.clone()
            changed[name][wrong] = new[wrong]
            touched += [(int(clients[c]), name) for c in wrong.nonzero()[:, 0].tolist()]
    return changed, touched


def _looked_at(
    settings: Robust, scales: RunningScales, task: str, sent: Any, rows: Ints, count: int, reply: Any
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Each field with its bounded value, and the clients whose value exceeds the bounds."""
    visible, marks = visibility(type(reply)), bounds_marks(type(reply))
    for name, value in tensors(reply):
        key, mark = f"{task}.{name}", marks.get(name)
        if not value.is_floating_point():
            continue
        if mark is ExactBounds.COUNT:
            new = torch.minimum(value.clamp(min=0), torch.from_numpy(rows).to(value.dtype))
            yield name, value, new, value != new
        elif mark is ExactBounds.WIDE:
            new = torch.minimum(value.clamp(min=0), torch.from_numpy(rows * count).to(value.dtype))
            yield name, value, new, value != new
        elif visible[name] is Visibility.AVERAGED:
            start = origin(type(reply), name, sent)
            yield name, value, *_shortened(value, start, settings.norm_factor, scales, key)
        elif visible[name] is Visibility.PER_CLIENT and value.ndim == 1:
            yield name, value, *_lowered(value, settings.loss_factor, scales, key)
        elif visible[name] is Visibility.POOLED and value.ndim == 3:
            weighted, factor = mark is ExactBounds.WEIGHTS_FIRST, TAILS * settings.norm_factor
            yield name, value, *_clamped(value, weighted, rows, factor, scales, key)


def _shortened(
    value: Tensor, start: Tensor | None, factor: float, scales: RunningScales, key: str
) -> tuple[Tensor, Tensor]:
    """Clip updates whose norm exceeds `factor` times the reference norm to the reference norm.

    The norm of few numbers is often close to 0 by chance, so the limit for d numbers is `1 + 4 / d` times as large.
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
    """Replace numbers above `median + factor max(MAD, their reference size)` by the median."""
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

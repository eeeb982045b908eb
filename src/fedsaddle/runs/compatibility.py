"""Whether an algorithm, its problem and the clients' rows fit together: said in one line before a run begins."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.errors import BadInput, FedSaddleError
from fedsaddle.federation.clients import Batch

Rows = Stacked | Lazy


def fitted(algorithm: Any, train: Rows, test: Stacked | None) -> Rows:
    """The training rows, checked: all of them now, or those of a lazy client when they are fetched."""
    problem = algorithm.problem
    _check_kind(algorithm)
    x, y = train.client(0)
    _try(problem, x[:2], y[:2])
    classes = problem.known_classes(x[:2]) if hasattr(problem, "known_classes") else None
    if classes is None:
        return train
    if test is not None:
        _check_stacked(test, classes, "test label")
    if isinstance(train, Stacked):
        _check_stacked(train, classes, "label")
        return train

    def load(client: int) -> tuple[Tensor, Tensor]:
        x, y = train.load(client)
        _check_labels(y, classes, lambda _: client, "label")
        return x, y

    _check_labels(y, classes, lambda _: 0, "label")
    return replace(train, load=load)


def _check_kind(algorithm: Any) -> None:
    """Min-max algorithms start from a pair (x, y), the others from one vector."""
    wanted = {f.name: str(f.type) for f in fields(algorithm)} if is_dataclass(algorithm) else {}
    needs_pair, has_pair = "MinimaxProblem" in wanted.get("problem", ""), isinstance(algorithm.problem.initial(), tuple)
    if "problem" in wanted and needs_pair != has_pair:
        remedy = "give it a min-max problem, such as fs.Minimax" if needs_pair else "give it fs.Supervised"
        name = type(algorithm.problem).__name__
        raise BadInput("problem", name, f"is not for {type(algorithm).__name__}; {remedy}")


def _try(problem: Any, x: Tensor, y: Tensor) -> None:
    """The value of the problem at its start on two rows of the first client."""
    start = problem.initial()
    start = start if isinstance(start, tuple) else (start,)
    try:
        with torch.no_grad():
            problem.value(*(v[None] for v in start), Batch(x[None], y[None]))
    except FedSaddleError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as reason:
        if "out of bounds" in str(reason) and hasattr(problem, "known_classes"):
            return  # a label; the check of all labels says which
        sizes = " and ".join(f"{len(v):,} {_kind(v)} numbers" for v in start)
        first = str(reason).strip().split("\n")[0]
        rows = f"{_kind(x)} rows of shape {tuple(x.shape[1:])} with {_kind(y)} labels"
        remedy = f"does not fit the {rows}, starting from {sizes}: {first}"
        raise BadInput("problem", type(problem).__name__, remedy) from reason


def _kind(v: Tensor) -> str:
    return str(v.dtype).removeprefix("torch.")


def _check_stacked(rows: Stacked, classes: int, key: str) -> None:
    def owner(row: int) -> int:
        return int(np.searchsorted(rows.offsets, row, side="right")) - 1

    _check_labels(rows.y, classes, owner, key)


def _check_labels(y: Tensor, classes: int, owner: Any, key: str) -> None:
    """Whole numbers from 0 to `classes - 1`."""
    wrong = (y < 0) | (y >= classes) | (y != y.round() if y.is_floating_point() else False)
    if bool(wrong.any()):
        at = wrong.nonzero()[0]
        value = y[tuple(at)].item()
        remedy = f"the problem has {classes} classes, so labels are whole numbers from 0 to {classes - 1}"
        raise BadInput(f"{key} of client {owner(int(at[0]))}", value, remedy)

"""Checks before a run: whether the algorithm, its problem and the clients' rows fit together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import get_type_hints

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_steps import REMEDIES
from fedsaddle.algorithms.protocols import Algorithm, AnyAlgorithm
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.errors import BadInput, FedSaddleError
from fedsaddle.federation.clients import Batch
from fedsaddle.problems.protocols import (
    KnowsClasses,
    MinimaxProblem,
    MinimisationProblem,
    Problem,
)

Rows = Stacked | Lazy


def check_rows(algorithm: AnyAlgorithm, train: Rows, test: Stacked | None, validation: Stacked | None = None) -> Rows:
    """Check the training rows: all of them now, or those of a lazy client when they are loaded."""
    problem = algorithm.problem
    check_kind(algorithm)
    x, y = train.client(0)
    _evaluate_start(problem, x[:2], y[:2])
    _check_precision(algorithm, problem)
    classes = problem.known_classes(x[:2]) if isinstance(problem, KnowsClasses) else None
    if classes is None or (y.is_floating_point() and y.ndim > 1):  # not classes, or shares of classes
        return train
    ignored = getattr(getattr(problem, "loss", None), "ignored", None)
    for part, rows in (("test", test), ("validation", validation)):
        if rows is not None:
            _check_stacked(rows, classes, f"{part} label", ignored)
    if isinstance(train, Stacked):
        _check_stacked(train, classes, "label", ignored)
        return train

    def load(client: int) -> tuple[Tensor, Tensor]:
        x, y = train.load(client)
        _check_labels(y, classes, lambda _: client, "label", ignored)
        return x, y

    _check_labels(y, classes, lambda _: 0, "label", ignored)
    return replace(train, load=load)


def check_algorithm(algorithm: object) -> None:
    """Raise `BadInput` unless the object is an algorithm."""
    if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm):
        name = algorithm.__name__ if isinstance(algorithm, type) else type(algorithm).__name__
        remedy = "give an object with a problem and the methods start, round and model, such as fs.Drfa(problem=...)"
        raise BadInput("algorithm", name, remedy)


def check_kind(algorithm: AnyAlgorithm) -> None:
    """Raise `BadInput` unless the problem is of the kind that the annotation of the algorithm's `problem` asks for."""
    problem = algorithm.problem
    if not isinstance(problem, Problem):
        raise BadInput(
            "problem",
            type(problem).__name__,
            "has no method row_measures; add it, so that a run can evaluate the problem",
        )
    try:
        hint = get_type_hints(type(algorithm)).get("problem")
    except (NameError, AttributeError, TypeError):  # user annotations that cannot be resolved
        hint = None
    for kind, remedy in REMEDIES.items():
        wanted = hint is kind or (isinstance(hint, type) and kind in hint.__mro__)
        if wanted and not isinstance(problem, kind):
            raise BadInput("problem", type(problem).__name__, f"is not for {type(algorithm).__name__}; {remedy}")
    if not isinstance(problem, MinimisationProblem | MinimaxProblem):
        remedy = "is of an unknown kind; inherit from fs.MinimisationProblem or fs.MinimaxProblem"
        raise BadInput("problem", type(problem).__name__, remedy)


def _check_precision(algorithm: object, problem: object) -> None:
    """Refuse hyperparameters that numbers of the problem's type cannot hold."""
    if not is_dataclass(algorithm) or not isinstance(problem, MinimisationProblem | MinimaxProblem):
        return
    start: object = problem.initial()
    first: object = start[0] if isinstance(start, tuple) and start else start
    if not isinstance(first, Tensor) or not first.is_floating_point():
        return  # the check of the problem says what is wrong
    for each in fields(algorithm):
        value = getattr(algorithm, each.name)
        if isinstance(value, float) and torch.finfo(first.dtype).max < abs(value) < float("inf"):
            raise BadInput(each.name, value, f"is too large for numbers of type {_kind(first)}")


def _evaluate_start(problem: Problem, x: Tensor, y: Tensor) -> None:
    """Evaluate the problem at its starting point on two rows of the first client."""
    batch = Batch(x[None], y[None])
    start: tuple[Tensor, ...] = ()
    try:
        with torch.no_grad():
            if isinstance(problem, MinimaxProblem):
                start = problem.initial()
                problem.value(start[0][None], start[1][None], batch)
            elif isinstance(problem, MinimisationProblem):
                start = (problem.initial(),)
                problem.value(start[0][None], batch)
    except FedSaddleError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as reason:
        if "out of bounds" in str(reason) and isinstance(problem, KnowsClasses):
            return  # a label; the check of all labels names it
        sizes = " and ".join(f"{len(v):,} {_kind(v)} numbers" for v in start)
        first = str(reason).strip().split("\n")[0]
        rows = f"{_kind(x)} rows of shape {tuple(x.shape[1:])} with {_kind(y)} labels"
        remedy = f"does not fit the {rows}, starting from {sizes}: {first}"
        raise BadInput("problem", type(problem).__name__, remedy) from reason


def _kind(v: Tensor) -> str:
    return str(v.dtype).removeprefix("torch.")


def _check_stacked(rows: Stacked, classes: int, key: str, ignored: int | None) -> None:
    def owner(row: int) -> int:
        return int(np.searchsorted(rows.offsets, row, side="right")) - 1

    _check_labels(rows.y, classes, owner, key, ignored)


def _check_labels(y: Tensor, classes: int, owner: Callable[[int], int], key: str, ignored: int | None) -> None:
    """Raise `BadInput` unless all labels are whole numbers from 0 to `classes - 1`."""
    wrong = (y < 0) | (y >= classes) | (y != y.round() if y.is_floating_point() else False)
    if ignored is not None:
        wrong &= y != ignored
    if bool(wrong.any()):
        at = wrong.nonzero()[0]
        value = y[tuple(at)].item()
        remedy = f"the problem has {classes} classes, so labels are whole numbers from 0 to {classes - 1}"
        raise BadInput(f"{key} of client {owner(int(at[0]))}", value, remedy)

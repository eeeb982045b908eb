"""Evaluation where every client has a model of its own: each on its own rows, and all rows together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.metrics.by_class import ClassCounts, class_counts
from fedsaddle.metrics.evaluation import Measured, evaluate, first_clients
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.protocols import Problem, Ranks
from fedsaddle.problems.scored import pooled_auroc

ModelOf = Callable[[int], Tensor]  # the model of a client


def evaluate_each(
    problem: Problem, model_of: ModelOf, rows: Stacked | Lazy, dual: Tensor | None = None, most_clients: int = 1000
) -> Measured:
    """Each client's mean of every measure, under its own model."""
    stacked = first_clients(rows, most_clients) if isinstance(rows, Lazy) else rows
    found = {i: evaluate(problem, model_of(i), one, dual) for i, one in _clients(stacked)}
    if not found:
        raise ValueError("no client has rows")
    values = {name: np.full(stacked.count, np.nan) for name in next(iter(found.values())).values}
    for i, measured in found.items():
        for name, value in measured.values.items():
            values[name][i] = value[0]
    return Measured(stacked.sizes, values)


def personal_pooled(problem: Problem, model_of: ModelOf, dual: Tensor | None, rows: Stacked) -> dict[str, float]:
    """Figures of all rows together, from each client's own scores: rankings, and accuracies of classes."""
    if isinstance(problem, Ranks):
        ranked = [problem.ranking(model_of(i), one.x) for i, one in _clients(rows)]
        known = [r for r in ranked if r is not None]
        return pooled_auroc(torch.cat(known), rows.y) if len(known) == len(ranked) and known else {}
    if not isinstance(problem, ClassFair):
        return {}
    counts = personal_class_counts(problem, model_of, rows, problem.classes, dual)
    if counts is None:
        return {}
    there = counts.rows > 0
    each = counts.correct[there] / counts.rows[there]
    return {"worst_class_accuracy": float(each.min()), "mean_class_accuracy": float(each.mean())}


def personal_class_counts(
    problem: Problem, model_of: ModelOf, rows: Stacked, classes: int, dual: Tensor | None = None
) -> ClassCounts | None:
    """Count by class, each client's rows under its own model; None where rows are not sorted into classes."""
    each = [class_counts(problem, model_of(i), one, classes, dual) for i, one in _clients(rows)]
    known = [counts for counts in each if counts is not None]
    if not known or len(known) < len(each):
        return None
    total = np.sum([counts.rows for counts in known], axis=0)
    return ClassCounts(total, np.sum([counts.correct for counts in known], axis=0))


def _clients(rows: Stacked) -> list[tuple[int, Stacked]]:
    """The clients that have rows, each alone."""
    found = []
    for i in range(rows.count):
        x, y = rows.client(i)
        if len(x):
            found.append((i, Stacked(x, y, np.array([0, len(x)], dtype=np.int64))))
    return found

"""Evaluation of models: loss and accuracy at every client, by class, and where every client has a model of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.files import JsonObject
from fedsaddle.metrics.selection import spread
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.protocols import MeasuresClients, Problem, Ranks
from fedsaddle.problems.scored import pooled_auroc
from fedsaddle.processes import in_parallel

HIGHER_IS_BETTER = {"accuracy": True}  # everything else is taken for a loss


@dataclass(frozen=True)
class Measured:
    """Each client's mean of every measure."""

    sizes: NDArray[np.int64]
    values: dict[str, Floats]

    def spread(self) -> dict[str, dict[str, float]]:
        """Statistics over clients, by measure."""
        return {
            k: spread(v, self.sizes, higher_is_better=HIGHER_IS_BETTER.get(k, False)) for k, v in self.values.items()
        }

    def listed(self, most: int) -> JsonObject:
        """Rows and figures of each client, for JSON; of more than `most` clients, the deciles of the figures."""
        if len(self.sizes) <= most:
            return {"rows": self.sizes.tolist(), "measures": {k: to_json(v) for k, v in self.values.items()}}
        there = self.sizes > 0
        deciles = {k: np.quantile(v[there], np.linspace(0, 1, 11)).tolist() for k, v in self.values.items()}
        return {"rows": int(self.sizes.sum()), "clients": int(there.sum()), "deciles": deciles}


def evaluate(
    problem: Problem,
    w: Tensor,
    rows: Stacked | Lazy,
    dual: Tensor | None = None,
    most_clients: int = 1000,
    block: int = 1024,
) -> Measured:
    """Measure the model `w` at every client, in blocks of rows; of lazy clients, at the first `most_clients`."""
    if isinstance(rows, Lazy):
        rows = first_clients(rows, most_clients)
    if isinstance(problem, MeasuresClients):  # the loss of a row depends on the other rows
        return Measured(*problem.client_measures(w, rows.x, rows.y, rows.offsets))

    @torch.no_grad()
    def measured(at: slice) -> dict[str, Tensor]:
        measures = problem.row_measures(w, rows.x[at], rows.y[at], dual)
        return {name: values.double().cpu() for name, values in measures.items()}

    parts = [*in_parallel(measured, (slice(a, a + block) for a in range(0, len(rows.x), block)))]
    means = {
        n: client_means(torch.cat([p[n] for p in parts]).numpy(), rows.offsets) for n in (parts[0] if parts else ())
    }
    return Measured(rows.sizes, means)


def client_means(values: Floats, offsets: NDArray[np.int64]) -> Floats:
    """The mean over each client's rows; NaN for a client without rows."""
    sizes = np.diff(offsets)
    there = sizes > 0
    means = np.full(len(sizes), np.nan)
    if there.any():  # each client's rows on their own: a huge loss must not swallow the small ones of others
        means[there] = np.add.reduceat(values, offsets[:-1][there]) / sizes[there]
    return means


def to_json(values: Floats) -> list[float | None]:
    """A list, with None for a client without rows."""
    return [None if np.isnan(v) else float(v) for v in values]


def first_clients(rows: Lazy, most: int) -> Stacked:
    """The rows of the first clients."""
    both = [rows.client(i) for i in range(min(most, rows.count))]
    offsets = np.concatenate([[0], np.cumsum(rows.sizes[: len(both)])]).astype(np.int64)
    return Stacked(torch.cat([x for x, _ in both]), torch.cat([y for _, y in both]), offsets)


MOST_CLASSES = 1000


class ClassCounts(NamedTuple):
    """Rows of each class, and how many of them are right."""

    rows: Ints
    correct: Ints

    def to_dict(self, names: Sequence[str]) -> dict[str, dict[str, int]]:
        """By the names of the classes, for JSON; classes without rows are left out."""
        counted = zip(names, self.rows.tolist(), self.correct.tolist(), strict=True)
        return {name: {"rows": n, "correct": k} for name, n, k in counted if n}


def class_counts(
    problem: Problem, w: Tensor, rows: Stacked, classes: int, dual: Tensor | None = None, block: int = 4096
) -> ClassCounts | None:
    """Count by class; None where rows are not sorted into that many classes, one a row."""
    y = rows.y
    if not 1 < classes <= MOST_CLASSES or y.ndim > 1 or y.is_floating_point() or not len(y):
        return None
    right: list[Tensor] = []
    with torch.no_grad():
        for a in range(0, len(y), block):
            measured = problem.row_measures(w, rows.x[a : a + block], y[a : a + block], dual)
            if "accuracy" not in measured:
                return None
            right.append(measured["accuracy"].double())
    labels = y.numpy()
    if labels.min() < 0 or labels.max() >= classes:
        return None
    total = np.bincount(labels, minlength=classes)
    correct = np.bincount(labels, weights=torch.cat(right).numpy(), minlength=classes)
    return ClassCounts(total.astype(np.int64), np.rint(correct).astype(np.int64))


ModelOf = Callable[[int], Tensor]  # the model of a client


def evaluate_each(
    problem: Problem, model_of: ModelOf, rows: Stacked | Lazy, dual: Tensor | None = None, most_clients: int = 1000
) -> Measured:
    """Each client's mean of every measure, under its own model."""
    stacked = first_clients(rows, most_clients) if isinstance(rows, Lazy) else rows
    each = {i: evaluate(problem, model_of(i), one, dual) for i, one in _clients(stacked)}
    if not each:
        raise ValueError("no client has rows")
    values = {name: np.full(stacked.count, np.nan) for name in next(iter(each.values())).values}
    for i, measured in each.items():
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
    """The clients that have rows, one by one."""
    clients = []
    for i in range(rows.count):
        x, y = rows.client(i)
        if len(x):
            clients.append((i, Stacked(x, y, np.array([0, len(x)], dtype=np.int64))))
    return clients

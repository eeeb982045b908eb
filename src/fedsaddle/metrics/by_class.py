"""How many rows of each class a model gets right, over all clients together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.data.store import Stacked
from fedsaddle.problems.protocols import Problem

Ints = NDArray[np.int64]
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

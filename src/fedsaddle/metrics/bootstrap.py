"""Bootstrap confidence intervals of the AUROC: rows are resampled within each client and class.

This stratified bootstrap keeps the size of each client and class, so every resample has an AUROC. Several models are
evaluated on the same resamples, so their difference has an interval too.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DRAWS = 1000
ROWS_AT_ONCE = 50_000  # rows per batch of draws: the arrays fit into the caches


def bootstrap_auroc(
    scores: ArrayLike, labels: ArrayLike, offsets: ArrayLike, *, draws: int = DRAWS, seed: int = 0
) -> Floats:
    """The AUROC of each of k models in each bootstrap draw, (k, draws).

    `scores` is (k, n) or (n,); client i has the rows `offsets[i]` to `offsets[i + 1]`.

    >>> bootstrap_auroc([0.9, 0.2, 0.8], [1, 0, 1], [0, 3], draws=2)
    array([[1., 1.]])
    """
    s, positive = np.atleast_2d(np.asarray(scores, dtype=np.float64)), np.asarray(labels) > 0
    draws, seed = whole("draws", draws), whole("seed", seed, least=0)
    if s.ndim != 2 or positive.shape != s.shape[1:]:
        raise BadInput("scores.shape", s.shape, f"give one score for each of the {positive.size} labels")
    if np.isnan(s).any():
        raise BadInput("scores", "not finite", "the model diverged; try a smaller step")
    ends = check_offsets(offsets, len(positive))
    if positive.all() or not positive.any():
        raise BadInput("labels", "one class only", "the AUROC needs rows of both classes")
    client = np.searchsorted(ends, np.arange(s.shape[1]), side="right")
    sides = [_Strata.of(np.flatnonzero(side), client) for side in (positive, ~positive)]
    ranks = [np.unique(row, return_inverse=True)[1] for row in s]  # equal scores share a rank
    rng, found, step = np.random.default_rng([seed, 83]), [], max(1, ROWS_AT_ONCE // s.shape[1])
    for first in range(0, draws, step):
        count = min(step, draws - first)
        up, down = (side.draw(rng, count) for side in sides)
        found.append(np.stack([_aurocs(rank[up], rank[down]) for rank in ranks]))
    return np.concatenate(found, axis=1)


def interval(values: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """The central interval that contains the share `level` of the draws.

    >>> interval([0.0, 0.5, 1.0], level=0.5)
    (0.25, 0.75)
    """
    number("level", level, above=0, below=1)
    low, high = np.quantile(np.asarray(values), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def check_offsets(offsets: ArrayLike, rows: int, clients: int | None = None) -> Ints:
    """Check the row offsets of the clients: ascending whole numbers from 0 to the number of rows."""
    ends = np.asarray(offsets)
    fits = ends.ndim == 1 and len(ends) > 1 and ends.dtype.kind in "iu"
    if not fits or ends[0] != 0 or ends[-1] != rows or (np.diff(ends) < 0).any():
        raise BadInput("offsets", ends.tolist(), f"must run from 0 up to {rows}, the number of rows, in whole numbers")
    if clients is not None and len(ends) != clients + 1:
        raise BadInput("len(offsets)", len(ends), f"{clients} clients need {clients + 1} offsets")
    return ends.astype(np.int64)


class _Strata:
    """The rows of one class, one stratum per client."""

    def __init__(self, rows: Ints, first: Ints, size: Ints) -> None:
        self.rows, self.first, self.size = rows, first, size

    @classmethod
    def of(cls, rows: Ints, client: Ints) -> _Strata:
        """Find the start and the size of each row's stratum; the rows are in the order of the clients."""
        _, first, own, size = np.unique(client[rows], return_index=True, return_inverse=True, return_counts=True)
        return cls(rows, first[own], size[own])

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        """Resampled row numbers, (count, n); each stratum keeps its size."""
        at = (rng.random((count, len(self.rows))) * self.size).astype(np.int64)
        return np.asarray(self.rows[at + self.first])


def _aurocs(up: Ints, down: Ints) -> Floats:
    """The AUROC of each draw, from the ranks of its positives and negatives."""
    count, top = len(up), int(max(up.max(), down.max())) + 1
    line = np.arange(count)[:, None] * top
    p, n = (np.bincount((line + at).ravel(), minlength=count * top).reshape(count, top) for at in (up, down))
    below = np.cumsum(n, axis=1) - n
    right = (p * (below + n / 2)).sum(axis=1)
    return np.asarray(right / (up.shape[1] * down.shape[1]))

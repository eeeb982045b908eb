"""ROC curves and AUROC of a binary model: pooled over all clients, and per client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.metrics.bootstrap import DRAWS, bootstrap_auroc, check_offsets, interval
from fedsaddle.numerics.roc import auroc, average_precision, checked_rows, roc_curve

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RankingFigures:
    """Counts and AUROC of one client or of all; the AUROC is None if a class is missing."""

    name: str
    positives: int
    negatives: int
    auroc: float | None = None
    low: float | None = None  # bounds of the 95 % interval
    high: float | None = None

    @property
    def single_class(self) -> bool:
        """Whether a class is missing: the rows count in the pooled figures, but have no curve of their own."""
        return self.positives == 0 or self.negatives == 0


@dataclass(frozen=True, eq=False)
class Ranking:
    """The scores of a model and their figures. `pooled` is over all rows, not a mean over clients."""

    scores: Floats  # (n,), the clients one after the other
    labels: Ints
    offsets: Ints
    pooled: RankingFigures
    clients: tuple[RankingFigures, ...]
    average_precision: float | None

    @property
    def single_class_clients(self) -> int:
        """The number of clients whose rows are all of one class."""
        return sum(c.single_class for c in self.clients if c.positives + c.negatives)

    def curve(self, client: int | None = None) -> tuple[Floats, Floats] | None:
        """False and true positive rates of one client or of all; None if a class is missing."""
        rows = slice(None) if client is None else slice(int(self.offsets[client]), int(self.offsets[client + 1]))
        return roc_curve(self.scores[rows], self.labels[rows])

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "pooled": _to_dict(self.pooled),
            "average_precision": self.average_precision,
            "single_class_clients": self.single_class_clients,
            "clients": [_to_dict(c) for c in self.clients],
        }


def rank(
    scores: Floats, labels: Ints, offsets: Ints, names: Sequence[str], *, draws: int = DRAWS, seed: int = 0
) -> Ranking:
    """Evaluate scores, where a higher score means more likely positive; client i has the rows from `offsets[i]` on.

    The intervals come from `draws` bootstrap draws. Raises `BadInput` if a score is not finite.

    >>> rank(np.array([0.9, 0.2, 0.8]), np.array([1, 0, 1]), np.array([0, 2, 3]), ("a", "b")).pooled.auroc
    1.0
    """
    checked_rows(scores, labels)
    check_offsets(offsets, len(scores), len(names))
    clients = []
    for i, name in enumerate(names):
        rows = slice(int(offsets[i]), int(offsets[i + 1]))
        clients.append(_figures(name, scores[rows], labels[rows], None, draws, seed))
    pooled = _figures("pooled", scores, labels, offsets, draws, seed)
    return Ranking(scores, labels, offsets, pooled, tuple(clients), average_precision(scores, labels))


def difference(
    ours: Ranking, theirs: Ranking, *, draws: int = DRAWS, seed: int = 0
) -> tuple[float, float, float] | None:
    """The difference of two models' pooled AUROC on the same rows, with its interval."""
    if ours.pooled.auroc is None or theirs.pooled.auroc is None:
        return None
    both = bootstrap_auroc([ours.scores, theirs.scores], ours.labels, ours.offsets, draws=draws, seed=seed)
    return (ours.pooled.auroc - theirs.pooled.auroc, *interval(both[0] - both[1]))


def _figures(name: str, scores: Floats, labels: Ints, offsets: Ints | None, draws: int, seed: int) -> RankingFigures:
    positives = int((labels > 0).sum())
    negatives, area = len(labels) - positives, auroc(scores, labels)
    if area is None:
        return RankingFigures(name, positives, negatives)
    spans = [0, len(labels)] if offsets is None else offsets
    low, high = interval(bootstrap_auroc(scores, labels, spans, draws=draws, seed=seed))
    return RankingFigures(name, positives, negatives, area, low, high)


def _to_dict(figures: RankingFigures) -> dict[str, Any]:
    return {
        "name": figures.name,
        "positives": figures.positives,
        "negatives": figures.negatives,
        "auroc": figures.auroc,
        "interval": None if figures.auroc is None else [figures.low, figures.high],
    }

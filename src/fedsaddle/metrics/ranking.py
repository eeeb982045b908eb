"""How well a model ranks rows of two classes: the ROC curve of all clients' rows together, and of each client."""

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
    """The figures of some rows: those of one client, or of all. Without rows of both classes there is no AUROC."""

    name: str
    positives: int
    negatives: int
    auroc: float | None = None
    low: float | None = None  # of its 95 % interval
    high: float | None = None

    @property
    def single_class(self) -> bool:
        """Whether one class is missing: the client counts, but has no curve of its own."""
        return self.positives == 0 or self.negatives == 0


@dataclass(frozen=True, eq=False)
class Ranking:
    """One model's scores and what they are worth. `pooled` is never a mean over clients."""

    scores: Floats  # (n,), the clients one after the other
    labels: Ints
    offsets: Ints
    pooled: RankingFigures
    clients: tuple[RankingFigures, ...]
    average_precision: float | None

    @property
    def single_class_clients(self) -> int:
        """Clients with rows, all of one class."""
        return sum(c.single_class for c in self.clients if c.positives + c.negatives)

    def curve(self, client: int | None = None) -> tuple[Floats, Floats] | None:
        """False and true positive rates of a client, or of all; None where a class is missing."""
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
    """Measure scores: higher means more likely positive; client i owns the rows from `offsets[i]` on.

    The intervals are those of `draws` bootstrap draws by `seed`. Raises `BadInput` for scores that are not finite.

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
    """How much higher the pooled AUROC of one model is than that of another on the same rows, with its interval."""
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


def _to_dict(ranked: RankingFigures) -> dict[str, Any]:
    return {
        "name": ranked.name,
        "positives": ranked.positives,
        "negatives": ranked.negatives,
        "auroc": ranked.auroc,
        "interval": None if ranked.auroc is None else [ranked.low, ranked.high],
    }

"""A site's own figures: exact, from its own rows, where no count that they tell is small."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from fedsaddle.array_types import Ints
from fedsaddle.federation.records import Visibility
from fedsaddle.metrics.histograms import MergedHistogram, ScoreHistogram
from fedsaddle.metrics.intervals import Interval, area, order, sample, variance
from fedsaddle.metrics.ranking import rank
from fedsaddle.metrics.score_sums import EDGES, bins_of

OwnCount: TypeAlias = Annotated[int | None, Visibility.PER_CLIENT]
OwnFigure: TypeAlias = Annotated[float | None, Visibility.PER_CLIENT]
OwnInterval: TypeAlias = Annotated[Interval | None, Visibility.PER_CLIENT]
OwnTable: TypeAlias = Annotated[tuple[tuple[int, int] | None, ...], Visibility.PER_CLIENT]


@dataclass(frozen=True)
class OwnFigures:
    """What a site says of a model on its own rows; the server sees each site's.

    Args:
        positives: Their number; None if this or that of the negatives is small, but not 0: the sum of both is known.
        negatives: The same.
        auroc: With DeLong's interval, in which patients are drawn; None where a class has too few rows.
        spread: The variance of the AUROC.
        alarms: For each agreed cut the true and the false alarms; None where a cell of the table, or what lies between
            two such cuts, is small.
    """

    positives: OwnCount
    negatives: OwnCount
    auroc: OwnInterval = None
    spread: OwnFigure = None
    alarms: OwnTable = ()

    @classmethod
    def of(
        cls, scores: ArrayLike, labels: ArrayLike, least: int, cuts: Sequence[int] = (), units: Ints | None = None
    ) -> OwnFigures:
        """The figures of a site.

        Args:
            scores: (n,), a higher one for likelier positives.
            labels: (n,), positive above 0.
            least: The least count that is told, but 0.
            cuts: The first bins of those called positive, the most important first.
            units: (n,), the patient of each row; None: each row is its own.
        """
        s, positive = np.asarray(scores, dtype=np.float64).ravel(), np.asarray(labels).ravel() > 0
        sides = int(positive.sum()), int((~positive).sum())
        if any(0 < n < least for n in sides):
            return cls(None, None, alarms=(None,) * len(cuts))
        found, spread = None, None
        if min(sides) >= least:
            found = rank(s, positive, [0, len(s)], ("own",), units=units).clients[0].auroc
        if found is not None:
            zeros = np.zeros(len(s), dtype=np.int64)
            spread = float(variance(area(order(s, positive, zeros, 1)), sample(positive, zeros, 1, units))[0])
        return cls(*sides, found, spread, _alarms(bins_of(s), positive, least, cuts))

    @property
    def has_both(self) -> tuple[bool, bool]:
        """Whether the site has positives, and negatives."""
        return self.positives != 0, self.negatives != 0


def _alarms(
    bins: Ints, positive: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], least: int, cuts: Sequence[int]
) -> tuple[tuple[int, int] | None, ...]:
    counts = [np.bincount(bins[side], minlength=len(EDGES) + 1) for side in (positive, ~positive)]
    merged = MergedHistogram.with_cuts(ScoreHistogram(EDGES, counts[0], counts[1]), least, cuts)
    if merged is None:
        return (None,) * len(cuts)
    told: list[tuple[int, int] | None] = []
    for cut in cuts:
        (tp, most_tp), (fp, most_fp) = merged.above_cut(cut)
        told.append((tp, fp) if (tp, fp) == (most_tp, most_fp) else None)
    return tuple(told)

"""Score histograms: sites share counts instead of scores, and pooled figures follow with an error bound.

Each site counts its positives and its negatives between shared edges. The sum over sites is the histogram of the
pooled rows. Only the order within a bin is unknown: every figure below is the midpoint between the lowest and the
highest value over all orders, and its error is half their difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput
from fedsaddle.numerics.roc import standardised, under_steps

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def uniform_edges(low: float, high: float, bins: int = 1000) -> Floats:
    """Edges of `bins` bins of equal width from `low` to `high`; the first and the last bin are unbounded."""
    if number("low", low) >= number("high", high):
        raise BadInput("low, high", (low, high), "give two finite numbers, the lower one first")
    return low + (high - low) * np.arange(1, _bins(bins)) / bins


def sigmoid_edges(bins: int = 1000) -> Floats:
    """Edges of bins with equal width in `1 / (1 + exp(-score))`: narrow around 0, and they cover all scores."""
    share = np.arange(1, _bins(bins)) / bins
    return np.log(share) - np.log1p(-share)


def _bins(bins: int) -> int:
    return whole("bins", bins, least=2, most=10_000_000)


@dataclass(frozen=True)
class Estimate:
    """A figure with an error bound: the exact value lies in [value - error, value + error]."""

    value: float
    error: float

    @classmethod
    def between(cls, low: float, high: float) -> Estimate:
        """The midpoint of a range, with half its width as the error."""
        return cls((low + high) / 2, max(0.0, (high - low) / 2))

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest value that the figure can have."""
        return self.value - self.error, self.value + self.error

    def __str__(self) -> str:
        return f"{self.value:.4f} ± {self.error:.2g}"


@dataclass(frozen=True, eq=False)
class ScoreHistogram:
    """Positives and negatives per bin. Bin k holds the scores with `edges[k - 1] <= score < edges[k]`."""

    edges: Floats  # (bins - 1,), ascending
    positives: Ints  # (bins,)
    negatives: Ints  # (bins,)

    def __post_init__(self) -> None:
        e = self.edges
        if e.ndim != 1 or not len(e) or not np.isfinite(e).all() or not (np.diff(e) > 0).all():
            raise BadInput("edges", e.ravel()[:5].tolist(), "give one or more finite numbers in ascending order")
        for name, counts in (("positives", self.positives), ("negatives", self.negatives)):
            if counts.shape != (len(self.edges) + 1,):
                raise BadInput(
                    f"{name}.shape", counts.shape, f"{len(self.edges)} edges make {len(self.edges) + 1} bins"
                )
            if (counts < 0).any():
                raise BadInput(name, int(counts.min()), "counts must be 0 or more")

    @classmethod
    def of(cls, scores: ArrayLike, labels: ArrayLike, edges: ArrayLike) -> ScoreHistogram:
        """Count the rows of one site: labels above 0 are positive."""
        s, positive = np.asarray(scores, dtype=np.float64).ravel(), np.asarray(labels).ravel() > 0
        if s.shape != positive.shape:
            raise BadInput("labels.shape", positive.shape, f"give one label for each of the {len(s)} scores")
        if np.isnan(s).any():
            raise BadInput(f"scores[{int(np.argmax(np.isnan(s)))}]", "nan", "the model diverged; try a smaller step")
        cuts = np.asarray(edges, dtype=np.float64)
        at = np.searchsorted(cuts, s, side="right")
        both = [np.bincount(at[side], minlength=len(cuts) + 1).astype(np.int64) for side in (positive, ~positive)]
        return cls(cuts, both[0], both[1])

    def __add__(self, other: ScoreHistogram) -> ScoreHistogram:
        if not np.array_equal(self.edges, other.edges):
            raise BadInput("edges", len(other.edges), "the edges differ; use the same edges at all sites")
        return ScoreHistogram(self.edges, self.positives + other.positives, self.negatives + other.negatives)

    def to_dict(self) -> dict[str, list[Any]]:
        """Plain lists, for JSON."""
        return {k: getattr(self, k).tolist() for k in ("edges", "positives", "negatives")}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> ScoreHistogram:
        """Build a histogram from the result of `to_dict`."""
        try:
            edges = np.asarray(given["edges"], dtype=np.float64)
            counts = [np.asarray(given[k]) for k in ("positives", "negatives")]
        except (KeyError, TypeError, ValueError) as reason:
            raise BadInput("histogram", f"{reason}", "needs lists of numbers: edges, positives, negatives") from None
        for c in counts:
            if c.dtype.kind not in "iu":
                raise BadInput("histogram", str(c.dtype), "counts must be whole numbers")
        return cls(edges, counts[0].astype(np.int64), counts[1].astype(np.int64))

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of positives and of negatives."""
        return int(self.positives.sum()), int(self.negatives.sum())

    def roc(self) -> tuple[Floats, Floats]:
        """The points of the ROC curve at the edges: false and true positive rates, from (0, 0) to (1, 1)."""
        p, n = self.sides
        if p == 0 or n == 0:
            raise BadInput("positives, negatives", (p, n), "a ROC curve needs rows of both classes")
        return _from_top(self.negatives) / n, _from_top(self.positives) / p

    def auroc(self) -> Estimate | None:
        """The area under the ROC curve; its error is half the share of pairs in the same bin.

        None if a class is missing.
        """
        return self.two_way_partial_auroc(1.0, 0.0)

    def partial_auroc(self, max_fpr: float, *, standardise: bool = True) -> Estimate | None:
        """The area up to a false positive rate, by default McClish-standardised as `roc_auc_score(max_fpr=...)`."""
        area = self._area(max_fpr, 0.0)
        if area is None:
            return None
        low, high = (standardised(a, max_fpr) for a in area) if standardise else area
        return Estimate.between(low, high)

    def two_way_partial_auroc(self, max_fpr: float, min_tpr: float) -> Estimate | None:
        """The area with false positive rate <= `max_fpr` and true positive rate >= `min_tpr`.

        It is divided by `max_fpr (1 - min_tpr)`: the AUROC of the hardest negatives against the hardest positives.
        """
        area = self._area(max_fpr, min_tpr)
        return None if area is None else Estimate.between(*(a / (max_fpr * (1 - min_tpr)) for a in area))

    def average_precision(self) -> Estimate | None:
        """The average precision, as scikit-learn's `average_precision_score`; None without positives."""
        p = self.sides[0]
        if p == 0:
            return None
        tp, fp = _from_top(self.positives), _from_top(self.negatives)
        own, before_fp, after_fp = self.positives[::-1], fp[:-1], fp[1:]
        # Best case: a bin's positives are tied and above its negatives. Worst case: they are untied and below them.
        best = own * tp[1:] / np.maximum(tp[1:] + before_fp, 1)
        place = np.arange(1, p + 1)  # rank of each positive among the positives
        worst = place / (place + np.repeat(after_fp, own))
        return Estimate.between(float(worst.sum()) / p, float(best.sum()) / p)

    def _area(self, max_fpr: float, min_tpr: float) -> tuple[float, float] | None:
        """The smallest and the largest area under any curve through the points at the edges."""
        if 0 in self.sides:
            return None
        fpr, tpr = self.roc()
        return (
            under_steps(fpr, tpr[:-1], max_fpr, min_tpr),  # negatives first in each bin
            under_steps(fpr, tpr[1:], max_fpr, min_tpr),  # positives first in each bin
        )


def merge_histograms(histograms: Iterable[ScoreHistogram]) -> ScoreHistogram:
    """Add histograms with the same edges.

    >>> parts = [ScoreHistogram.of([0.1, 0.9], [0, 1], [0.5]), ScoreHistogram.of([0.6], [1], [0.5])]
    >>> merge_histograms(parts).positives
    array([0, 2])
    """
    parts = list(histograms)
    if not parts:
        raise BadInput("histograms", parts, "give at least one")
    return sum(parts[1:], parts[0])


def _from_top(counts: Ints) -> Ints:
    """Cumulative counts from the highest bin down, starting at 0."""
    return np.concatenate([[0], np.cumsum(counts[::-1])]).astype(np.int64)

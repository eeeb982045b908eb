"""Score histograms: sites share counts instead of scores, and pooled figures follow with an error bound.

Each site counts its positives and its negatives between shared edges. The sum over sites is the histogram of the
pooled rows. Only the order within a bin is unknown: every figure below is the midpoint between the lowest and the
highest value over all orders, and its error is half their difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from fedsaddle.arguments import number, whole
from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.numerics.roc import standardised, under_steps

WIDE = 0.02  # share of the bins; for wider groups only bounds are reported
Range = tuple[float, float]  # lower and upper bound of the exact figure


def uniform_edges(low: float, high: float, bins: int = 1000) -> Floats:
    """Edges of `bins` bins of equal width from `low` to `high`; the first and the last bin are unbounded.

    Args:
        low: Lower end of the range.
        high: Upper end of the range.
        bins: Number of bins.
    """
    if number("low", low) >= number("high", high):
        raise BadInput("low, high", (low, high), "give two finite numbers, the lower one first")
    return low + (high - low) * np.arange(1, _bins(bins)) / bins


def sigmoid_edges(bins: int = 1000) -> Floats:
    """Edges of bins with equal width in `1 / (1 + exp(-score))`: narrow around 0, and they cover all scores.

    Args:
        bins: Number of bins.
    """
    share = np.arange(1, _bins(bins)) / bins
    return np.log(share) - np.log1p(-share)


def _bins(bins: int) -> int:
    return whole("bins", bins, least=2, most=10_000_000)


@dataclass(frozen=True)
class BoundedFigure:
    """A figure with an error bound: the exact value lies in [value - error, value + error].

    Args:
        value: The midpoint.
        error: The largest possible distance of the exact value from it.
    """

    value: float
    error: float

    @classmethod
    def between(cls, low: float, high: float) -> BoundedFigure:
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
    """Positives and negatives per bin. Bin k holds the scores with `edges[k - 1] <= score < edges[k]`.

    Args:
        edges: Edges between the bins, ascending, one fewer than bins.
        positives: Number of positives in each bin.
        negatives: Number of negatives in each bin.
    """

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

    def to_dict(self) -> dict[str, list[float]]:
        """Plain lists, for JSON."""
        return {k: getattr(self, k).tolist() for k in ("edges", "positives", "negatives")}

    @classmethod
    def from_dict(cls, given: Mapping[str, object]) -> ScoreHistogram:
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

    def auroc(self) -> BoundedFigure | None:
        """The area under the ROC curve; its error is half the share of pairs in the same bin.

        None if a class is missing.
        """
        return self.two_way_partial_auroc(1.0, 0.0)

    def partial_auroc(self, max_fpr: float, *, standardise: bool = True) -> BoundedFigure | None:
        """The area up to a false positive rate, by default McClish-standardised as `roc_auc_score(max_fpr=...)`."""
        area = self._area(max_fpr, 0.0)
        if area is None:
            return None
        low, high = (standardised(a, max_fpr) for a in area) if standardise else area
        return BoundedFigure.between(low, high)

    def two_way_partial_auroc(self, max_fpr: float, min_tpr: float) -> BoundedFigure | None:
        """The area with false positive rate <= `max_fpr` and true positive rate >= `min_tpr`.

        It is divided by `max_fpr (1 - min_tpr)`: the AUROC of the hardest negatives against the hardest positives.
        """
        area = self._area(max_fpr, min_tpr)
        return None if area is None else BoundedFigure.between(*(a / (max_fpr * (1 - min_tpr)) for a in area))

    def average_precision(self) -> BoundedFigure | None:
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
        return BoundedFigure.between(float(worst.sum()) / p, float(best.sum()) / p)

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

    Args:
        histograms: One or more, such as those of the sites.

    Examples:
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


@dataclass(frozen=True, eq=False)
class MergedHistogram:
    """Positives and negatives of one site in groups of bins; group k is the bins `ends[k - 1] <= bin < ends[k]`.

    Args:
        edges: Edges between the bins before merging, as in `ScoreHistogram`.
        ends: Where each group ends, ascending; the last is the number of bins.
        positives: Number of positives in each group.
        negatives: Number of negatives in each group.
    """

    edges: Floats  # of the bins, as in `ScoreHistogram`
    ends: Ints  # (groups,), ascending; the last is the number of bins
    positives: Ints  # (groups,)
    negatives: Ints  # (groups,)

    @classmethod
    def of(cls, counts: ScoreHistogram, least: int) -> MergedHistogram | None:
        """Merge bins until each group has 0 or at least `least` positives, and negatives; None if that is impossible.

        Of the bins at which a group may end, the roundest number is chosen: it reveals least about the rows near it.
        """
        up, down = counts.positives, counts.negatives
        if any(0 < side < least for side in counts.sides):
            return None
        if least <= 1:
            return cls(counts.edges, np.arange(1, len(up) + 1), up, down)
        filled = [*np.flatnonzero(up + down).tolist(), len(up)]
        ends: list[int] = []
        p = n = 0
        for at, following in itertools.pairwise(filled):
            p, n = p + int(up[at]), n + int(down[at])
            if _enough(p, least) and _enough(n, least):
                ends.append(_roundest(at + 1, following))
                p = n = 0
        complete = bool(ends) and not (p or n)
        ends = [*ends[:-1], len(up)] if complete else [*ends, len(up)]
        return cls.grouped(counts, ends, least)

    @classmethod
    def with_cuts(cls, counts: ScoreHistogram, least: int, cuts: Sequence[int]) -> MergedHistogram | None:
        """The same, where groups end at cuts as far as small counts allow: above such a cut counts are exact.

        Args:
            counts: The counts of all bins.
            least: The least count of a group but 0.
            cuts: The first bins of those called positive, the most important first.
        """
        if any(0 < side < least for side in counts.sides):
            return None
        up, down = (np.concatenate([[0], np.cumsum(side)]) for side in (counts.positives, counts.negatives))
        ends = [0, len(counts.positives)]
        for cut in cuts:
            at = int(np.searchsorted(ends, cut))
            if not 0 < cut < ends[-1] or ends[at] == cut:
                continue
            parts = [int(side[b] - side[a]) for side in (up, down) for a, b in ((ends[at - 1], cut), (cut, ends[at]))]
            if all(_enough(count, least) for count in parts):
                ends.insert(at, cut)
        found: list[int] = []
        for first, end in itertools.pairwise(ends):
            own = np.zeros(len(counts.positives), dtype=bool)
            own[first:end] = True
            merged = cls.of(ScoreHistogram(counts.edges, counts.positives * own, counts.negatives * own), least)
            assert merged is not None  # each part has enough
            found += [*(e for e in merged.ends[:-1].tolist() if first < e < end), end]
        return cls.grouped(counts, found, 1)

    @classmethod
    def grouped(cls, counts: ScoreHistogram, ends: Sequence[int], least: int) -> MergedHistogram:
        """The counts of groups; where the last group is too small, it joins the one before."""
        last = list(ends)
        while True:
            starts = np.array([0, *last[:-1]])
            up, down = (np.add.reduceat(side, starts) for side in (counts.positives, counts.negatives))
            if len(last) == 1 or (_enough(int(up[-1]), least) and _enough(int(down[-1]), least)):
                return cls(counts.edges, np.array(last), up, down)
            last = [*last[:-2], last[-1]]

    @property
    def bins(self) -> int:
        """Number of bins before merging."""
        return len(self.edges) + 1

    @property
    def first(self) -> Ints:
        """The first bin of each group."""
        return np.concatenate([[0], self.ends[:-1]]).astype(np.int64)

    def coarse(self) -> ScoreHistogram | None:
        """The groups as bins of this one site; None for a single group, which orders nothing."""
        if len(self.ends) < 2:
            return None
        return ScoreHistogram(self.edges[self.ends[:-1] - 1], self.positives, self.negatives)

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of positives and of negatives."""
        return int(self.positives.sum()), int(self.negatives.sum())

    @property
    def widest(self) -> float:
        """The width of the widest group that has rows, as a share of all bins."""
        filled = (self.positives + self.negatives) > 0
        return float((self.ends - self.first)[filled].max(initial=0)) / self.bins

    def auroc(self) -> BoundedFigure | None:
        """The area under the ROC curve of this site; None if a class is missing, or all rows are in one group."""
        coarse = self.coarse()
        return None if coarse is None else coarse.auroc()

    def auroc_bounds(self) -> Range | None:
        """The lowest and the highest AUROC that fit the counts; None if a class is missing."""
        if 0 in self.sides:
            return None
        found = self.auroc()
        return (0.0, 1.0) if found is None else found.bounds

    def above_cut(self, cut: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The least and the most positives from a bin on, and negatives; equal where a group begins there."""
        sure, possible = self.first >= cut, self.ends > cut
        up, down = ((int(side[sure].sum()), int(side[possible].sum())) for side in (self.positives, self.negatives))
        return up, down

    def placed(self, positives: Ints, negatives: Ints) -> ScoreHistogram:
        """All bins, with the positives and the negatives of each group in the bins given for them."""
        up, down = (np.zeros(self.bins, dtype=np.int64) for _ in range(2))
        np.add.at(up, positives, self.positives)
        np.add.at(down, negatives, self.negatives)
        return ScoreHistogram(self.edges, up, down)

    def in_the_middle(self) -> ScoreHistogram:
        """All bins, with the rows of each group in its middle bin."""
        middle = (self.first + self.ends - 1) // 2
        return self.placed(middle, middle)


@dataclass(frozen=True, eq=False)
class PooledHistogram:
    """The merged histograms of several sites.

    Every figure is the midpoint between the lowest and the highest value that fit the counts, with half the distance
    between them as its error.

    Args:
        sites: The histogram of each site; all have the same bins.
    """

    sites: tuple[MergedHistogram, ...]

    @property
    def low(self) -> ScoreHistogram:
        """All positives in the lowest bin of their group, all negatives in the highest."""
        return _sum([site.placed(site.first, site.ends - 1) for site in self.sites])

    @property
    def high(self) -> ScoreHistogram:
        """All positives in the highest bin of their group, all negatives in the lowest."""
        return _sum([site.placed(site.ends - 1, site.first) for site in self.sites])

    @property
    def middle(self) -> ScoreHistogram:
        """All rows in the middle bin of their group: an approximation, valid unless `wide`."""
        return _sum([site.in_the_middle() for site in self.sites])

    @property
    def widest(self) -> float:
        """The width of the widest group that has rows at any site, as a share of all bins."""
        return max(site.widest for site in self.sites)

    @property
    def wide(self) -> bool:
        """Whether groups are too wide for a midpoint, so that only bounds are reported."""
        return self.widest > self._narrow

    @property
    def _narrow(self) -> float:
        """The largest width of a group that is not wide; a single bin never is."""
        return max(WIDE, 1 / self.sites[0].bins) + 1e-9

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of positives and of negatives."""
        both = [site.sides for site in self.sites]
        return sum(up for up, _ in both), sum(down for _, down in both)

    def above(self, share: float) -> tuple[Range, Range] | None:
        """Ranges of the sensitivity and the specificity if scores in the bins from `share` of all bins up are alarms.

        None if a class is missing, or a wide group with rows lies on both sides of that edge.
        """
        up, down = self.sides
        if not up or not down:
            return None
        found = np.zeros((2, 2), dtype=np.int64)  # at least and at most: positives, negatives
        for site in self.sites:
            cut = round(share * site.bins)
            sure, possible = site.first >= cut, site.ends > cut
            split = possible & ~sure & (site.positives + site.negatives > 0)
            if ((site.ends - site.first)[split] > self._narrow * site.bins).any():
                return None
            for k, counts in enumerate((site.positives, site.negatives)):
                found[0, k] += counts[sure].sum()
                found[1, k] += counts[possible].sum()
        (tp, fp), (most_tp, most_fp) = found.tolist()
        return (tp / up, most_tp / up), (1 - most_fp / down, 1 - fp / down)

    def auroc(self) -> BoundedFigure | None:
        """The area under the ROC curve; None if a class is missing."""
        return _between(self.low.auroc(), self.high.auroc())

    def partial_auroc(self, max_fpr: float) -> BoundedFigure | None:
        """The area up to a false positive rate, standardised."""
        return _between(self.low.partial_auroc(max_fpr), self.high.partial_auroc(max_fpr))

    def two_way_partial_auroc(self, max_fpr: float, min_tpr: float) -> BoundedFigure | None:
        """The area with false positive rate <= `max_fpr` and true positive rate >= `min_tpr`."""
        return _between(*(side.two_way_partial_auroc(max_fpr, min_tpr) for side in (self.low, self.high)))

    def average_precision(self) -> BoundedFigure | None:
        """The average precision; None without positives.

        In the best case a positive is tied with all that may be as high, and below no negative that may be lower.
        """
        low, high = self.low.average_precision(), self.high
        if low is None:
            return None
        positives, negatives = (np.cumsum(side[::-1])[::-1] for side in (high.positives, high.negatives))
        negatives = np.append(negatives, 0)
        best = 0.0
        for site in self.sites:
            above = positives[site.first]
            best += float((site.positives * above / np.maximum(above + negatives[site.ends], 1)).sum())
        return BoundedFigure.between(low.bounds[0], best / high.sides[0])


def _enough(count: int, least: int) -> bool:
    return count == 0 or count >= least


def _roundest(first: int, last: int) -> int:
    """The number from `first` to `last` that the highest power of two divides."""
    step = 1
    while -(-first // (2 * step)) * 2 * step <= last:
        step *= 2
    return -(-first // step) * step


def _sum(histograms: Sequence[ScoreHistogram]) -> ScoreHistogram:
    return sum(histograms[1:], histograms[0])


def _between(low: BoundedFigure | None, high: BoundedFigure | None) -> BoundedFigure | None:
    """From the lower bound of `low` to the upper bound of `high`."""
    return None if low is None or high is None else BoundedFigure.between(low.bounds[0], high.bounds[1])

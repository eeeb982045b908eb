"""Score histograms in which no cell is small: a site merges neighbouring bins, each site in its own way.

A site's rows of a merged bin may lie anywhere in it. So the figures of several sites lie between those of two
arrangements: positives at the lower end of their bins and negatives at the upper end, and the other way round.
Without merged bins both are the same, and the figures are those of `ScoreHistogram`. Where a group that has rows is
wider than `WIDE`, its middle says little about them: such counts give bounds only, and no point estimate, curve,
calibration, threshold or confidence interval.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsaddle.metrics.histograms import Estimate, Floats, Ints, ScoreHistogram

WIDE = 0.02  # of the range of scores; wider groups give bounds only
Bounds = tuple[float, float]  # the exact figure is not outside of them


@dataclass(frozen=True, eq=False)
class MergedHistogram:
    """Positives and negatives of one site in groups of bins; group k is the bins `ends[k - 1] <= bin < ends[k]`."""

    edges: Floats  # of the bins, as in `ScoreHistogram`
    ends: Ints  # (groups,), ascending; the last is the number of bins
    positives: Ints  # (groups,)
    negatives: Ints  # (groups,)

    @classmethod
    def of(cls, counts: ScoreHistogram, least: int) -> MergedHistogram | None:
        """Merge bins until each group has 0 or at least `least` positives, and negatives; None if there is no way.

        Of the bins at which a group may end, one with a round number is taken: it tells less about the rows near it.
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
        """How many bins there are before any is merged."""
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

    def auroc(self) -> Estimate | None:
        """The area under the ROC curve of this site; None if a class is missing, or all rows are in one group."""
        coarse = self.coarse()
        return None if coarse is None else coarse.auroc()

    def auroc_bounds(self) -> Bounds | None:
        """The lowest and the highest AUROC that fit the counts; None if a class is missing."""
        if 0 in self.sides:
            return None
        found = self.auroc()
        return (0.0, 1.0) if found is None else found.bounds

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
    """

    sites: tuple[MergedHistogram, ...]

    @property
    def low(self) -> ScoreHistogram:
        """Positives as low as they can be, negatives as high."""
        return _sum([site.placed(site.first, site.ends - 1) for site in self.sites])

    @property
    def high(self) -> ScoreHistogram:
        """Positives as high as they can be, negatives as low."""
        return _sum([site.placed(site.ends - 1, site.first) for site in self.sites])

    @property
    def middle(self) -> ScoreHistogram:
        """All rows in the middle of their groups: an approximation, for groups that are not `wide` only."""
        return _sum([site.in_the_middle() for site in self.sites])

    @property
    def widest(self) -> float:
        """The width of the widest group that has rows at any site, as a share of all bins."""
        return max(site.widest for site in self.sites)

    @property
    def wide(self) -> bool:
        """Whether the counts give bounds only."""
        return self.widest > self._narrow

    @property
    def _narrow(self) -> float:
        """The widest that a group may be; a bin that is not merged is never too wide."""
        return max(WIDE, 1 / self.sites[0].bins) + 1e-9

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of positives and of negatives."""
        both = [site.sides for site in self.sites]
        return sum(up for up, _ in both), sum(down for _, down in both)

    def above(self, share: float) -> tuple[Bounds, Bounds] | None:
        """Bounds of the sensitivity and the specificity if scores in the bins from `share` of all bins up are alarms.

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

    def auroc(self) -> Estimate | None:
        """The area under the ROC curve; None if a class is missing."""
        return _between(self.low.auroc(), self.high.auroc())

    def partial_auroc(self, max_fpr: float) -> Estimate | None:
        """The area up to a false positive rate, standardised."""
        return _between(self.low.partial_auroc(max_fpr), self.high.partial_auroc(max_fpr))

    def two_way_partial_auroc(self, max_fpr: float, min_tpr: float) -> Estimate | None:
        """The area with false positive rate <= `max_fpr` and true positive rate >= `min_tpr`."""
        return _between(*(side.two_way_partial_auroc(max_fpr, min_tpr) for side in (self.low, self.high)))

    def average_precision(self) -> Estimate | None:
        """The average precision; None without positives.

        At best a positive is tied with all that can be as high, and only negatives that must be higher are above it.
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
        return Estimate.between(low.bounds[0], best / high.sides[0])


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


def _between(low: Estimate | None, high: Estimate | None) -> Estimate | None:
    """From the least that the first can be to the most that the last can be."""
    return None if low is None or high is None else Estimate.between(low.bounds[0], high.bounds[1])

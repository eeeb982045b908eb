"""Intervals in closed form: of ranking figures, shares and means, and of their differences, with patients as units.

The influence of a row on a figure is the derivative of the figure with respect to the row's weight. Its sums over units
(rows, or patients with several rows) give the variance of the figure: for the AUROC this is DeLong's variance, with
patients Obuchowski's. All groups are computed together, after one sort.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fedsaddle.array_types import Bools, Floats, Ints

MOST_PAIRS = 400  # of a site whose pairs are enumerated


@dataclass(frozen=True, eq=False)
class Linearised:
    """A metric of each group, between 0 and 1, NaN where a class is missing, and the influence of each row.

    Args:
        values: (groups,), the metric.
        influence: (n,), in the order of the rows; adds up to 0 in each group.
        weight: (n,), the number of pairs (positive, negative) that contain the row.
        excess: (groups,), the part of the variance that the sum of squared influences counts twice.
        ranks: (n,), of the rows in their group or site; equal scores share a rank.
        slope: The metric is reported as `slope * value + shift`.
        shift: See `slope`.
    """

    values: Floats
    influence: Floats
    weight: Floats
    excess: Floats
    ranks: Ints
    slope: float = 1.0
    shift: float = 0.0


@dataclass(frozen=True, eq=False)
class Ordered:
    """The rows by group and descending score, in steps of equal scores, as `order` returns them.

    Args:
        groups: Number of groups.
        at: (n,), numbers of the sorted rows.
        positive: (n,), 1 for a positive, sorted.
        step: (n,), the step of each sorted row.
        group: (steps,), the group of each step.
        begins: (steps,), whether a step is the first of its group.
        ups: (steps,), number of positives.
        downs: (steps,), number of negatives.
    """

    groups: int
    at: Ints
    positive: Floats
    step: Ints
    group: Ints
    begins: Bools
    ups: Floats
    downs: Floats

    def total(self, values: Floats) -> Floats:
        """Sums over the steps of each group."""
        return np.bincount(self.group, weights=values, minlength=self.groups).astype(np.float64)

    def before(self, values: Floats) -> Floats:
        """Sums over the earlier steps of the same group."""
        sums = np.concatenate([[0.0], np.cumsum(values)[:-1]]) if len(values) else values
        return np.asarray(sums - sums[self.begins][np.cumsum(self.begins) - 1])

    def after(self, values: Floats) -> Floats:
        """Sums over the later steps of the same group."""
        return np.asarray(self.total(values)[self.group] - self.before(values) - values)

    def rows(self, up: Floats, down: Floats) -> Floats:
        """A value for each row, in the order given: of its step among the positives, or among the negatives."""
        values = np.empty(len(self.at))
        values[self.at] = np.where(self.positive > 0, up[self.step], down[self.step])
        return values

    @property
    def ranks(self) -> Ints:
        """The place of each row's step in its group, in the order given."""
        ranks, steps = np.empty(len(self.at), dtype=np.int64), np.arange(len(self.group))
        ranks[self.at] = (steps - steps[self.begins][np.cumsum(self.begins) - 1])[self.step]
        return ranks


def order(scores: Floats, positive: Bools, group: Ints, groups: int) -> Ordered:
    """Sort the rows once for all metrics.

    Args:
        scores: (n,).
        positive: (n,).
        group: (n,), the number of the group of each row.
        groups: Number of groups.
    """
    at = np.lexsort((-scores, group))
    s, y, g = scores[at], positive[at].astype(np.float64), group[at]
    new = np.ones(len(s), dtype=bool)
    new[1:] = (g[1:] != g[:-1]) | (s[1:] != s[:-1])
    step, steps = np.cumsum(new) - 1, int(new.sum())
    begins = np.ones(steps, dtype=bool)
    begins[1:] = np.diff(g[new]) != 0
    ups, downs = (np.bincount(step, weights=side, minlength=steps).astype(np.float64) for side in (y, 1 - y))
    return Ordered(groups, at, y, step, g[new], begins, ups, downs)


def partial_area(rows: Ordered, max_fpr: float) -> Linearised:
    """The area under each group's ROC curve up to `max_fpr`, as a share of `max_fpr`; reported on McClish's scale.

    Between the points of the curve at false positive rates f0 and f1, a positive adds the mean of (max_fpr - f)+.
    """
    ups, downs, g = rows.ups, rows.downs, rows.group
    with np.errstate(divide="ignore", invalid="ignore"):
        positives, negatives = rows.total(ups), rows.total(downs)
        start = rows.before(downs) / negatives[g]
        end = start + downs / negatives[g]
        width = end - start
        inside = np.where(width > 0, np.clip((max_fpr - start) / width, 0, 1), (start < max_fpr).astype(np.float64))
        own = inside * (max_fpr - start) - inside**2 / 2 * width
        area = rows.total(ups * own) / positives
        at_start, at_end = ups * (inside - inside**2 / 2), ups * inside**2 / 2
        mean = rows.total(at_start * start + at_end * end)[g]
        down = (mean - rows.after(at_start) - rows.after(at_end) - at_end) / (positives * negatives)[g]
        up = (own - area[g]) / positives[g]
        area = np.where(negatives > 0, area, np.nan)
    slope = 0.5 / (1 - max_fpr / 2) if max_fpr < 1 else 1.0
    influence, pairs = rows.rows(up, down) / max_fpr, rows.rows(negatives[g], positives[g])
    return Linearised(area / max_fpr, influence, pairs, np.zeros(rows.groups), rows.ranks, slope, 1 - slope)


def area(rows: Ordered) -> Linearised:
    """The AUROC of each group."""
    return partial_area(rows, 1.0)


def average_precision(rows: Ordered) -> Linearised:
    """The average precision of each group. The prevalence is estimated too, and so has an influence."""
    g, ups = rows.group, rows.ups
    with np.errstate(divide="ignore", invalid="ignore"):
        positives, both = rows.total(ups), ups + rows.downs
        hits, seen = rows.before(ups) + ups, rows.before(both) + both
        precision = hits / seen
        value = rows.total(ups * precision) / positives
        gain, loss = ups / seen, ups * hits / seen**2
        down = -(rows.after(loss) + loss) / positives[g]
        up = (precision + rows.after(gain) + gain - value[g]) / positives[g] + down
        negatives = rows.total(rows.downs)
        value = np.where(negatives > 0, value, np.nan)
    pairs = rows.rows(negatives[g], positives[g])
    return Linearised(value, rows.rows(up, down), pairs, np.zeros(rows.groups), rows.ranks)


def within_site_area(rows: Ordered, site_group: Ints, groups: int) -> Linearised:
    """The mean of the sites' AUROCs, weighted by their pairs.

    Pairs of one site share rows. The squared influences count a pair with itself twice, once for each of its rows; this
    `excess` matters at small sites.

    Args:
        rows: Sorted and grouped by site.
        site_group: The group of each site.
        groups: Number of groups.
    """
    ups, downs, site = rows.ups, rows.downs, rows.group
    positives, negatives = rows.total(ups), rows.total(downs)
    below, above = rows.after(downs) + downs / 2, rows.before(ups) + ups / 2  # the pairs of a row in the right order
    squares = rows.total(ups * (rows.after(downs) + downs / 4))

    def total(of_sites: Floats) -> Floats:
        return np.bincount(site_group, weights=of_sites, minlength=groups).astype(np.float64)

    pairs, right = total(positives * negatives), total(rows.total(ups * below))
    with np.errstate(divide="ignore", invalid="ignore"):
        value = right / pairs
        excess = (total(squares) - 2 * value * right + value**2 * pairs) / pairs**2
        here, shown = site_group[site], value[site_group[site]]
        up, down = (below - shown * negatives[site]) / pairs[here], (above - shown * positives[site]) / pairs[here]
    return Linearised(value, rows.rows(up, down), rows.rows(negatives[site], positives[site]), excess, rows.ranks)


def gap_excess(ours: Linearised, theirs: Linearised, positive: Bools, site: Ints, site_group: Ints) -> Floats:
    """The `excess` of a difference of within-site areas. Sites with many pairs, where it is negligible, are left out.

    Args:
        ours: The within-site area of the first model.
        theirs: The within-site area of the second model.
        positive: (n,).
        site: (n,), the number of the site of each row.
        site_group: The group of each site.
    """
    sites, groups = len(site_group), len(ours.values)
    ups, downs = (np.flatnonzero(side)[np.argsort(site[side], kind="stable")] for side in (positive, ~positive))
    m, n = (np.bincount(site[side], minlength=sites) for side in (ups, downs))
    pairs = np.bincount(site_group, weights=m * n, minlength=groups)
    ups = ups[(m * n)[site[ups]] <= MOST_PAIRS]
    count = n[site[ups]]
    i = np.repeat(ups, count)
    within = np.arange(len(i)) - np.repeat(np.cumsum(count) - count, count)
    j = downs[(np.cumsum(n) - n)[site[i]] + within]
    here = site_group[site[i]]
    # A low rank is a high score: +1, 0 or -1 for a pair in the right order, tied or wrong.
    signs = [np.sign(model.ranks[j] - model.ranks[i]) / 2 for model in (ours, theirs)]
    rest = signs[0] - signs[1] - (ours.values - theirs.values)[here]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.bincount(here, weights=rest**2, minlength=groups) / pairs**2)


FIGURES: dict[str, Callable[[Ordered], Linearised]] = {
    "auroc": area,
    "average_precision": average_precision,
    "partial_auroc": lambda rows: partial_area(rows, 0.3),
}


def stdtrit(degrees: ArrayLike, share: float) -> Floats:
    """The quantile of Student's t distribution, as `scipy.special.stdtrit`."""
    from scipy import special

    return np.asarray(special.stdtrit(degrees, share))


def expit(x: ArrayLike) -> Floats:
    """`1 / (1 + exp(-x))`, as `scipy.special.expit`."""
    from scipy import special

    return np.asarray(special.expit(x))


def logit(p: ArrayLike) -> Floats:
    """`log(p / (1 - p))`, as `scipy.special.logit`."""
    from scipy import special

    return np.asarray(special.logit(p))


LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % interval.

    Args:
        value: The estimate.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.3f}, {self.high:.3f}]"

    def to_dict(self) -> dict[str, float | list[float]]:
        """Plain numbers, for JSON."""
        return {"value": self.value, "interval": [self.low, self.high]}


@dataclass(frozen=True, eq=False)
class Intervals:
    """Values and intervals of many groups; NaN where a class is missing.

    Args:
        values: (groups,), the estimates.
        low: Lower ends.
        high: Upper ends.
    """

    values: Floats
    low: Floats
    high: Floats

    def of(self, group: int) -> Interval | None:
        """One group's interval; None where a class is missing."""
        value = float(self.values[group])
        return None if np.isnan(value) else Interval(value, float(self.low[group]), float(self.high[group]))


@dataclass(frozen=True, eq=False)
class GroupedUnits:
    """The independent units of each group, and which rows are positive, as `sample` returns them.

    Args:
        groups: Number of groups.
        positive: (n,), of each row.
        group: (n,), the group of each row.
        unit: (n,), the number of the pair (group, unit) of each row.
        group_of_unit: The group of each such pair.
    """

    groups: int
    positive: Bools
    group: Ints
    unit: Ints
    group_of_unit: Ints

    def per_unit(self, rows: Floats) -> Floats:
        """Sums over the rows of each unit."""
        return np.bincount(self.unit, weights=rows, minlength=len(self.group_of_unit)).astype(np.float64)

    def total(self, units: Floats) -> Floats:
        """Sums over the units of each group."""
        return np.bincount(self.group_of_unit, weights=units, minlength=self.groups).astype(np.float64)

    def effective(self, weight: Floats) -> Floats:
        """Kish's effective number of units of each group."""
        own = self.per_unit(weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.nan_to_num(self.total(own) ** 2 / self.total(own**2)))


def sample(positive: Bools, group: Ints, groups: int, units: Ints | None = None) -> GroupedUnits:
    """The units of each group.

    Args:
        positive: (n,), of each row.
        group: (n,), the group of each row.
        groups: Number of groups.
        units: (n,), numbers of the units, such as patients; None (default): every row is its own. A unit with rows in
            two groups counts as one unit of each.
    """
    if units is None:
        return GroupedUnits(groups, positive, group, np.arange(len(group)), group)
    most = int(units.max()) + 1 if len(units) else 1
    pairs, unit = np.unique(group * most + units, return_inverse=True)
    return GroupedUnits(groups, positive, group, unit.ravel(), pairs // most)


def variance(figure: Linearised, drawn: GroupedUnits) -> Floats:
    """The variance of each group's figure; for the AUROC and rows as units, DeLong's."""
    return _spread(figure, drawn)[0]


def bounds(figure: Linearised, drawn: GroupedUnits, level: float = LEVEL) -> Intervals:
    """The interval of each group's figure; the width is never 0.

    Args:
        figure: With the influence of each row.
        drawn: The units of each group.
        level: Of confidence.
    """
    spread, scarce, freedom = _spread(figure, drawn)
    v, t = figure.values, stdtrit(freedom, (1 + level) / 2)
    low, high = wilson(v, spread, scarce, t)
    return Intervals(*(figure.slope * x + figure.shift for x in (v, low, high)))


def differences(
    ours: Linearised, theirs: Linearised, drawn: GroupedUnits, excess: Floats | None = None, level: float = LEVEL
) -> Intervals:
    """The interval of each group's difference of two models on the same rows, from the paired variance.

    To the variance 1 / 2b³ + 1 / pairs² is added, as if one unit and one pair more had been seen on which the models
    differ, with b as above and b - 1 degrees of freedom. The width is 0 only if the `ranks` of both are the same.

    Args:
        ours: The figure of the first model.
        theirs: The figure of the second model.
        drawn: The units of each group.
        excess: The part of the variance that squared influences count twice; None (default): 0.
        level: Of confidence.
    """
    excess = np.zeros_like(ours.excess) if excess is None else excess
    values, influence = ours.values - theirs.values, ours.influence - theirs.influence
    gap = Linearised(values, influence, ours.weight, excess, ours.ranks, ours.slope)
    spread, scarce, _ = _spread(gap, drawn)
    unlike = drawn.total(drawn.per_unit((ours.ranks != theirs.ranks).astype(np.float64))) > 0
    pairs = drawn.total(drawn.per_unit(ours.weight * drawn.positive))
    return difference_bounds(values, spread, scarce, pairs, unlike, gap.slope, level)


def difference_bounds(
    values: Floats, spread: Floats, scarce: Floats, pairs: Floats, unlike: Bools, slope: float, level: float = LEVEL
) -> Intervals:
    """The interval of differences, from their variances.

    Args:
        values: The differences.
        spread: Their variances.
        scarce: The number of units of the rarer class.
        pairs: The number of pairs (positive, negative).
        unlike: Whether the two models differ on some row.
        slope: What values are multiplied by when they are reported.
        level: Of confidence.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(unlike, np.sqrt(spread + 0.5 / scarce**3 + 1 / pairs**2), 0.0)
    half = stdtrit(np.maximum(scarce - 1, 1), (1 + level) / 2) * error
    values = np.where(unlike | np.isnan(values), values, 0.0)  # no rounding
    low, high = np.maximum(values - half, -1), np.minimum(values + half, 1)
    return Intervals(*(slope * x for x in (values, low, high)))


def wilson(value: Floats, spread: Floats, scarce: Floats, t: Floats) -> tuple[Floats, Floats]:
    """Wilson's bounds of a share with variance `spread`, seen on `scarce` units of the rarer class."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (value * scarce + 0.5) / (scarce + 1)
        prior = inner * (1 - inner)  # what the bound weighs: more, the closer the value is to 0 or 1
        k = t**2 * (scarce * spread + prior / scarce) / (scarce * value * (1 - value) + prior)
        middle = (value + k / 2) / (1 + k)
        half = np.sqrt(k * value * (1 - value) + k**2 / 4) / (1 + k)
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def wilson_share(correct: float, rows: int) -> Interval:
    """A share with Wilson's 95 % interval, for rows that are drawn independently.

    Args:
        correct: Number of rows that count.
        rows: Number of all rows.

    Examples:
        >>> wilson_share(9, 10)
        Interval(value=0.9, low=0.5958..., high=0.9821...)
    """
    z, share = 1.959963984540054, correct / rows
    middle = share + z * z / (2 * rows)
    half = z * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    scale = 1 + z * z / rows
    return Interval(share, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale))


def _spread(figure: Linearised, drawn: GroupedUnits) -> tuple[Floats, Floats, Floats]:
    """The variance, the number of units of the rarer class and the degrees of freedom of each group."""
    sides = drawn.positive, ~drawn.positive
    counts = [drawn.effective(figure.weight * side) for side in sides]
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = [scale_of(m) for m in counts]
        parts = [figure.influence * (scale[drawn.group] * side) for scale, side in zip(scales, sides, strict=True)]
        up, down = (drawn.total(drawn.per_unit(part) ** 2) for part in parts)
        whole = drawn.total(drawn.per_unit(parts[0] + parts[1]) ** 2)
    return spread_of_sums(up, down, whole, counts, figure.excess)


def scale_of(units: Floats) -> Floats:
    """What influences of one class are multiplied by, because a mean was estimated for it."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(np.where(units >= 2, units / (units - 1), 2.0)))


def spread_of_sums(
    up: Floats, down: Floats, whole: Floats, counts: Sequence[Floats], excess: Floats | float = 0.0
) -> tuple[Floats, Floats, Floats]:
    """The variance, the number of units of the rarer class and the degrees of freedom, from sums over units.

    Args:
        up: Squared influences of the positives of a unit.
        down: Those of its negatives.
        whole: Those of both together.
        counts: The effective numbers of units with positives, and with negatives.
        excess: The part of the variance that squared influences count twice.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        scarce = np.minimum(*counts)
        spread = np.maximum(whole - excess, excess)
        least = np.maximum(scarce - 1, 1)
        rate = up**2 / np.maximum(counts[0] - 1, 1) + down**2 / np.maximum(counts[1] - 1, 1)
        freedom = np.where(rate > 0, (up + down) ** 2 / np.where(rate > 0, rate, 1), least)  # Satterthwaite's
    return spread, scarce, np.maximum(np.nan_to_num(freedom, nan=1.0), 1)


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """Groups of rows, and the units in them."""

    group: Ints  # (n,), of each row
    groups: int
    units: Ints | None = None

    @classmethod
    def one_group(cls, rows: int, units: Ints | None = None) -> GroupedRows:
        """All rows as one group."""
        return cls(np.zeros(rows, dtype=np.int64), 1, units)

    @cached_property
    def sample(self) -> GroupedUnits:
        """The units, for sums over units and groups."""
        return sample(np.zeros(len(self.group), dtype=bool), self.group, self.groups, self.units)


def shares(hits: Bools, among: Bools, drawn: GroupedRows, level: float = LEVEL) -> Intervals:
    """The share of `hits` among some rows of each group, such as alarms among positives; NaN where there are none."""
    own = drawn.sample
    weight = among.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = own.total(own.per_unit(weight))
        value = own.total(own.per_unit(hits * weight)) / total
        spread, many = _spread_of_means((hits - value[drawn.group]) * weight / total[drawn.group], weight, own)
        t = stdtrit(np.maximum(many - 1, 1), (1 + level) / 2)
        # A single unit is hardly informative, also by Wilson's formula with Student's quantile.
        low, high = wilson(value, spread, np.maximum(many, 1), t)
    return Intervals(value, low, high)


def share(hits: Bools, among: Bools, units: Ints | None = None, level: float = LEVEL) -> Interval | None:
    """The share of `hits` among some rows; None where there are none."""
    return shares(hits, among, GroupedRows.one_group(len(hits), units), level).of(0)


def means(values: Floats, drawn: GroupedRows, level: float = LEVEL, floor: Floats | float = 0.0) -> Intervals:
    """The mean of each group; `floor` is added to the variance, to allow for one more unit."""
    own, ones = drawn.sample, np.ones(len(values))
    with np.errstate(divide="ignore", invalid="ignore"):
        total = own.total(own.per_unit(ones))
        value = own.total(own.per_unit(values)) / total
        spread, many = _spread_of_means((values - value[drawn.group]) / total[drawn.group], ones, own)
        half = stdtrit(np.maximum(many - 1, 1), (1 + level) / 2) * np.sqrt(spread + floor)
    return Intervals(value, value - half, value + half)


def t_interval(values: Floats, *, share: bool = False) -> tuple[Floats, Floats, Floats]:
    """Mean, lower and upper end of the 95 % t-interval over the first axis; both ends are NaN for one value.

    `mean ± t_{0.975, n-1} s / √n` with the sample's standard deviation s. For a `share`, such as an accuracy, the
    interval is that of the mean's log odds, `logit(mean) ± t s / (√n mean (1 - mean))`, so that it stays within 0 and 1
    and allows for more on the far side of a mean close to either.

    Examples:
        >>> [round(float(end), 2) for end in t_interval(np.array([0.0, 0.0, 0.24]), share=True)]
        [0.08, 0.0, 0.9]
    """
    n = len(values)
    mean = values.mean(axis=0)
    if n < 2:
        return mean, mean * np.nan, mean * np.nan
    half = stdtrit(n - 1, (1 + LEVEL) / 2) * values.std(axis=0, ddof=1) / np.sqrt(n)
    if not share:
        return mean, mean - half, mean + half
    with np.errstate(divide="ignore", invalid="ignore"):
        inside = (half > 0) & (mean > 0) & (mean < 1)  # all 0 or all 1: there is nothing to estimate a spread from
        odds, wide = logit(mean), half / (mean * (1 - mean))
        low, high = (np.where(inside, expit(odds + side * wide), mean) for side in (-1, 1))
    return mean, low, high


def gap_of_extremes(bounds: Intervals) -> Interval | None:
    """The largest minus the smallest of some figures, from simultaneous intervals.

    If every figure lies in its interval, so does the gap between the true extremes, whichever groups attain them: no
    further correction for selecting the two is needed. None with fewer than two figures.
    """
    there = ~np.isnan(bounds.values)
    if there.sum() < 2:
        return None
    value, low, high = (side[there] for side in (bounds.values, bounds.low, bounds.high))
    gap = float(value.max() - value.min())
    return Interval(gap, max(float(low.max() - high.min()), 0.0), float(high.max() - low.min()))


def bonferroni_level(level: float, figures: int) -> float:
    """Bonferroni's level of each of `figures` intervals that hold simultaneously with the given level."""
    return 1 - (1 - level) / max(figures, 1)


def difference_of_independent(one: Interval, other: Interval) -> Interval:
    """The difference of two figures of different units, by the method of variance estimates recovery (MOVER)."""
    value = one.value - other.value
    down = np.hypot(one.value - one.low, other.high - other.value)
    up = np.hypot(one.high - one.value, other.value - other.low)
    return Interval(value, value - float(down), value + float(up))


def _spread_of_means(influence: Floats, weight: Floats, own: GroupedUnits) -> tuple[Floats, Floats]:
    """The variance of each group's figure, and Kish's effective number of its units."""
    many = own.effective(weight)
    scale = np.where(many >= 2, many / np.maximum(many - 1, 1e-9), 2.0)
    return scale * own.total(own.per_unit(influence) ** 2), many

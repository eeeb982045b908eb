"""Shares and means of rows with intervals, where units such as patients may have several rows.

A share is a ratio of sums over rows, and its variance that of the sums over units. Its interval is Wilson's with an
effective number of units, as for ranking figures; a mean without bounds has Student's. Means over runs or clients, such
as those of several seeds, have Student's too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedsaddle.metrics.intervals import LEVEL, Bounds, Interval, Sample, sample, wilson
from fedsaddle.numerics.quantiles import expit, logit, stdtrit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Who was drawn: groups of rows, and the units in them."""

    group: Ints  # (n,), of each row
    groups: int
    units: Ints | None = None

    @classmethod
    def together(cls, rows: int, units: Ints | None = None) -> Drawn:
        """All rows as one group."""
        return cls(np.zeros(rows, dtype=np.int64), 1, units)

    @cached_property
    def sample(self) -> Sample:
        """For sums over units and groups."""
        return sample(np.zeros(len(self.group), dtype=bool), self.group, self.groups, self.units)


def shares(hits: Bools, among: Bools, drawn: Drawn, level: float = LEVEL) -> Bounds:
    """The share of `hits` among some rows of each group, such as alarms among positives; NaN where there are none."""
    own = drawn.sample
    weight = among.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        total = own.total(own.per_unit(weight))
        value = own.total(own.per_unit(hits * weight)) / total
        spread, many = _spread((hits - value[drawn.group]) * weight / total[drawn.group], weight, own)
        t = stdtrit(np.maximum(many - 1, 1), (1 + level) / 2)
        # A single unit says next to nothing, also by Wilson's formula with Student's quantile.
        low, high = wilson(value, spread, np.maximum(many, 1), t)
    return Bounds(value, low, high)


def share(hits: Bools, among: Bools, units: Ints | None = None, level: float = LEVEL) -> Interval | None:
    """The share of `hits` among some rows; None where there are none."""
    return shares(hits, among, Drawn.together(len(hits), units), level).of(0)


def means(values: Floats, drawn: Drawn, level: float = LEVEL, floor: Floats | float = 0.0) -> Bounds:
    """The mean of each group; `floor` is added to the variance, for what one unit more could have said."""
    own, ones = drawn.sample, np.ones(len(values))
    with np.errstate(divide="ignore", invalid="ignore"):
        total = own.total(own.per_unit(ones))
        value = own.total(own.per_unit(values)) / total
        spread, many = _spread((values - value[drawn.group]) / total[drawn.group], ones, own)
        half = stdtrit(np.maximum(many - 1, 1), (1 + level) / 2) * np.sqrt(spread + floor)
    return Bounds(value, value - half, value + half)


def t_interval(values: Floats, *, share: bool = False) -> tuple[Floats, Floats, Floats]:
    """Mean, lower and upper end of the 95 % t-interval over the first axis; both ends are NaN for one value.

    `mean ± t_{0.975, n-1} s / √n` with the sample's standard deviation s. For a `share`, such as an accuracy, the
    interval is that of the mean's log odds, `logit(mean) ± t s / (√n mean (1 - mean))`, so that it stays within 0 and 1
    and allows for more on the far side of a mean close to either.

    Example:
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


def gap_of_extremes(bounds: Bounds) -> Interval | None:
    """The largest minus the smallest of some figures, from bounds that hold for all of them at once.

    Where each figure lies within its bounds, so does the gap of the true extremes, whichever groups have them: that
    these two were picked after looking costs nothing more. None with fewer than two figures.
    """
    there = ~np.isnan(bounds.values)
    if there.sum() < 2:
        return None
    value, low, high = (side[there] for side in (bounds.values, bounds.low, bounds.high))
    gap = float(value.max() - value.min())
    return Interval(gap, max(float(low.max() - high.min()), 0.0), float(high.max() - low.min()))


def at_once(level: float, figures: int) -> float:
    """Bonferroni's level of each of some intervals that hold together with the given level."""
    return 1 - (1 - level) / max(figures, 1)


def apart(one: Interval, other: Interval) -> Interval:
    """One figure minus another of other units, from their intervals (the method of variance estimates recovery)."""
    value = one.value - other.value
    down = np.hypot(one.value - one.low, other.high - other.value)
    up = np.hypot(one.high - one.value, other.value - other.low)
    return Interval(value, value - float(down), value + float(up))


def _spread(influence: Floats, weight: Floats, own: Sample) -> tuple[Floats, Floats]:
    """The variance of each group's figure, and Kish's number of its units."""
    many = own.effective(weight)
    scale = np.where(many >= 2, many / np.maximum(many - 1, 1e-9), 2.0)
    return scale * own.total(own.per_unit(influence) ** 2), many

"""Intervals of ranking figures and of their differences, in closed form.

A figure of v = 0.95 from 16 positives is skewed, and at v = 1 its estimated variance is 0. So the interval is Wilson's,
made for shares, with an effective number of trials: from the variance V by influences, V = K v (1 - v), of which K is
drawn towards its upper bound 1 / b, where b is the number of units of the rarer class. The quantile is Student's.
`benchmarks/coverage.py` measures how often such intervals cover.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaddle.metrics.influence import Bools, Floats, Ints, Linearised
from fedsaddle.numerics.quantiles import stdtrit

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A figure and the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.3f}, {self.high:.3f}]"

    def to_dict(self) -> dict[str, float | list[float]]:
        """Plain numbers, for JSON."""
        return {"value": self.value, "interval": [self.low, self.high]}


@dataclass(frozen=True, eq=False)
class Bounds:
    """Values and bounds of many groups; NaN where a class is missing."""

    values: Floats
    low: Floats
    high: Floats

    def of(self, group: int) -> Interval | None:
        """One group's interval; None where a class is missing."""
        value = float(self.values[group])
        return None if np.isnan(value) else Interval(value, float(self.low[group]), float(self.high[group]))


@dataclass(frozen=True, eq=False)
class Sample:
    """Who was drawn independently: the units of each group, and which rows are positive. Made by `sample`."""

    groups: int
    positive: Bools  # (n,)
    group: Ints  # (n,)
    unit: Ints  # (n,), numbers of the pairs (group, unit)
    group_of_unit: Ints  # (units,)

    def per_unit(self, rows: Floats) -> Floats:
        """Sums over the rows of each unit."""
        return np.bincount(self.unit, weights=rows, minlength=len(self.group_of_unit)).astype(np.float64)

    def total(self, units: Floats) -> Floats:
        """Sums over the units of each group."""
        return np.bincount(self.group_of_unit, weights=units, minlength=self.groups).astype(np.float64)

    def effective(self, weight: Floats) -> Floats:
        """Kish's number of units of each group: as many equal ones would do as well."""
        own = self.per_unit(weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.nan_to_num(self.total(own) ** 2 / self.total(own**2)))


def sample(positive: Bools, group: Ints, groups: int, units: Ints | None = None) -> Sample:
    """The units of each group; without `units`, every row is its own. A unit in two groups is one of each."""
    if units is None:
        return Sample(groups, positive, group, np.arange(len(group)), group)
    most = int(units.max()) + 1 if len(units) else 1
    pairs, unit = np.unique(group * most + units, return_inverse=True)
    return Sample(groups, positive, group, unit.ravel(), pairs // most)


def variance(figure: Linearised, drawn: Sample) -> Floats:
    """The variance of each group's figure; for the AUROC and rows as units, DeLong's."""
    return _spread(figure, drawn)[0]


def bounds(figure: Linearised, drawn: Sample, level: float = LEVEL) -> Bounds:
    """The interval of each group's figure; the width is never 0."""
    spread, scarce, freedom = _spread(figure, drawn)
    v, t = figure.values, stdtrit(freedom, (1 + level) / 2)
    low, high = wilson(v, spread, scarce, t)
    return Bounds(*(figure.slope * x + figure.shift for x in (v, low, high)))


def differences(
    ours: Linearised, theirs: Linearised, drawn: Sample, excess: Floats | None = None, level: float = LEVEL
) -> Bounds:
    """The interval of each group's difference of two models on the same rows, from the paired variance.

    To the variance 1 / 2b³ + 1 / pairs² is added, as if one unit and one pair more had been seen on which the models
    differ, with b as above and b - 1 degrees of freedom. The width is 0 only if the `ranks` of both are the same.
    """
    excess = np.zeros_like(ours.excess) if excess is None else excess
    values, influence = ours.values - theirs.values, ours.influence - theirs.influence
    gap = Linearised(values, influence, ours.weight, excess, ours.ranks, ours.slope)
    spread, scarce, _ = _spread(gap, drawn)
    unlike = drawn.total(drawn.per_unit((ours.ranks != theirs.ranks).astype(np.float64))) > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = drawn.total(drawn.per_unit(ours.weight * drawn.positive))
        error = np.where(unlike, np.sqrt(spread + 0.5 / scarce**3 + 1 / pairs**2), 0.0)
    half = stdtrit(np.maximum(scarce - 1, 1), (1 + level) / 2) * error
    values = np.where(unlike | np.isnan(values), values, 0.0)  # no rounding
    low, high = np.maximum(values - half, -1), np.minimum(values + half, 1)
    return Bounds(*(gap.slope * x for x in (values, low, high)))


def wilson(value: Floats, spread: Floats, scarce: Floats, t: Floats) -> tuple[Floats, Floats]:
    """Wilson's bounds of a share with variance `spread`, seen on `scarce` units of the rarer class."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (value * scarce + 0.5) / (scarce + 1)
        prior = inner * (1 - inner)  # what the bound weighs: more, the closer the value is to 0 or 1
        k = t**2 * (scarce * spread + prior / scarce) / (scarce * value * (1 - value) + prior)
        middle = (value + k / 2) / (1 + k)
        half = np.sqrt(k * value * (1 - value) + k**2 / 4) / (1 + k)
    return np.clip(middle - half, 0, 1), np.clip(middle + half, 0, 1)


def _spread(figure: Linearised, drawn: Sample) -> tuple[Floats, Floats, Floats]:
    """The variance, the number of units of the rarer class and the degrees of freedom of each group."""
    sides = drawn.positive, ~drawn.positive
    counts = [drawn.effective(figure.weight * side) for side in sides]
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = [np.sqrt(np.where(m >= 2, m / (m - 1), 2.0)) for m in counts]  # a mean was estimated for each class
        parts = [figure.influence * (scale[drawn.group] * side) for scale, side in zip(scales, sides, strict=True)]
        up, down = (drawn.total(drawn.per_unit(part) ** 2) for part in parts)
        whole = drawn.total(drawn.per_unit(parts[0] + parts[1]) ** 2)
        scarce = np.minimum(*counts)
        spread = np.maximum(whole - figure.excess, figure.excess)
        least = np.maximum(scarce - 1, 1)
        rate = up**2 / np.maximum(counts[0] - 1, 1) + down**2 / np.maximum(counts[1] - 1, 1)
        freedom = np.where(rate > 0, (up + down) ** 2 / np.where(rate > 0, rate, 1), least)  # Satterthwaite's
    return spread, scarce, np.maximum(np.nan_to_num(freedom, nan=1.0), 1)

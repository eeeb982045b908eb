"""Figures of groups of rows, such as women and men: each with intervals, and the gaps between groups.

The gap of the largest and the smallest figure is chosen after looking at all of them. Its interval comes from bounds
that hold for all groups at once (Bonferroni's), so it claims no more than the rows support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsaddle.array_types import Bools, Floats, Ints
from fedsaddle.metrics.calibration import FEW_ALARMS
from fedsaddle.metrics.intervals import (
    LEVEL,
    GroupedRows,
    GroupedUnits,
    Interval,
    Intervals,
    Linearised,
    area,
    bonferroni_level,
    bounds,
    difference_of_independent,
    gap_of_extremes,
    means,
    order,
    sample,
    shares,
    within_site_area,
)
from fedsaddle.metrics.ranking import FEW

FIGURES = ("auroc", "sensitivity", "specificity", "positive_predictive_value", "alarms", "observed_minus_predicted")


@dataclass(frozen=True)
class GroupFigures:
    """Figures of one group; None where the figure would be about fewer than five rows (`FEW`), or ten alarms."""

    name: str
    positives: int
    negatives: int
    auroc: Interval | None = None
    sensitivity: Interval | None = None
    specificity: Interval | None = None
    positive_predictive_value: Interval | None = None
    alarms: Interval | None = None  # as a share of the group's rows
    observed_minus_predicted: Interval | None = None  # share of positives minus mean probability

    @property
    def few(self) -> bool:
        """Whether a class has too few rows to rank the group."""
        return min(self.positives, self.negatives) < FEW


@dataclass(frozen=True)
class Worst:
    """The group or site with the lowest AUROC of those that have one.

    It was picked after looking at all of them, which both of its intervals allow for: that of its own AUROC, and that
    of `gap`, its AUROC minus that of the others.
    """

    name: str
    positives: int
    negatives: int
    auroc: Interval
    others: Interval
    gap: Interval
    ranked: int  # groups with a figure
    groups: int
    looks: int  # groups that it was picked from, in all columns

    @property
    def distinguishable(self) -> bool:
        """Whether it ranks worse than the others by more than chance."""
        return self.gap.high < 0


@dataclass(frozen=True)
class Subgroups:
    """The figures of all groups of one column, and of each figure the gap between the largest and the smallest.

    Only groups with five rows of each class are compared.
    """

    groups: tuple[GroupFigures, ...]
    gaps: dict[str, Interval]
    worst: Worst | None


@dataclass(frozen=True, eq=False)
class RowsInGroups:
    """Rows in groups: scores, labels, and where they are known probabilities, a threshold and units."""

    scores: Floats
    positive: Bools
    group: Ints
    names: Sequence[str]
    probabilities: Floats | None = None
    threshold: float | None = None
    units: Ints | None = None

    @property
    def counts(self) -> tuple[Ints, Ints]:
        """Positives and negatives of each group."""
        many = len(self.names)
        ups = np.bincount(self.group[self.positive], minlength=many)
        return ups, np.bincount(self.group, minlength=many) - ups


def subgroups(rows: RowsInGroups) -> Subgroups:
    """The figures of each group."""
    ups, downs = rows.counts
    at = {key: _bounds(rows, key, LEVEL) for key in FIGURES}
    groups = []
    for k, name in enumerate(rows.names):
        found = {key: own.of(k) for key, own in at.items() if own is not None}
        groups.append(GroupFigures(name, int(ups[k]), int(downs[k]), **found))
    found = {key: gap(rows, key) for key in FIGURES}
    return Subgroups(tuple(groups), {key: own for key, own in found.items() if own is not None}, worst(rows))


def gap(rows: RowsInGroups, key: str, looks: int = 0) -> Interval | None:
    """The largest minus the smallest figure of the groups that are compared; None with fewer than two.

    `looks` are the groups that were looked at where they are more than these, such as those of several columns.
    """
    least, own = np.minimum(*rows.counts), _bounds(rows, key, LEVEL)
    compared = 0 if own is None else int((~np.isnan(_kept(own, least).values)).sum())
    wide = _bounds(rows, key, bonferroni_level(LEVEL, max(compared, looks))) if compared > 1 else None
    return None if wide is None else gap_of_extremes(_kept(wide, least))


def worst(rows: RowsInGroups, *, within: bool = False, looks: int = 0) -> Worst | None:
    """The group with the lowest AUROC; None with fewer than two ranked groups.

    The others' figure is the AUROC of all of their rows together or, with `within`, that within them: for sites, whose
    own figure does not ask either whether the scores of two sites are on one scale. `looks` are the groups that were
    looked at where they are more than these, such as those of several columns.

    The lowest of many figures is low by chance too, so the upper end of its interval is Bonferroni's for all that were
    looked at. The lower end stays: the lowest is overestimated only where every other is at least as high, so that
    picking it makes this error no more frequent.
    """
    own = _bounds(rows, "auroc", LEVEL)
    if own is None or (~np.isnan(own.values)).sum() < 2:
        return None
    k, ranked = int(np.nanargmin(own.values)), int((~np.isnan(own.values)).sum())
    looks = max(ranked, looks)
    level = bonferroni_level(LEVEL, looks)
    figure, drawn = _others(rows, k, within)
    wide = _bounds(rows, "auroc", level)
    others, far = bounds(figure, drawn).of(0), bounds(figure, drawn, level).of(0)
    auroc, wider = own.of(k), None if wide is None else wide.of(k)
    if auroc is None or others is None or far is None or wider is None:
        return None
    ups, downs = rows.counts
    between, picked = difference_of_independent(wider, far), replace(auroc, high=wider.high)
    return Worst(rows.names[k], int(ups[k]), int(downs[k]), picked, others, between, ranked, len(rows.names), looks)


@dataclass(frozen=True)
class WorstLoss:
    """The group with the largest mean loss of those with enough rows, and all of their means.

    The largest of many means is large by chance too, so the lower end of its interval is Bonferroni's for all of them.
    """

    name: str
    loss: Interval
    means: dict[str, float]


def worst_loss(losses: Floats, group: Ints, names: Sequence[str], least: int, units: Ints | None = None) -> WorstLoss:
    """The worst group by its mean loss; with no group of at least `least` rows, of all."""
    count = np.bincount(group, minlength=len(names))
    enough = (count >= least) if (count >= least).any() else count > 0
    drawn = GroupedRows(group, len(names), units)
    own, wide = (means(losses, drawn, level) for level in (LEVEL, bonferroni_level(LEVEL, int(enough.sum()))))
    k = int(np.argmax(np.where(enough, own.values, -np.inf)))
    found = Interval(float(own.values[k]), float(max(0.0, wide.low[k])), float(own.high[k]))
    every = {names[i]: float(own.values[i]) for i in np.flatnonzero(enough).tolist()}
    return WorstLoss(names[k], found, every)


def _others(rows: RowsInGroups, k: int, within: bool) -> tuple[Linearised, GroupedUnits]:
    """The AUROC of the groups other than k, and who was drawn."""
    rest, many = rows.group != k, len(rows.names)
    scores, positive, group = rows.scores[rest], rows.positive[rest], rows.group[rest]
    one = np.zeros(len(scores), dtype=np.int64)
    drawn = sample(positive, one, 1, None if rows.units is None else rows.units[rest])
    if within:
        return within_site_area(order(scores, positive, group, many), np.zeros(many, dtype=np.int64), 1), drawn
    return area(order(scores, positive, one, 1)), drawn


def _bounds(rows: RowsInGroups, key: str, level: float) -> Intervals | None:
    """The bounds of one figure of each group, NaN where the group has too few rows; None where it is not known."""
    ups, downs = rows.counts
    drawn, y = GroupedRows(rows.group, len(rows.names), rows.units), rows.positive
    if key == "auroc":
        figure = area(order(rows.scores, y, rows.group, len(rows.names)))
        own = sample(y, rows.group, len(rows.names), rows.units)
        return _kept(bounds(figure, own, level), np.minimum(ups, downs))
    if rows.probabilities is None:
        return None
    every = np.ones(len(y), dtype=bool)
    if key == "observed_minus_predicted":
        p = rows.probabilities
        floor = np.asarray(1 / np.maximum(ups + downs, 1) ** 2)
        ci = means(y - p, drawn, level, floor)
        return _kept(Intervals(ci.values, np.maximum(ci.low, -1), np.minimum(ci.high, 1)), ups + downs)
    if rows.threshold is None:
        return None
    called = rows.probabilities >= rows.threshold
    hits, among, count = {
        "sensitivity": (called, y, ups),
        "specificity": (~called, ~y, downs),
        "positive_predictive_value": (y, called, np.bincount(rows.group[called], minlength=len(rows.names))),
        "alarms": (called, every, ups + downs),
    }[key]
    least = FEW_ALARMS if key == "positive_predictive_value" else FEW
    return _kept(shares(hits, among, drawn, level), count, least)


def _kept(intervals: Intervals, counts: Ints, least: int = FEW) -> Intervals:
    """The bounds of groups with enough rows that count."""
    few = counts < least
    return Intervals(*(np.where(few, np.nan, side) for side in (intervals.values, intervals.low, intervals.high)))

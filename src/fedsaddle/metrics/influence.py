"""Ranking metrics of groups of rows and the influence of each row on them, from which intervals in closed form follow.

The influence of a row is the derivative of the figure with respect to the row's weight. Its sums over units (rows, or
patients with several rows) give the variance of the figure: for the AUROC this is DeLong's variance, with patients
Obuchowski's. All groups are computed together, after one sort.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

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
        found = np.empty(len(self.at))
        found[self.at] = np.where(self.positive > 0, up[self.step], down[self.step])
        return found

    @property
    def ranks(self) -> Ints:
        """The place of each row's step in its group, in the order given."""
        found, steps = np.empty(len(self.at), dtype=np.int64), np.arange(len(self.group))
        found[self.at] = (steps - steps[self.begins][np.cumsum(self.begins) - 1])[self.step]
        return found


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
        found, seen = rows.before(ups) + ups, rows.before(both) + both
        precision = found / seen
        value = rows.total(ups * precision) / positives
        gain, loss = ups / seen, ups * found / seen**2
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

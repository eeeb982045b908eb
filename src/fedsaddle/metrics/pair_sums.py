"""The mean AUROC within sites, by sums over sites: each works out its own pairs (positive, negative), exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsaddle.array_types import Bools, Floats
from fedsaddle.metrics.intervals import (
    LEVEL,
    MOST_PAIRS,
    GroupedUnits,
    Interval,
    difference_bounds,
    order,
    scale_of,
    spread_of_sums,
    stdtrit,
    wilson,
)

Totals = Floats  # pairs, those of small sites; of each model right pairs and their squares; of two the gap's


def pair_sums(scores: Sequence[Floats], positive: Bools, drawn: GroupedUnits, pairs: float) -> tuple[Floats, Totals]:
    """The sums of one site.

    Args:
        scores: (n,) of each model.
        positive: (n,).
        drawn: The patients.
        pairs: The pairs of all rows of all sites, by which everything is divided.

    Returns:
        Sums over patients of the products of the pairs of their positives, of their negatives, and with each model
        how many of these are in the right order; and totals over pairs.
    """
    m, n = float(positive.sum()), float((~positive).sum())
    rows, totals = [positive * n, ~positive * m], [m * n, m * n if m * n <= MOST_PAIRS else 0.0]
    for one in scores:
        steps = order(one, positive, np.zeros(len(one), dtype=np.int64), 1)
        ups, downs = steps.ups, steps.downs
        below, above = steps.after(downs) + downs / 2, steps.before(ups) + ups / 2
        right = steps.rows(below, above)
        rows += [right * positive, right * ~positive]
        totals += [float(ups @ below), float(ups @ (steps.after(downs) + downs / 4))]
    totals += [0.0, 0.0]
    if len(scores) == 2 and 0 < m * n <= MOST_PAIRS:
        first, second = (
            np.sign(one[positive][:, None] - one[~positive]) / 2 for one in scores
        )  # one half, 0 or minus one half for a pair in the right order, tied or wrong
        gap = first - second
        totals[-2:] = [float((gap**2).sum()), float(gap.sum())]
    v = np.stack([drawn.per_unit(np.asarray(row, dtype=np.float64)) for row in rows]) / pairs
    return v @ v.T, np.array(totals) / pairs


@dataclass(frozen=True, eq=False)
class PairedSites:
    """The sums of all sites.

    Args:
        squares: From `pair_sums`, added up.
        totals: From `pair_sums`, added up.
        pairs: By which they were divided.
        unlike: Whether two models differ on some row.
    """

    squares: Floats
    totals: Totals
    pairs: float
    unlike: bool = False

    def value(self, model: int) -> float:
        """The mean AUROC of the sites, weighted by their pairs; NaN without any."""
        return float(self.totals[2 + 2 * model] / self.totals[0]) if self.totals[0] > 0 else float("nan")

    @property
    def _effective(self) -> list[Floats]:
        own = np.diag(self.squares)[:2]
        return [np.array([self.totals[0] ** 2 / one if one > 0 else 0.0]) for one in own]

    def _spread(self, weights: Sequence[float], excess: float) -> tuple[Floats, Floats, Floats]:
        """Of a sum of the models' figures."""
        counts = self._effective
        pick = np.zeros((2, len(self.squares)))
        for model, weight in enumerate(weights):
            for side in (0, 1):
                pick[side, 2 + 2 * model + side] += weight
                pick[side, side] -= weight * self.value(model)
        pick *= np.array([[float(scale_of(one)[0])] for one in counts]) / self.totals[0]
        (up, cross), (_, down) = pick @ self.squares @ pick.T
        sums = [np.array([max(float(x), 0.0)]) for x in (up, down, up + 2 * cross + down)]
        return spread_of_sums(sums[0], sums[1], sums[2], counts, np.array([excess]))

    def interval(self, model: int = 0) -> Interval | None:
        """With its 95 % interval; None without pairs."""
        v, t = self.value(model), self.totals
        if np.isnan(v):
            return None
        right, squares = t[2 + 2 * model], t[3 + 2 * model]
        excess = (squares - 2 * v * right + v**2 * t[0]) / (t[0] ** 2 * self.pairs)
        weights = [0.0] * model + [1.0]
        spread, scarce, freedom = self._spread(weights, float(excess))
        low, high = wilson(np.array([v]), spread, scarce, stdtrit(freedom, (1 + LEVEL) / 2))
        return Interval(v, float(low[0]), float(high[0]))

    def difference(self) -> Interval | None:
        """The first model's minus the second's; None without pairs, or with one model."""
        if len(self.squares) != 6 or not self.totals[0] > 0:
            return None
        gap, t = self.value(0) - self.value(1), self.totals
        excess = (t[-2] - 2 * gap * t[-1] + gap**2 * t[1]) / (t[0] ** 2 * self.pairs)
        spread, scarce, _ = self._spread([1.0, -1.0], float(excess))
        pairs = np.array([t[0] * self.pairs])
        return difference_bounds(np.array([gap]), spread, scarce, pairs, np.array([self.unlike]), 1.0).of(0)

"""ROC curves on a common grid of false positive rates: the pooled one with a band, and the spread of the clients'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsaddle.metrics.influence import order
from fedsaddle.metrics.intervals import sample, wilson
from fedsaddle.metrics.ranking import Ranking
from fedsaddle.numerics.quantiles import stdtrit

Floats = NDArray[np.float64]

DRAWS = 200
GRID = np.linspace(0, 1, 101)


@dataclass(frozen=True, eq=False)
class Band:
    """Lower and upper true positive rates over the false positive rates `fpr`."""

    fpr: Floats
    low: Floats
    high: Floats


def pooled_band(ranking: Ranking, *, draws: int = DRAWS, seed: int = 0) -> Band | None:
    """The pointwise 95 % band of the pooled curve: Wilson's, with variances from bootstrap draws of the units.

    None where a class is missing.
    """
    curve = ranking.curve()
    if curve is None:
        return None
    positive, zeros = ranking.labels > 0, np.zeros(len(ranking.labels), dtype=np.int64)
    rows, drawn = order(ranking.scores, positive, zeros, 1), sample(positive, zeros, 1, ranking.units)
    unit, units, steps = drawn.unit[rows.at], len(drawn.group_of_unit), len(rows.group)
    rng, found = np.random.default_rng([seed, 83]), []
    for _ in range(draws):
        weight = np.bincount(rng.integers(units, size=units), minlength=units)[unit]
        up, down = (np.bincount(rows.step, weight * side, steps) for side in (rows.positive, 1 - rows.positive))
        if up.any() and down.any():
            tpr, fpr = (np.concatenate([[0.0], np.cumsum(side) / side.sum()]) for side in (up, down))
            found.append(np.interp(GRID, fpr, tpr))
    scarce = min(float(drawn.effective(side.astype(np.float64))[0]) for side in (positive, ~positive))
    heights, many = np.stack([np.interp(GRID, *curve), *found]), np.full_like(GRID, scarce)
    # Around the mean of the draws: a height of 1 with a variance would have no interval.
    low, high = wilson(heights.mean(0), heights.var(0), many, stdtrit(np.maximum(many - 1, 1), 0.975))
    return Band(GRID, np.minimum(low, heights[0]), np.maximum(high, heights[0]))


def client_band(ranking: Ranking, share: float = 0.8) -> Band | None:
    """Where the middle `share` of the clients' curves run, of clients with figures; None without any."""
    own = [ranking.curve(i) for i, client in enumerate(ranking.clients) if client.auroc is not None]
    if not own:
        return None
    heights = np.stack([np.interp(GRID, *curve) for curve in own if curve is not None])
    low, high = np.quantile(heights, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return Band(GRID, low, high)

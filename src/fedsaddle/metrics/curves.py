"""ROC and precision-recall curves of all rows, each with a band."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaddle.array_types import Floats
from fedsaddle.metrics.influence import order
from fedsaddle.metrics.intervals import sample, stdtrit, wilson
from fedsaddle.metrics.ranking import Ranking

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


RECALLS = np.linspace(0.01, 1, 100)


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """The precision at each recall: the share of positives among the alarms that find that share of the positives.

    `low` and `high` are pointwise 95 % bounds.
    """

    recall: Floats
    precision: Floats
    low: Floats
    high: Floats
    base_rate: float  # the precision of alarms at random


def precision_recall(
    ranking: Ranking, client: int | None = None, *, draws: int = DRAWS, seed: int = 0
) -> PrecisionRecall | None:
    """The curve of all rows or of one client; without `draws`, the band is the curve. None where a class is missing.

    At a recall, the precision is that of the highest threshold which reaches it, as scikit-learn's average precision
    has it. The bounds are Wilson's, with variances from draws of the units with replacement.
    """
    rows = slice(None) if client is None else slice(int(ranking.offsets[client]), int(ranking.offsets[client + 1]))
    labels, positive = ranking.labels[rows], ranking.labels[rows] > 0
    if not positive.any() or positive.all():
        return None
    zeros = np.zeros(len(labels), dtype=np.int64)
    steps = order(ranking.scores[rows], positive, zeros, 1)
    found, seen = np.cumsum(steps.ups), np.cumsum(steps.ups + steps.downs)
    precision = _at(RECALLS, found, seen)
    base = float(positive.mean())
    if not draws:
        return PrecisionRecall(RECALLS, precision, precision, precision, base)
    units = None if ranking.units is None else ranking.units[rows]
    drawn = sample(positive, zeros, 1, units)
    unit, many, count = drawn.unit[steps.at], len(drawn.group_of_unit), len(steps.group)
    rng, heights = np.random.default_rng([seed, 89]), [precision]
    for _ in range(draws):
        weight = np.bincount(rng.integers(many, size=many), minlength=many)[unit]
        up = np.cumsum(np.bincount(steps.step, weight * steps.positive, count)).astype(np.float64)
        if up[-1]:
            heights.append(_at(RECALLS, up, np.cumsum(np.bincount(steps.step, weight, count)).astype(np.float64)))
    stacked = np.stack(heights)
    alarms = seen[np.minimum(np.searchsorted(found, RECALLS * found[-1] - 1e-9), len(found) - 1)]
    scarce = np.maximum(alarms * many / len(labels), 1.0)
    # Around the mean of the draws: a height of 1 with a variance would have no interval.
    low, high = wilson(stacked.mean(0), stacked.var(0), scarce, stdtrit(np.maximum(scarce - 1, 1), 0.975))
    return PrecisionRecall(RECALLS, precision, np.minimum(low, precision), np.maximum(high, precision), base)


def _at(recalls: Floats, found: Floats, seen: Floats) -> Floats:
    """The precision of the first step with at least that recall."""
    at = np.minimum(np.searchsorted(found, recalls * found[-1] - 1e-9), len(found) - 1)
    return np.asarray(found[at] / seen[at])

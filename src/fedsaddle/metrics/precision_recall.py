"""The precision-recall curve of all rows, with a band."""

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

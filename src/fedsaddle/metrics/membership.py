"""Membership inference: how well an attacker with the model distinguishes its training rows from others.

Two attacks. The first calls rows members whose loss is small (Yeom et al., 2018). The second compares a row's
confidence with that of shadow models, trained by the same recipe with and without the row: the likelihood ratio of
Carlini et al. (2022), with normal distributions whose variances all rows share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedsaddle.array_types import Bools, Floats
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import rank

LEAST_SPREAD = 1e-6  # of confidences, where shadow models agree


def confidences(losses: ArrayLike) -> Floats:
    """The log odds of the right answer, log(p / (1 - p)) with p = exp(-loss), which is close to normal over models.

    Examples:
        >>> confidences([np.log(2)]).round(9).tolist()
        [0.0]
    """
    loss = np.maximum(np.asarray(losses, dtype=np.float64), 1e-12)
    return np.asarray(-loss - np.log(-np.expm1(-loss)))


def likelihood_ratio(target: Floats, shadows: Floats, trained: Bools) -> Floats:
    """The log of the likelihood ratio of "the model was trained on this row" for each row.

    Rows that all shadow models have, or none, take the other side's mean, shifted by the mean gap between the sides.

    Args:
        target: (n,), the model's confidence in each row.
        shadows: (S, n), those of the shadow models.
        trained: (S, n), whether a shadow model was trained on the row.
    """
    means, spreads = [], []
    counts = [trained.sum(axis=0), (~trained).sum(axis=0)]
    for chosen, count in zip((trained, ~trained), counts, strict=True):
        mean = np.where(chosen, shadows, 0.0).sum(axis=0) / np.maximum(count, 1)
        left = float(np.where(chosen, (shadows - mean) ** 2, 0.0).sum())
        freedom = int(np.maximum(count - 1, 0).sum())
        means.append(np.where(count > 0, mean, np.nan))
        spreads.append(max(np.sqrt(left / max(freedom, 1)), LEAST_SPREAD))
    gap = means[0] - means[1]
    usual = float(np.nanmean(gap)) if np.isfinite(gap).any() else 0.0
    inside = np.where(counts[0] > 0, means[0], means[1] + usual)
    outside = np.where(counts[1] > 0, means[1], means[0] - usual)
    ratio = _log_density(target, inside, spreads[0]) - _log_density(target, outside, spreads[1])
    return np.asarray(ratio)


def _log_density(x: Floats, mean: Floats, spread: float) -> Floats:
    return np.asarray(-((x - mean) ** 2) / (2 * spread**2) - np.log(spread))


def attack_auroc(statistic: Floats, members: Bools, units: ArrayLike | None = None) -> Interval:
    """How often a member has a larger statistic than another row, with its 95 % interval; 0.5 is chance.

    Args:
        statistic: (n,), of the attack, larger for rows that it takes for members.
        members: (n,), whether the model was trained on the row.
        units: (n,), the patient of each row, who counts once; None: each row is its own.
    """
    area = rank(statistic, members.astype(np.int64), [0, len(members)], ("all",), units=units).pooled.auroc
    assert area is not None
    return area


def private_bound(epsilon: float, delta: float) -> float:
    """The largest AUROC that any attack on single rows can have under (epsilon, delta) differential privacy.

    The area below `min(delta + exp(epsilon) x, 1 - exp(-epsilon) (1 - delta - x), 1)` (Kairouz et al., 2015).

    Examples:
        >>> round(private_bound(1.0, 0.0), 4), private_bound(0.0, 0.0)
        (0.7311, 0.5)
    """
    if epsilon > 500:
        return 1.0
    corner = (1 - delta) / (1 + np.exp(epsilon))  # of the curve, at (corner, 1 - corner)
    first = corner * (delta + 1 - corner) / 2
    second = (1 - delta - corner) * (2 - corner) / 2
    return float(min(1.0, first + second + delta))

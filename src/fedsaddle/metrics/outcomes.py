"""Figures of several classes, numbers and counts, with 95 % intervals from the influence of each row.

A figure changes by about the influence of a row if that row stood in the sample once more. Sums of influences over
units (patients, or rows) give its variance, on a scale on which it is about normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedsaddle.array_types import Bools, Floats, Ints
from fedsaddle.metrics.intervals import LEVEL, Interval, expit, logit, stdtrit

Scale = Literal["plain", "positive", "share", "explained"]
LEAST_UNITS = 5  # of an interval
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Influenced:
    """A figure, and what each row adds to it.

    Args:
        value: The figure.
        influence: Of each row, `(n,)`; they add up to about 0.
        scale: On which it is about normal: "positive" the logarithm, "share" the log odds, "explained" the logarithm
            of 1 minus it, or "plain".
        scarce: Units of the rarer side, where that has fewer than all; the degrees of freedom are one fewer.
    """

    value: float
    influence: Floats
    scale: Scale = "plain"
    scarce: int | None = None

    def interval(self, units: Ints | None = None) -> Interval | None:
        """The 95 % interval; None for fewer than five units.

        Args:
            units: To whom each row belongs, numbered from 0; None: each row to itself.
        """
        own = self.influence if units is None else np.bincount(units, weights=self.influence)
        if units is not None:
            own = own[np.bincount(units) > 0]
        m = len(own)
        scarce = m if self.scarce is None else min(m, self.scarce)
        if scarce < LEAST_UNITS or not np.isfinite(self.value):
            return None
        squares = (own - own.mean()) ** 2
        error = float(np.sqrt(m / (m - 1) * squares.sum()))
        freedom = scarce - 1.0
        if error > 0:  # heavy tails: the variance itself is known less well
            kurtosis = m * float((squares**2).sum() / squares.sum() ** 2)
            freedom = max(min(freedom, 2 * m / max(kurtosis - 1, TINY)), 1.0)
        half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
        v = self.value
        if self.scale == "plain" or half == 0:
            return Interval(v, v - half, v + half)
        if self.scale == "positive":
            wide = half / max(v, TINY)
            return Interval(v, v * float(np.exp(-wide)), v * float(np.exp(wide)))
        if self.scale == "explained":
            wide = half / max(1 - v, TINY)
            return Interval(v, 1 - (1 - v) * float(np.exp(wide)), 1 - (1 - v) * float(np.exp(-wide)))
        if not 0 < v < 1:
            return None
        wide = half / (v * (1 - v))
        low, high = (float(expit(logit(v) + side * wide)) for side in (-1, 1))
        return Interval(v, low, high)

    def minus(self, other: Influenced) -> Influenced:
        """The difference of two figures of the same rows."""
        return Influenced(self.value - other.value, self.influence - other.influence, "plain", self.scarce)


Figures = dict[str, Influenced]


def mean_of(values: Floats, scale: Scale = "plain") -> Influenced:
    """A mean over rows."""
    mean = float(values.mean())
    return Influenced(mean, (values - mean) / len(values), scale)


def area_under(scores: Floats, positive: Bools) -> Influenced | None:
    """The AUROC of scores; None where a class is missing. The influences are DeLong's placements."""
    up, down = scores[positive], scores[~positive]
    if not len(up) or not len(down):
        return None
    below = (_rank(down, up, "left") + _rank(down, up, "right")) / (2 * len(down))  # of each positive: negatives below
    above = 1 - (_rank(up, down, "left") + _rank(up, down, "right")) / (2 * len(up))
    value = float(below.mean())
    influence = np.zeros(len(scores))
    influence[positive] = (below - value) / len(up)
    influence[~positive] = (above - value) / len(down)
    return Influenced(value, influence, "share", min(len(up), len(down)))


def _rank(among: Floats, of: Floats, side: Literal["left", "right"]) -> Ints:
    return np.searchsorted(np.sort(among), of, side=side)


def of_classes(probabilities: Floats, labels: Ints, names: Sequence[str]) -> Figures:
    """Macro AUROC (the mean of one class against the rest), accuracy, log loss, and the AUROC of each class.

    Args:
        probabilities: Of each class, `(n, k)`.
        labels: `(n,)`.
        names: Of the classes.

    Examples:
        >>> import numpy as np
        >>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
        >>> found = of_classes(p, np.array([0, 1, 2]), ("a", "b", "c"))
        >>> found["macro_auroc"].value, found["accuracy"].value
        (1.0, 1.0)
    """
    each = {name: area_under(probabilities[:, k], labels == k) for k, name in enumerate(names)}
    there = [area for area in each.values() if area is not None]
    found: Figures = {}
    if len(there) == len(names):
        influence = np.mean([area.influence for area in there], axis=0)
        scarce = min(area.scarce or 0 for area in there)
        found["macro_auroc"] = Influenced(float(np.mean([a.value for a in there])), influence, "share", scarce)
    right = probabilities.argmax(1) == labels
    found["accuracy"] = mean_of(right.astype(np.float64), "share")
    found["log_loss"] = mean_of(-np.log(np.maximum(probabilities[np.arange(len(labels)), labels], TINY)), "positive")
    return found | {f"auroc of {name}": area for name, area in each.items() if area is not None}


def of_numbers(predicted: Floats, true: Floats) -> Figures:
    """R², the root mean squared and the mean absolute error.

    Examples:
        >>> import numpy as np
        >>> found = of_numbers(np.array([1.0, 2, 4]), np.array([1.0, 2, 3]))
        >>> {name: round(figure.value, 3) for name, figure in found.items()}
        {'r2': 0.5, 'rmse': 0.577, 'mae': 0.333}
    """
    error, n = (predicted - true) ** 2, len(true)
    away = (true - true.mean()) ** 2
    mse, spread = float(error.mean()), float(away.mean())
    found: Figures = {}
    if spread > 0:
        left = mse / spread
        found["r2"] = Influenced(1 - left, -(error - left * away) / (n * spread), "explained")
    rmse = float(np.sqrt(mse))
    found["rmse"] = Influenced(rmse, (error - mse) / (2 * max(rmse, TINY) * n), "positive")
    return found | {"mae": mean_of(np.abs(predicted - true), "positive")}


def poisson_deviance(mean: Floats, count: Floats) -> Floats:
    """Of each row: `2 (y log(y / m) - y + m)`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(count > 0, count * np.log(count / mean), 0.0)
    return np.asarray(2 * (logs - count + mean))


def of_counts(mean: Floats, count: Floats, exposure: Floats) -> Figures:
    """The mean Poisson deviance, the share of it that the model explains, and counted over expected events.

    Examples:
        >>> import numpy as np
        >>> found = of_counts(np.array([1.0, 2, 3]), np.array([1.0, 2, 3]), np.ones(3))
        >>> found["deviance"].value, found["explained"].value, found["observed_over_expected"].value
        (0.0, 1.0, 1.0)
    """
    n, total, expected = len(count), float(count.sum()), float(mean.sum())
    own = poisson_deviance(mean, count)
    found: Figures = {"deviance": mean_of(own, "positive")}
    null = poisson_deviance(exposure * total / float(exposure.sum()), count)
    if null.mean() > 0:
        left = float(own.mean() / null.mean())
        found["explained"] = Influenced(1 - left, -(own - left * null) / (n * float(null.mean())), "explained")
    if total > 0:
        ratio = total / expected
        found["observed_over_expected"] = Influenced(ratio, (count - ratio * mean) / expected, "positive")
    return found

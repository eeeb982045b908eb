"""Whether probabilities are right: calibration curve, slope and intercept, and the Brier score, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsaddle.errors import BadInput
from fedsaddle.metrics.intervals import LEVEL, Interval, sample, wilson
from fedsaddle.metrics.means import Drawn, shares
from fedsaddle.numerics.quantiles import expit, logit, stdtrit
from fedsaddle.numerics.roc import positives

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = 10
FEWEST = 20  # rows of a bin
ITERATIONS = 50
CLOSEST = 1e-8  # to 0 or 1, of probabilities whose log odds are looked at


@dataclass(frozen=True)
class Bin:
    """Rows with alike probabilities: how many, their mean probability and the share of positives among them."""

    rows: int
    positives: int
    predicted: float
    observed: Interval


@dataclass(frozen=True)
class Reliability:
    """How well probabilities fit; the intervals are those of 95 %. Figures that the rows cannot give are None.

    `expected` is the sum of the probabilities. `intercept` is the log odds by which all of them are too low (the
    calibration in the large), `slope` the factor by which their log odds are too narrow: 0 and 1 are right. `scaled`
    is 1 - Brier score / that of the base rate for all: 0 says nothing, 1 is the best, below 0 is worse than nothing.
    """

    rows: int
    positives: int
    expected: float
    bins: tuple[Bin, ...]
    intercept: Interval | None
    slope: Interval | None
    brier: Interval | None
    scaled: Interval | None


def reliability(probabilities: ArrayLike, labels: ArrayLike, units: Ints | None = None) -> Reliability:
    """Compare probabilities with labels; only units are taken as drawn independently.

    Raises:
        BadInput: for probabilities outside of 0 to 1, or lengths that do not fit.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), positives(labels).astype(np.float64)
    if p.shape != y.shape or p.ndim != 1:
        raise BadInput("probabilities.shape", p.shape, f"give one for each of the {y.size} labels")
    if not ((p >= 0) & (p <= 1)).all():
        raise BadInput("probabilities", "outside of 0 to 1", "give probabilities, such as Platt's method makes")
    both = bool(y.any()) and not bool(y.all())
    odds = logit(np.clip(p, CLOSEST, 1 - CLOSEST))
    intercept = _fitted(np.ones((len(p), 1)), odds, y, units)[0] if both else None
    slope = _fitted(np.stack([odds, np.ones(len(p))], axis=1), np.zeros(len(p)), y, units)[0] if both else None
    brier, scaled = _brier(p, y, units) if len(p) else (None, None)
    return Reliability(
        len(p), int(y.sum()), float(p.sum()), _bins(p, y, units), intercept, slope, brier, scaled if both else None
    )


def _bins(p: Floats, y: Floats, units: Ints | None) -> tuple[Bin, ...]:
    """Bins of about equal counts; equal probabilities stay in one."""
    count = min(BINS, len(p) // FEWEST)
    if count < 1:
        return ()
    ends = np.unique(np.sort(p)[(len(p) * np.arange(1, count)) // count - 1])
    code = np.searchsorted(ends, p)
    sizes = np.bincount(code, minlength=len(ends) + 1)
    new = np.cumsum(sizes >= FEWEST / 2) - 1  # a bin that ties have left small joins the one before
    code = np.unique(np.maximum(new, 0)[code], return_inverse=True)[1]
    number = int(code.max()) + 1
    found = shares(y > 0, np.ones(len(p), dtype=bool), Drawn(code, number, units))
    rows, ups, sums = (np.bincount(code, weights, number) for weights in (None, y, p))
    bins = []
    for k in range(number):
        observed = found.of(k)
        assert observed is not None  # every bin has rows
        bins.append(Bin(int(rows[k]), int(ups[k]), float(sums[k] / rows[k]), observed))
    return tuple(bins)


def _fitted(x: Floats, offset: Floats, y: Floats, units: Ints | None) -> list[Interval | None]:
    """Logistic regression with an offset: each coefficient with its interval, from the variance over units."""
    point, width = np.zeros(x.shape[1]), x.shape[1]
    scale = np.maximum(np.abs(x).max(axis=0), 1e-300)
    x = x / scale
    for _ in range(ITERATIONS):
        p = expit(offset + x @ point)
        hessian = (x * (p * (1 - p))[:, None]).T @ x
        if np.linalg.cond(hessian) > 1e12:  # the classes are apart, or all probabilities are alike
            return [None] * width
        step = np.linalg.solve(hessian, x.T @ (y - p))
        point = point + np.clip(step, -5, 5)
        if np.abs(step).max() < 1e-9:
            break
    else:
        return [None] * width
    drawn = sample(y > 0, np.zeros(len(y), dtype=np.int64), 1, units)
    p = expit(offset + x @ point)
    scores = np.stack([drawn.per_unit(column * (y - p)) for column in x.T], axis=1)
    many = len(scores)
    bread = np.linalg.inv((x * (p * (1 - p))[:, None]).T @ x)
    variance = bread @ (scores.T @ scores) @ bread * many / max(many - width, 1)
    half = _quantile(y, units) * np.sqrt(np.maximum(np.diag(variance), 0))
    return [
        Interval(float(v / s), float((v - h) / s), float((v + h) / s))
        for v, h, s in zip(point, half, scale, strict=True)
    ]


def _brier(p: Floats, y: Floats, units: Ints | None) -> tuple[Interval, Interval]:
    """The Brier score and what it is better by than the base rate for all."""
    loss, share = (p - y) ** 2, float(y.mean())
    value, base = float(loss.mean()), share * (1 - share)
    drawn = sample(y > 0, np.zeros(len(y), dtype=np.int64), 1, units)
    many = len(drawn.group_of_unit)

    def variance(rows: Floats) -> float:
        return float((drawn.per_unit(rows) ** 2).sum()) / len(y) ** 2 * many / max(many - 1, 1)

    t = _quantile(y, units)
    low, high = wilson(*(np.array([v]) for v in (value, variance(loss - value), _scarce(y, units), t)))
    brier = Interval(value, float(low[0]), float(high[0]))
    if not base:
        return brier, Interval(0.0, 0.0, 0.0)
    moves = (loss - value) / base - value * (1 - 2 * share) * (y - share) / base**2
    half = t * np.sqrt(variance(moves))
    scaled = 1 - value / base
    return brier, Interval(scaled, scaled - half, min(scaled + half, 1.0))


def _scarce(y: Floats, units: Ints | None) -> float:
    """Units of the rarer class."""
    drawn = sample(y > 0, np.zeros(len(y), dtype=np.int64), 1, units)
    return max(min(float(drawn.effective(side)[0]) for side in (y, 1 - y)), 1.0)


def _quantile(y: Floats, units: Ints | None, level: float = LEVEL) -> float:
    return float(stdtrit(max(_scarce(y, units) - 1, 1), (1 + level) / 2))

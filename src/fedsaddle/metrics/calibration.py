"""From scores to decisions: probabilities, thresholds and net benefit, and whether the probabilities are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsaddle.arguments import number
from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.files import Json
from fedsaddle.metrics.intervals import (
    LEVEL,
    GroupedRows,
    Interval,
    Intervals,
    expit,
    logit,
    sample,
    share,
    shares,
    stdtrit,
    wilson,
)
from fedsaddle.numerics.roc import positives

ITERATIONS = 100
FEW_POSITIVES = 20  # on fewer, the threshold with the best F1 is luck
SENSITIVITY = 0.8  # of the default threshold then
FEW_ALARMS = 10  # fewer have no predictive value
SPREAD = 0.5  # prior standard deviation of slope and shift, by benchmarks/calibration.py


@dataclass(frozen=True)
class Platt:
    """`probability = 1 / (1 + exp(-(slope score + intercept)))`, with slope >= 0: the order of the rows stays.

    Examples:
        >>> Platt(1.0, 0.0).probability([0.0])
        array([0.5])
    """

    slope: float
    intercept: float

    @classmethod
    def fit(cls, scores: ArrayLike, labels: ArrayLike, *, log_odds: bool = False) -> Platt:
        """The two numbers with the least log loss on these rows; targets are Platt's, drawn in from 0 and 1.

        Scores that are `log_odds` already, as those of a model that minimised a log loss, need a correction only: the
        line is shrunk towards slope 1 and intercept 0 by a normal prior, which matters where positives are few.
        Without rows of both classes: the scores as log odds.
        """
        s, positive = np.asarray(scores, dtype=np.float64), positives(labels)
        if s.shape != positive.shape or s.ndim != 1:
            raise BadInput("scores.shape", s.shape, f"give one score for each of the {positive.size} labels")
        if not np.isfinite(s).all():
            raise BadInput("scores", "not finite", "the model diverged; try a smaller step")
        up, down = int(positive.sum()), int((~positive).sum())
        if not up or not down:
            return cls(1.0, 0.0)
        target = np.where(positive, (up + 1) / (up + 2), 1 / (down + 2))
        centre, scale = float(s.mean()), float(s.std())
        alike = scale <= 1e-12 * max(abs(centre), 1e-300)  # but for rounding
        prior = _Prior(scale, centre, 1 / (SPREAD * scale) ** 2, 1 / SPREAD**2) if log_odds and not alike else None
        a, b = (0.0, 0.0) if alike else _newton((s - centre) / scale, target, prior)
        if a <= 0:  # uninformative or reversed scores: the base rate for all
            share = float(target.mean())
            return cls(0.0, float(np.log(share / (1 - share))))
        return cls(a / scale, b - a * centre / scale)

    def probability(self, scores: ArrayLike) -> Floats:
        """The probability of the positive class."""
        odds = self.slope * np.asarray(scores, dtype=np.float64) + self.intercept
        return np.asarray(1 / (1 + np.exp(-np.clip(odds, -500, 500))))

    def to_dict(self) -> dict[str, float]:
        """Plain JSON."""
        return {"slope": self.slope, "intercept": self.intercept}


class _Prior(NamedTuple):
    """Independent normal priors of `a` and `b`: their means and precisions."""

    a: float
    b: float
    precision_a: float
    precision_b: float


def _newton(z: Floats, target: Floats, prior: _Prior | None = None) -> tuple[float, float]:
    """Minimise the log loss of `a z + b` against soft targets, with halved steps where a full one is too long."""
    middle = np.zeros(2) if prior is None else np.array(prior[:2])
    precision = np.zeros(2) if prior is None else np.array(prior[2:]) / len(z)

    def loss(at: Floats) -> float:
        odds = at[0] * z + at[1]
        fit = float((np.logaddexp(0, odds) - target * odds).mean())
        return fit if prior is None else fit + float(precision @ (at - middle) ** 2) / 2

    x = np.stack([z, np.ones_like(z)], axis=1)
    point, value = np.array([0.0, 0.0]), np.inf
    for _ in range(ITERATIONS):
        p = 1 / (1 + np.exp(-np.clip(x @ point, -500, 500)))
        gradient = x.T @ (p - target) / len(z) + precision * (point - middle)
        hessian = (x * (p * (1 - p))[:, None]).T @ x / len(z) + 1e-10 * np.eye(2) + np.diag(precision)
        step, value, size = np.linalg.solve(hessian, gradient), loss(point), 1.0
        while loss(point - size * step) > value and size > 1e-8:
            size /= 2
        point = point - size * step
        if np.abs(gradient).max() < 1e-10 or size <= 1e-8:
            break
    return float(point[0]), float(point[1])


@dataclass(frozen=True)
class Threshold:
    """Rows with at least this probability are called positive; and why this number."""

    probability: float
    reason: str

    @classmethod
    def default(cls, probabilities: ArrayLike, labels: ArrayLike, units: ArrayLike | None = None) -> Threshold:
        """The threshold with the best F1 or, with fewer than 20 positives (or patients with one), for 80 % of them."""
        positive = np.asarray(labels) > 0
        count = int(positive.sum()) if units is None else len(np.unique(np.asarray(units)[positive]))
        if not 0 < count < FEW_POSITIVES:
            return cls.for_best_f1(probabilities, labels)
        chosen = cls.for_sensitivity(probabilities, labels, SENSITIVITY)
        return cls(chosen.probability, f"{chosen.reason}, as {count} of them are too few to choose by the best F1")

    @classmethod
    def for_sensitivity(cls, probabilities: ArrayLike, labels: ArrayLike, sensitivity: float) -> Threshold:
        """The highest threshold that finds that share of the positives."""
        number("sensitivity", sensitivity, above=0, most=1)
        p = np.sort(np.asarray(probabilities)[np.asarray(labels) > 0])[::-1]
        if not len(p):
            raise BadInput("sensitivity", sensitivity, "there is no positive among the validation rows")
        cut = p[min(len(p) - 1, int(np.ceil(sensitivity * len(p) - 1e-9)) - 1)]
        return cls(float(cut), f"finds {100 * sensitivity:g}% of the positives among the validation rows")

    @classmethod
    def for_best_f1(cls, probabilities: ArrayLike, labels: ArrayLike) -> Threshold:
        """The threshold with the highest F1 on these rows."""
        p, positive = np.asarray(probabilities, dtype=np.float64), np.asarray(labels) > 0
        if not positive.any():
            return cls(0.5, "there is no positive among the validation rows")
        order = np.argsort(-p, kind="stable")
        hits, cuts = np.cumsum(positive[order]), p[order]
        last = np.append(np.flatnonzero(np.diff(cuts)), len(cuts) - 1)
        f1 = 2 * hits[last] / (last + 1 + positive.sum())
        return cls(float(cuts[last[int(np.argmax(f1))]]), "has the best F1 on the validation rows")

    def figures(self, probabilities: ArrayLike, labels: ArrayLike) -> dict[str, float | None]:
        """What calling rows positive by this threshold means on some rows; None where there is nothing to count.

        A predictive value is also None where it would be that of fewer than ten rows (`FEW_ALARMS`).
        """
        called, positive = np.asarray(probabilities) >= self.probability, np.asarray(labels) > 0
        tp, fp = int((called & positive).sum()), int((called & ~positive).sum())
        fn, tn = int((~called & positive).sum()), int((~called & ~positive).sum())
        return {
            "sensitivity": _share(tp, tp + fn),
            "specificity": _share(tn, tn + fp),
            "positive_predictive_value": _share(tp, tp + fp, FEW_ALARMS),
            "negative_predictive_value": _share(tn, tn + fn, FEW_ALARMS),
            "f1": _share(2 * tp, 2 * tp + fp + fn),
            "alarms_per_100": _share(100 * (tp + fp), len(called)),
        }


def calibration_figures(probabilities: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Brier score and log loss."""
    p, y = np.asarray(probabilities, dtype=np.float64), positives(labels).astype(np.float64)
    inside = np.clip(p, 1e-12, 1 - 1e-12)
    loss = -(y * np.log(inside) + (1 - y) * np.log1p(-inside))
    return {"brier_score": float(np.square(p - y).mean()), "log_loss": float(loss.mean())}


def to_dict(platt: Platt, threshold: Threshold) -> dict[str, Json]:
    """Both, for JSON."""
    return {**platt.to_dict(), "threshold": threshold.probability, "threshold_reason": threshold.reason}


def _share(part: int, whole: int, least: int = 1) -> float | None:
    return part / whole if whole >= least else None


ROUND = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class AtThreshold:
    """Figures of calling rows positive that have at least this probability; None where there is nothing to count.

    A predictive value is also None where it would be that of fewer than ten rows (`FEW_ALARMS`).
    """

    threshold: float
    true_positives: int
    false_positives: int
    sensitivity: Interval | None
    specificity: Interval | None
    positive_predictive_value: Interval | None
    negative_predictive_value: Interval | None
    alarms: Interval | None  # as a share of all rows

    @property
    def raised(self) -> int:
        """The number of alarms."""
        return self.true_positives + self.false_positives


def at_threshold(
    probabilities: ArrayLike, labels: ArrayLike, threshold: float, units: Ints | None = None
) -> AtThreshold:
    """The figures of one threshold, with 95 % intervals."""
    called, positive = np.asarray(probabilities) >= threshold, np.asarray(labels) > 0
    every = np.ones(len(called), dtype=bool)
    return AtThreshold(
        float(threshold),
        int((called & positive).sum()),
        int((called & ~positive).sum()),
        share(called, positive, units),
        share(~called, ~positive, units),
        share(positive, called, units) if called.sum() >= FEW_ALARMS else None,
        share(~positive, ~called, units) if (~called).sum() >= FEW_ALARMS else None,
        share(called, every, units),
    )


@dataclass(frozen=True, eq=False)
class DecisionCurve:
    """The net benefit over thresholds, as shares of all rows, with pointwise 95 % bounds.

    `over_all` and `over_other` are differences to calling everybody positive, and to another model.
    """

    thresholds: Floats
    model: Intervals
    everybody: Floats
    over_all: Intervals
    other: Floats | None = None
    over_other: Intervals | None = None

    @property
    def over_both(self) -> NDArray[np.bool_]:
        """Where the bounds are above calling everybody, and above calling nobody."""
        return (self.over_all.low > 0) & (self.model.low > 0)


def decision_curve(
    probabilities: ArrayLike,
    labels: ArrayLike,
    thresholds: Sequence[float] | Floats,
    units: Ints | None = None,
    other: ArrayLike | None = None,
) -> DecisionCurve:
    """The net benefit of a model at each threshold, and of another one on the same rows."""
    p, positive, ts = np.asarray(probabilities), np.asarray(labels) > 0, np.asarray(thresholds, dtype=np.float64)
    drawn = GroupedRows.one_group(len(p), units).sample
    q = None if other is None else np.asarray(other)
    base = float(positive.mean())
    curves: dict[str, list[tuple[float, float, float]]] = {"model": [], "all": [], "other": []}
    lines: dict[str, list[float]] = {"everybody": [], "other": []}
    many = len(drawn.group_of_unit)
    own = max(float(drawn.effective(np.ones(len(p)))[0]), 1.0)  # units, fewer if some have many rows
    quantile, scale = float(stdtrit(max(own - 1, 1), (1 + LEVEL) / 2)), own / max(own - 1, 0.5)
    for t in ts:
        gain = np.where(positive, 1.0, -t / (1 - t))  # of calling a row positive
        floor = (base + (1 - base) * (t / (1 - t)) ** 2) / many**2  # as if one unit more had been called
        ours = np.where(p >= t, gain, 0.0)
        lines["everybody"].append(float(gain.mean()))
        rows = {"model": ours, "all": ours - gain}
        if q is not None:
            theirs = np.where(q >= t, gain, 0.0)
            lines["other"].append(float(theirs.mean()))
            rows["other"] = ours - theirs
        for key, values in rows.items():
            value = float(values.mean())
            squares = float((drawn.per_unit(values - value) ** 2).sum()) / len(p) ** 2
            half = quantile * np.sqrt(scale * squares + floor)
            curves[key].append((value, value - half, value + half))

    def bounds(key: str) -> Intervals:
        return Intervals(*np.array(curves[key]).reshape(-1, 3).T)

    return DecisionCurve(
        ts,
        bounds("model"),
        np.array(lines["everybody"]),
        bounds("all"),
        None if q is None else np.array(lines["other"]),
        None if q is None else bounds("other"),
    )


def thresholds_to_show(probabilities: ArrayLike, labels: ArrayLike, chosen: float | None = None) -> Floats:
    """Thresholds in steps of a half or one per cent, as far as anybody would be called positive by them."""
    p, positive = np.asarray(probabilities), np.asarray(labels) > 0
    ends = [2 * float(positive.mean()), float(np.quantile(p, 0.98)), 1.25 * (chosen or 0.0)]
    end = min(0.05 * np.ceil(max(*ends, 0.1) / 0.05), 0.95)
    step = 0.0025 if end <= 0.25 else 0.005 if end <= 0.5 else 0.01
    return np.arange(1, round(end / step) + 1) * step


BINS = 10
FEWEST = 20  # rows of a bin
RECALIBRATION_ITERATIONS = 50
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
    is 1 - Brier score / that of the base rate for all: 1 is the best, 0 is no better than the base rate.
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
    observed_shares = shares(y > 0, np.ones(len(p), dtype=bool), GroupedRows(code, number, units))
    rows, ups, sums = (np.bincount(code, weights, number) for weights in (None, y, p))
    bins = []
    for k in range(number):
        observed = observed_shares.of(k)
        assert observed is not None  # every bin has rows
        bins.append(Bin(int(rows[k]), int(ups[k]), float(sums[k] / rows[k]), observed))
    return tuple(bins)


def _fitted(x: Floats, offset: Floats, y: Floats, units: Ints | None) -> list[Interval | None]:
    """Logistic regression with an offset: each coefficient with its interval, from the variance over units."""
    point, width = np.zeros(x.shape[1]), x.shape[1]
    scale = np.maximum(np.abs(x).max(axis=0), 1e-300)
    x = x / scale
    for _ in range(RECALIBRATION_ITERATIONS):
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

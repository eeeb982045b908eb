"""From scores to decisions: probabilities by Platt's method, and thresholds, both from validation rows.

Sites can agree on them by sums: Platt's method needs gradients in two numbers, a threshold needs counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsaddle.arguments import number
from fedsaddle.errors import BadInput
from fedsaddle.numerics.roc import positives

Floats = NDArray[np.float64]
ITERATIONS = 100
FEW_POSITIVES = 20  # on fewer, the threshold with the best F1 is luck
SENSITIVITY = 0.8  # of the default threshold then
FEW_ALARMS = 10  # fewer have no predictive value
SPREAD = 0.5  # prior standard deviation of slope and shift, by benchmarks/calibration.py


@dataclass(frozen=True)
class Platt:
    """`probability = 1 / (1 + exp(-(slope score + intercept)))`, with slope >= 0: the order of the rows stays.

    Example:
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
        if a <= 0:  # scores that say nothing, or the contrary: the base rate for all
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
        found = cls.for_sensitivity(probabilities, labels, SENSITIVITY)
        return cls(found.probability, f"{found.reason}, as {count} of them are too few to choose by the best F1")

    @classmethod
    def for_sensitivity(cls, probabilities: ArrayLike, labels: ArrayLike, sensitivity: float) -> Threshold:
        """The highest threshold that finds that share of the positives."""
        number("sensitivity", sensitivity, above=0, most=1)
        p = np.sort(np.asarray(probabilities)[np.asarray(labels) > 0])[::-1]
        if not len(p):
            raise BadInput("sensitivity", sensitivity, "there is no positive among the validation rows")
        found = p[min(len(p) - 1, int(np.ceil(sensitivity * len(p) - 1e-9)) - 1)]
        return cls(float(found), f"finds {100 * sensitivity:g}% of the positives among the validation rows")

    @classmethod
    def for_best_f1(cls, probabilities: ArrayLike, labels: ArrayLike) -> Threshold:
        """The threshold with the highest F1 on these rows."""
        p, positive = np.asarray(probabilities, dtype=np.float64), np.asarray(labels) > 0
        if not positive.any():
            return cls(0.5, "there is no positive among the validation rows")
        order = np.argsort(-p, kind="stable")
        found, cuts = np.cumsum(positive[order]), p[order]
        last = np.append(np.flatnonzero(np.diff(cuts)), len(cuts) - 1)
        f1 = 2 * found[last] / (last + 1 + positive.sum())
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


def to_dict(platt: Platt, threshold: Threshold) -> dict[str, Any]:
    """Both, for JSON."""
    return {**platt.to_dict(), "threshold": threshold.probability, "threshold_reason": threshold.reason}


def _share(part: int, whole: int, least: int = 1) -> float | None:
    return part / whole if whole >= least else None

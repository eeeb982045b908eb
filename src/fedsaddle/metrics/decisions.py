"""What deciding by a probability means: figures of thresholds, and the net benefit (decision curves).

The net benefit at a threshold t counts a found positive as 1 and a false alarm as t / (1 - t): a threshold of 10 % says
that nine false alarms are worth one positive that is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsaddle.metrics.calibration import FEW_ALARMS
from fedsaddle.metrics.intervals import LEVEL, Bounds, Interval
from fedsaddle.metrics.means import Drawn, share
from fedsaddle.numerics.quantiles import stdtrit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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
    model: Bounds
    everybody: Floats
    over_all: Bounds
    other: Floats | None = None
    over_other: Bounds | None = None

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
    drawn = Drawn.together(len(p), units).sample
    q = None if other is None else np.asarray(other)
    base = float(positive.mean())
    found: dict[str, list[tuple[float, float, float]]] = {"model": [], "all": [], "other": []}
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
            found[key].append((value, value - half, value + half))

    def bounds(key: str) -> Bounds:
        return Bounds(*np.array(found[key]).reshape(-1, 3).T)

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

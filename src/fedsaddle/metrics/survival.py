"""Times to an event: concordance, Kaplan-Meier curves, a baseline from sums over sites, calibration at a horizon."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from fedsaddle.array_types import Floats, Ints
from fedsaddle.metrics.intervals import LEVEL
from fedsaddle.metrics.outcomes import Influenced

NORMAL = NormalDist().inv_cdf((1 + LEVEL) / 2)
BLOCK = 1 << 22  # pairs at a time


def concordance(risk: Floats, time: Floats, event: Floats, stratum: Ints | None = None) -> Influenced | None:
    """Harrell's C: of the pairs whose order in time is known, the share in which the earlier event had the higher risk.

    A pair is known if one of the two had the event before the other's time, or at the time at which the other was
    censored. Equal risks count one half. None without such a pair.

    Args:
        risk: Higher for earlier events, `(n,)`.
        time: Of the event or of censoring.
        event: 1 for an event, 0 for a censored row.
        stratum: Only pairs within one count, such as a site; None: all pairs.

    Examples:
        >>> import numpy as np
        >>> found = concordance(np.array([3.0, 1, 2]), np.array([1.0, 2, 3]), np.array([1.0, 1, 0]))
        >>> round(found.value, 4)
        0.6667
    """
    n = len(risk)
    good, known = np.zeros(n), np.zeros(n)
    died = np.flatnonzero(event > 0)
    size = max(1, BLOCK // max(n, 1))
    for first in range(0, len(died), size):
        i = died[first : first + size, None]
        later = (time[None] > time[i]) | ((time[None] == time[i]) & (event[None] <= 0))
        if stratum is not None:
            later &= stratum[None] == stratum[i]
        right = later * (0.5 + 0.5 * np.sign(risk[i] - risk[None]))
        good += right.sum(0)
        known += later.sum(0)
        good[i[:, 0]] += right.sum(1)
        known[i[:, 0]] += later.sum(1)
    pairs = known.sum()
    if not pairs:
        return None
    value = float(good.sum() / pairs)
    return Influenced(value, 2 * (good - value * known) / pairs, "share")


@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """Kaplan and Meier's estimate, a step down after each time with an event."""

    time: Floats  # of events, ascending
    survival: Floats
    low: Floats  # 95 % limits, by the logarithm of the cumulative hazard
    high: Floats
    at_risk: Ints  # just before each time

    def at(self, t: float) -> float:
        """The share that has had no event by a time."""
        k = int(np.searchsorted(self.time, t, side="right"))
        return 1.0 if k == 0 else float(self.survival[k - 1])

    def until(self, least: int) -> SurvivalCurve:
        """The part with at least so many rows at risk."""
        n = int((self.at_risk >= least).sum())
        return SurvivalCurve(self.time[:n], self.survival[:n], self.low[:n], self.high[:n], self.at_risk[:n])


def kaplan_meier(time: Floats, event: Floats) -> SurvivalCurve:
    """Kaplan and Meier's curve of some rows, with Greenwood's variance.

    Examples:
        >>> import numpy as np
        >>> kaplan_meier(np.array([1.0, 2, 2, 3]), np.array([1.0, 1, 0, 0])).survival.tolist()
        [0.75, 0.5]
    """
    times, deaths = np.unique(time[event > 0], return_counts=True)
    at_risk = len(time) - np.searchsorted(np.sort(time), times, side="left")
    survival = np.asarray(np.cumprod(1 - deaths / at_risk), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.cumsum(deaths / (at_risk * (at_risk - deaths)))
        half = NORMAL * np.sqrt(spread) / np.abs(np.log(survival))
        low, high = (np.where(survival > 0, np.power(survival, np.exp(sign * half)), 0.0) for sign in (1, -1))
    high = np.where(survival > 0, high, 1.0)
    return SurvivalCurve(times, survival, np.nan_to_num(low), np.asarray(high, dtype=np.float64), at_risk)


@dataclass(frozen=True)
class BaselineHazard:
    """The hazard of a row with risk 0: constant between agreed times.

    It needs sums alone: of each interval the events, and the time that rows spent in it, weighed by their hazard
    ratios. It is the average of the sites.

    Args:
        times: Where the intervals begin, ascending from 0; the last one has no end.
        rates: Of each interval.
    """

    times: tuple[float, ...]
    rates: tuple[float, ...]

    @classmethod
    def fit(cls, risk: Floats, time: Floats, event: Floats, intervals: int = 20) -> BaselineHazard:
        """From the training rows of all sites; the agreed times are quantiles of those of events.

        Examples:
            >>> import numpy as np
            >>> BaselineHazard.fit(np.zeros(4), np.array([1.0, 2, 3, 4]), np.ones(4), intervals=1).rates
            (0.4,)
        """
        inner = np.quantile(time[event > 0], np.arange(1, intervals) / intervals)
        begin = np.unique(np.concatenate([[0.0], inner]))
        place = np.clip(np.searchsorted(begin, time, side="left") - 1, 0, len(begin) - 1)
        deaths = np.bincount(place, weights=event, minlength=len(begin))
        exposed = np.exp(risk) @ _spent(begin, time)
        rates = np.divide(deaths, exposed, out=np.zeros_like(exposed), where=exposed > 0)
        return cls(tuple(begin.tolist()), tuple(rates.tolist()))

    def cumulative(self, time: Floats) -> Floats:
        """The cumulative hazard by some times."""
        return np.asarray(_spent(np.asarray(self.times), np.asarray(time, dtype=np.float64)) @ np.asarray(self.rates))

    def survival(self, risk: Floats, horizon: float) -> Floats:
        """The probability of no event by the horizon."""
        return np.asarray(np.exp(-self.cumulative(np.array([horizon]))[0] * np.exp(risk)))


def _spent(begin: Floats, time: Floats) -> Floats:
    """The time of each row in each interval, `(n, L)`."""
    lengths = np.append(np.diff(begin), np.inf)
    return np.asarray(np.clip(time[:, None] - begin[None], 0.0, lengths[None]))

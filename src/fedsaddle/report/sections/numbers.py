"""What sections share: intervals of shares, ranges of axes, points thinned out, and what damaged files raise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from fedsaddle.errors import FedSaddleError
from fedsaddle.metrics.intervals import Interval
from fedsaddle.report.page.charts import ChartAxis
from fedsaddle.report.page.parts import Section
from fedsaddle.report.stored_run import StoredRun

MOST_POINTS = 240  # of a line
MOST_LINES = 20  # of a table behind a line
Maker = Callable[[StoredRun], Section | None]
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, FedSaddleError)
SHARES = ("accuracy", "auroc", "precision")  # a measure with such a word in its name lies between 0 and 1


def wilson(correct: float, rows: int) -> Interval:
    """A share with Wilson's 95 % interval, for rows that are drawn independently.

    Examples:
        >>> wilson(9, 10)
        Interval(value=0.9, low=0.5958..., high=0.9821...)
    """
    z, share = 1.959963984540054, correct / rows
    middle = share + z * z / (2 * rows)
    half = z * math.sqrt(share * (1 - share) / rows + z * z / (4 * rows * rows))
    scale = 1 + z * z / rows
    return Interval(share, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale))


def is_share(measure: str) -> bool:
    """Whether a measure lies between 0 and 1, and more is better."""
    return any(word in measure for word in SHARES)


def axis(
    label: str, values: Iterable[Any], *, share: bool = False, log: bool = False, percent: bool | None = None
) -> ChartAxis:
    """An axis that holds all values with a little room; from 0 to 1 at most for shares."""
    if percent is None:
        percent = share and not any(word in label.lower() for word in ("auroc", "precision"))
    there = [float(v) for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(there), max(there)) if there else (0.0, 1.0)
    if log:
        return ChartAxis(label, low / 1.5, high * 1.5, log=True)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low - room, high + room
    if share:
        low, high = max(0.0, low), min(1.0, high)
        return ChartAxis(label, low, high, percent=percent)
    return ChartAxis(label, max(low, 0.0) if low > -2 * room and min(there, default=0.0) >= 0 else low, high)


def picked(length: int, most: int) -> list[int]:
    """At most that many places out of a length, evenly, with the first and the last."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int)).tolist() if length else []


def thinned(values: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """The values at some places."""
    return [values[k] for k in places]

"""Numbers as text, intervals of shares, ranges of axes, and points thinned out: what sections share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from fedsaddle.errors import FedSaddleError
from fedsaddle.metrics.intervals import Interval
from fedsaddle.report.page.charts import Axis
from fedsaddle.report.page.parts import Section
from fedsaddle.report.stored_run import StoredRun

MOST_POINTS = 240  # of a line
MOST_LINES = 20  # of a table behind a line
Maker = Callable[[StoredRun], Section | None]
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, FedSaddleError)
SHARES = ("accuracy", "auroc", "precision")  # a measure with such a word in its name lies between 0 and 1


def guarded(make: Maker) -> Maker:
    """The same section, or None where the files hold something else than a run writes."""

    @wraps(make)
    def careful(run: StoredRun) -> Section | None:
        try:
            return make(run)
        except DAMAGED:
            return None

    return careful


def short(value: float | None, digits: int = 3) -> str:
    """A number as text: decimals where it is near 1, else significant digits; a dash for none.

    Example:
        >>> short(0.51234), short(0.00001234), short(None)
        ('0.512', '1.23e-05', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.{digits}f}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.{digits}g}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as per cent.

    Example:
        >>> percent(0.8123)
        '81.2 %'
    """
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f} %"


def count(number: int, one: str, many: str = "") -> str:
    """A number of things.

    Example:
        >>> count(1, "client"), count(2000, "client")
        ('1 client', '2,000 clients')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def amount(size: float) -> str:
    """A number of bytes.

    Example:
        >>> amount(1_234_567), amount(900)
        ('1.2 MB', '900 bytes')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} bytes"


def wilson(correct: float, rows: int) -> Interval:
    """A share with Wilson's 95 % interval, for rows that are drawn independently.

    Example:
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
) -> Axis:
    """An axis that holds all values with a little room; from 0 to 1 at most for shares."""
    if percent is None:
        percent = share and not any(word in label.lower() for word in ("auroc", "precision"))
    there = [float(v) for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(there), max(there)) if there else (0.0, 1.0)
    if log:
        return Axis(label, low / 1.5, high * 1.5, log=True)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low - room, high + room
    if share:
        low, high = max(0.0, low), min(1.0, high)
        return Axis(label, low, high, percent=percent)
    return Axis(label, max(low, 0.0) if low > -2 * room and min(there, default=0.0) >= 0 else low, high)


def picked(length: int, most: int) -> list[int]:
    """At most that many places out of a length, evenly, with the first and the last."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int)).tolist() if length else []


def thinned(values: Sequence[Any], places: Sequence[int]) -> list[Any]:
    """The values at some places."""
    return [values[k] for k in places]


def titled(text: str) -> str:
    """The text with a capital in front.

    Example:
        >>> titled("duality gap"), titled("AUROC")
        ('Duality gap', 'AUROC')
    """
    return text[:1].upper() + text[1:]


def cased(name: str) -> str:
    """The name of a measure in words.

    Example:
        >>> cased("worst_site_auroc")
        'worst site AUROC'
    """
    words = {"auroc": "AUROC", "phi": "Φ", "30": "to FPR 0.3", "50": "to FPR 0.5"}
    return " ".join(words.get(word, word) for word in name.split("_"))

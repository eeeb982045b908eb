"""Numbers as text: decimals, percentages, intervals, counts, times and names of measures."""

from __future__ import annotations

import math

from fedsaddle.documents.summary import PartName
from fedsaddle.metrics.intervals import Interval

MINUS = "−"
NONE = "–"
LEVEL = "95 % interval"
SHARES = ("accuracy", "auroc", "precision")  # a measure with such a word in its name lies between 0 and 1
PARTS: dict[PartName, str] = {"train": "training rows", "validation": "validation rows", "test": "test rows"}


def decimal(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """A number with a fixed number of decimals and a minus sign.

    Args:
        value: The number.
        digits: Number of decimals.
        sign: Whether positive numbers have a plus sign.

    Examples:
        >>> decimal(-0.126), decimal(0.5, sign=True), decimal(-0.001)
        ('−0.13', '+0.50', '0.00')
    """
    text = f"{abs(value):.{digits}f}"
    if not float(text):
        return text
    return f"{MINUS if value < 0 else '+' if sign else ''}{text}"


def percent(value: float | None, digits: int | None = None) -> str:
    """A share as a percentage; small ones have one decimal. A dash for none.

    Args:
        value: Between 0 and 1; None or not finite: no share.
        digits: Number of decimals; None (default): by the size.

    Examples:
        >>> percent(0.333), percent(0.012), percent(1.0)
        ('33 %', '1.2 %', '100 %')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if digits is None:
        digits = 0 if abs(value) >= 0.0995 or value == 0 else 1
    return f"{decimal(100 * value, digits)} %"


def bounds(low: float, high: float, digits: int = 3) -> str:
    """Bounds of a figure, rounded outwards so that they still contain the exact figure.

    Args:
        low: Lower bound.
        high: Upper bound.
        digits: Number of decimals.

    Examples:
        >>> bounds(0.42349, 0.42361), bounds(0.0, 1.0)
        ('0.423 to 0.424', '0.000 to 1.000')
    """
    scale = 10**digits
    down, up = math.floor(low * scale + 1e-9) / scale, math.ceil(high * scale - 1e-9) / scale
    return f"{decimal(down, digits)} to {decimal(up, digits)}"


def plus_minus(value: float, error: float) -> str:
    """A figure and its largest error, which includes the rounding of the figure.

    Args:
        value: The figure.
        error: Its largest error before rounding.

    Examples:
        >>> plus_minus(0.99438, 0.000311)
        '0.9944 ± 0.00034'
    """
    shown = f"{value:.4g}"
    most = error + abs(float(shown) - value)
    if most <= 0:
        return f"{shown} ± 0"
    scale = 10.0 ** (math.floor(math.log10(most)) - 1)
    return f"{shown} ± {math.ceil(most / scale - 1e-9) * scale:.2g}"


def with_interval(figure: Interval | None, digits: int = 2, *, sign: bool = False) -> str:
    """A figure and its interval.

    Args:
        figure: With its ends; None: no figure.
        digits: Number of decimals.
        sign: Whether positive numbers have a plus sign.

    Examples:
        >>> with_interval(Interval(0.82, 0.64, 0.92))
        '0.82 (95 % interval 0.64 to 0.92)'
    """
    if figure is None:
        return "no figure"
    low, high = (decimal(v, digits, sign=sign) for v in (figure.low, figure.high))
    return f"{decimal(figure.value, digits, sign=sign)} ({LEVEL} {low} to {high})"


def brief(figure: Interval | None, digits: int = 2, *, sign: bool = False) -> str:
    """A figure and its interval for the cell of a table; empty without one.

    Args:
        figure: With its ends.
        digits: Number of decimals.
        sign: Whether positive numbers have a plus sign.
    """
    if figure is None:
        return ""
    low, high = (decimal(v, digits, sign=sign) for v in (figure.low, figure.high))
    return f"{decimal(figure.value, digits, sign=sign)} ({low} to {high})"


def brief_percent(figure: Interval | None) -> str:
    """A share and its interval in per cent for the cell of a table; empty without one.

    Args:
        figure: With its ends.
    """
    if figure is None:
        return ""
    value, low, high = (percent(v).removesuffix(" %") for v in (figure.value, figure.low, figure.high))
    return f"{value} ({low} to {high})"


def of_100(value: float) -> str:
    """A share as a count among 100; small ones with one decimal.

    Args:
        value: Between 0 and 1.

    Examples:
        >>> of_100(0.82), of_100(0.004)
        ('82', '0.4')
    """
    return percent(value).removesuffix(" %")


def many(count: int, one: str, more: str = "") -> str:
    """A count and its noun.

    Args:
        count: The number.
        one: The singular.
        more: The plural, if it is not the singular with an s.

    Examples:
        >>> many(1, "site"), many(1200, "row")
        ('1 site', '1,200 rows')
    """
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def short(value: float | None, digits: int = 3) -> str:
    """A number as text: decimals where it is near 1, else significant digits; a dash for none.

    Args:
        value: The number.
        digits: Number of decimals or of significant digits.

    Examples:
        >>> short(0.51234), short(0.00001234), short(None)
        ('0.512', '1.23e-05', '–')
    """
    if value is None or not math.isfinite(value):
        return NONE
    if value == 0 or 0.001 <= abs(value) < 1000:
        return f"{value:.{digits}f}"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.{digits}g}"


def amount(size: float) -> str:
    """A number of bytes with its unit.

    Args:
        size: Number of bytes.

    Examples:
        >>> amount(1_234_567), amount(900)
        ('1.2 MB', '900 bytes')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size:.0f} bytes"


def duration(seconds: float) -> str:
    """A time with its unit.

    Args:
        seconds: The time.

    Examples:
        >>> duration(45), duration(600), duration(9000)
        ('45 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def titled(text: str) -> str:
    """The text with a capital first letter.

    Args:
        text: Any text.

    Examples:
        >>> titled("duality gap"), titled("AUROC")
        ('Duality gap', 'AUROC')
    """
    return text[:1].upper() + text[1:]


def cased(name: str) -> str:
    """The name of a measure in words.

    Args:
        name: A key of the summary.

    Examples:
        >>> cased("worst_site_auroc")
        'worst site AUROC'
    """
    words = {"auroc": "AUROC", "phi": "Φ", "30": "to FPR 0.3", "50": "to FPR 0.5"}
    return " ".join(words.get(word, word) for word in name.split("_"))


def is_share(measure: str) -> bool:
    """Whether a measure lies between 0 and 1, and higher is better.

    Args:
        measure: A key of the summary.
    """
    return any(word in measure for word in SHARES)

"""Figures in words: numbers with their intervals, as a reader without a statistician can take them in."""

from __future__ import annotations

from fedsaddle.metrics.intervals import Interval

MINUS = "−"
LEVEL = "95 % interval"


def decimal(value: float, digits: int = 2, *, sign: bool = False) -> str:
    """A number with so many digits behind its point, and a true minus sign.

    >>> decimal(-0.126), decimal(0.5, sign=True), decimal(-0.001)
    ('−0.13', '+0.50', '0.00')
    """
    text = f"{abs(value):.{digits}f}"
    if not float(text):
        return text
    return f"{MINUS if value < 0 else '+' if sign else ''}{text}"


def percent(value: float, digits: int | None = None) -> str:
    """A share as a percentage; small ones have a digit behind the point.

    >>> percent(0.333), percent(0.012), percent(1.0)
    ('33 %', '1.2 %', '100 %')
    """
    if digits is None:
        digits = 0 if abs(value) >= 0.0995 or value == 0 else 1
    return f"{decimal(100 * value, digits)} %"


def with_interval(figure: Interval | None, digits: int = 2, *, sign: bool = False) -> str:
    """A figure and its interval.

    >>> with_interval(Interval(0.82, 0.64, 0.92))
    '0.82 (95 % interval 0.64 to 0.92)'
    """
    if figure is None:
        return "no figure"
    low, high = (decimal(v, digits, sign=sign) for v in (figure.low, figure.high))
    return f"{decimal(figure.value, digits, sign=sign)} ({LEVEL} {low} to {high})"


def percent_with_interval(figure: Interval | None) -> str:
    """A share and its interval, in per cent."""
    if figure is None:
        return "no figure"
    return f"{percent(figure.value)} ({LEVEL} {percent(figure.low)} to {percent(figure.high)})"


def brief(figure: Interval | None, digits: int = 2, *, sign: bool = False) -> str:
    """A figure and its interval for the cell of a table; empty where there is none."""
    if figure is None:
        return ""
    low, high = (decimal(v, digits, sign=sign) for v in (figure.low, figure.high))
    return f"{decimal(figure.value, digits, sign=sign)} ({low} to {high})"


def brief_percent(figure: Interval | None) -> str:
    """A share and its interval in per cent for the cell of a table; empty where there is none."""
    if figure is None:
        return ""
    value, low, high = (percent(v).removesuffix(" %") for v in (figure.value, figure.low, figure.high))
    return f"{value} ({low} to {high})"


def of_100(value: float) -> str:
    """A share as a count among 100; small ones with a digit behind the point.

    >>> of_100(0.82), of_100(0.004)
    ('82', '0.4')
    """
    return percent(value).removesuffix(" %")


def many(count: int, one: str, more: str = "") -> str:
    """A count and its noun.

    >>> many(1, "site"), many(1200, "row")
    ('1 site', '1,200 rows')
    """
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"

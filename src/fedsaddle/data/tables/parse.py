"""Reads numbers and dates out of the distinct texts of a column: limits, thousands, decimal commas, units, times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.tables.columns import Comma, listed
from fedsaddle.data.tables.encode_rows import (
    COMMA,
    DATES,
    HOUR,
    PLAIN,
    POINT,
    TWO,
    NumberText,
    date_match,
    days,
    hours,
    number_text,
)

INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
_GERMAN = re.compile(r"[+-]?[0-9]+(?:,[0-9]+)?")
_PROOF = re.compile(r"[+-]?(?:[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})|0,[0-9]+)")  # no separator of thousands
_COMMA_NOTE = "read the comma as a decimal comma"
SAMPLE = 500  # texts that are tried before all are


@dataclass(frozen=True, eq=False)
class Numbers:
    """The value of each text (NaN: none that is plain), and how the texts were understood."""

    values: NDArray[np.float64]
    odd: tuple[str, ...]  # texts without a plain value
    infinite: tuple[str, ...]
    counted: int  # how many texts are numbers; limits such as >90 count neither way
    units: tuple[str, ...]  # more than one: the values cannot be compared
    notes: tuple[str, ...]  # parts of a sentence: "read '>90' as the number"
    decimal_comma: bool = False

    @property
    def likely(self) -> bool:
        """Whether this is a column of numbers: at least half of the distinct texts are."""
        return self.counted > 0 and self.counted >= len(self.odd)


def parse_numbers(texts: Sequence[str], comma: Comma = "no") -> Numbers:
    """Read distinct texts; `comma` is the meaning of a comma that could be a decimal one or separate thousands.

    Examples:
        >>> parse_numbers(["1,5", "2", ">90"]).values.tolist()
        [1.5, 2.0, 90.0]
    """
    if (quick := _quick(texts, comma)) is not None:
        return quick
    parts = [number_text(text) for text in texts]
    digits = [p.digits for p in parts if p and not p.digits.isdigit()]
    decimal = _decimal_comma(digits, comma)
    dots = comma == "surely" or any(("," in d and "." in d) or d.count(".") > 1 for d in digits)
    values = np.array([np.nan if p is None else _value(p, decimal, dots) for p in parts], dtype=np.float64)
    good = [p for p, v in zip(parts, values, strict=True) if p and v == v]
    infinite = tuple(t for t, v in zip(texts, values, strict=True) if v != v and INFINITE.fullmatch(t))
    odd = tuple(t for t, v in zip(texts, values, strict=True) if v != v and not INFINITE.fullmatch(t))
    units = tuple(sorted({p.unit for p in good if p.unit}))
    counted = sum(not p.limit for p in good)
    return Numbers(values, odd, infinite, counted, units, tuple(_notes(good, decimal, units)), decimal)


def _quick(texts: Sequence[str], comma: Comma) -> Numbers | None:
    """The quick way for long columns: all plain, all with decimal commas, or not a number."""
    nothing = np.full(len(texts), np.nan)
    some = texts[:: len(texts) // SAMPLE + 1]
    if len(texts) > SAMPLE and not any(map(number_text, some)) and not any(map(INFINITE.fullmatch, some)):
        return Numbers(nothing, tuple(texts), (), 0, (), ())
    if comma != "surely" and all(map(PLAIN.fullmatch, texts)):
        return Numbers(np.array(texts, dtype=np.float64), (), (), len(texts), (), ())
    if all(map(_GERMAN.fullmatch, texts)) and any(map(_PROOF.fullmatch, texts)):
        values = np.array([text.replace(",", ".") for text in texts], dtype=np.float64)
        return Numbers(values, (), (), len(texts), (), (_COMMA_NOTE,), decimal_comma=True)
    return None


def keep_unit(numbers: Numbers, texts: Sequence[str]) -> NDArray[np.float64]:
    """The values in the most common unit, and NaN for those in any other."""
    parts = [number_text(text) for text in texts]
    own = [p.unit for p in parts if p and p.unit]
    first = max(numbers.units, key=own.count)
    other = np.array([p is not None and p.unit not in ("", first) for p in parts])
    return np.where(other, np.nan, numbers.values)


def _notes(good: list[NumberText], decimal: bool, units: tuple[str, ...]) -> list[str]:
    notes = []
    if limits := [p.text for p in good if p.limit]:
        notes.append(f"read {listed(limits, 5)} as the bare number")
    if decimal and any("," in p.digits for p in good):
        notes.append(_COMMA_NOTE)
    if parted := [p.text for p in good if _is_parted(p.digits, decimal)]:
        notes.append(f"read {listed(parted, 3)} with separators of thousands")
    if len(units) == 1:
        notes.append(f"stripped the unit {units[0]!r}, which cells without a unit are taken to have too")
    return notes


def _is_parted(digits: str, decimal: bool) -> bool:
    return any(c in digits for c in ("' ." if decimal else "' ,"))


def _decimal_comma(digits: Sequence[str], comma: Comma) -> bool:
    """Whether a comma is the decimal separator of this column."""
    against_comma = sum(not COMMA.fullmatch(d) for d in digits)
    if comma == "surely" and not against_comma:
        return True  # 150.000 in a file that writes 1,5
    if not any("," in d or d.count(".") > 1 for d in digits):
        return False
    against_point = sum(not POINT.fullmatch(d) for d in digits)
    if against_point == against_comma:
        return comma != "no" and any("," in d for d in digits)
    return against_comma < against_point


def _value(p: NumberText, decimal: bool, dots: bool) -> float:
    """The number, or NaN; `dots`: points separate thousands in a column with decimal commas."""
    if decimal and not dots and "." in p.digits:
        return np.nan  # 1.234 beside 1,5: ambiguous
    return p.value(decimal)


DAYS = "days since 1970-01-01"
HOURS = "hours of the day"
_PLAIN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?")


@dataclass(frozen=True, eq=False)
class Dates:
    """The value of each text (NaN: not a date), and why the column cannot be read, if so."""

    values: NDArray[np.float64]
    odd: tuple[str, ...]
    meaning: str
    problem: str = ""  # the order of day and month, or a year of two digits
    day_first: bool = True

    @property
    def written(self) -> str:
        """How the column is written."""
        return "hours" if self.meaning == HOURS else "day first" if self.day_first else "month first"

    @property
    def likely(self) -> bool:
        """Whether this is a column of dates: at least half of the distinct texts look like one."""
        return len(self.values) - len(self.odd) >= max(1, len(self.odd))


def parse_dates(texts: Sequence[str], written: str = "") -> Dates | None:
    """Read distinct texts, or None where fewer than half look like dates or times; `written` is their format, if known.

    Examples:
        >>> parse_dates(["1970-01-02", "1970-01-03 12:00"]).values.tolist()
        [1.0, 2.5]
    """
    if not any(m.fullmatch(t) for t in texts[:: len(texts) // SAMPLE + 1] for m in (*DATES, HOUR)):
        return None
    if (plain := _plain_days(texts)) is not None:
        return Dates(plain, (), DAYS)
    matches = [date_match(t) for t in texts]
    if 2 * sum(m is not None for m in matches) < len(texts):
        return _hours(texts)
    two = [m for m in matches if m is not None and m.re is TWO]
    day_first, problem = _order(two, written)
    values = np.array([np.nan if m is None else days(m, day_first) for m in matches])
    odd = tuple(t for t, v in zip(texts, values, strict=True) if v != v)
    return Dates(values, odd, DAYS, problem, day_first)


def _plain_days(texts: Sequence[str]) -> NDArray[np.float64] | None:
    """The quick way for ISO dates without a zone."""
    if not all(map(_PLAIN.fullmatch, texts)):
        return None
    try:
        return np.array(texts, dtype="datetime64[us]").astype(np.int64) / 86400e6
    except ValueError:  # no such day
        return None


def _hours(texts: Sequence[str]) -> Dates | None:
    matches = [HOUR.fullmatch(t) for t in texts]
    if 2 * sum(m is not None for m in matches) < len(texts):
        return None
    values = np.array([np.nan if m is None else hours(m) for m in matches])
    return Dates(values, tuple(t for t, v in zip(texts, values, strict=True) if v != v), HOURS)


def _order(dates: list[re.Match[str]], written: str = "") -> tuple[bool, str]:
    """Whether the day comes before the month, and why that is ambiguous, if so."""
    if short := [m[0] for m in dates if len(m["y"]) == 2]:
        return True, f"years of two digits, such as {listed(short, 2)}"
    if written in ("day first", "month first"):
        return written == "day first", ""
    day_first = [m[0] for m in dates if int(m["a"]) > 12]
    month_first = [m[0] for m in dates if int(m["b"]) > 12]
    if day_first and month_first:
        return True, f"dates in both orders, such as {listed([day_first[0], month_first[0]])}"
    unclear = [m[0] for m in dates if m["by"] != "."]
    if unclear and not day_first and not month_first:
        return True, f"dates whose day and month cannot be told apart, such as {listed(unclear, 2)}"
    return not month_first, ""

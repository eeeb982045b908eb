"""Reads dates and times out of the distinct texts of a column, as days since 1970-01-01."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.files.column_names import listed

DAYS = "days since 1970-01-01"
HOURS = "hours of the day"
_TIME = r"(?:[T ]\s*(?P<h>[0-9]{1,2}):(?P<min>[0-9]{2})(?::(?P<s>[0-9]{2})(?P<f>\.[0-9]+)?)?\s?(?P<half>[AaPp][Mm])?"
_ZONE = r"\s?(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
_CLOCK = _TIME + _ZONE
_ISO = re.compile(r"(?P<y>[0-9]{4})(?P<by>[-/.])(?P<m>[0-9]{1,2})(?P=by)(?P<d>[0-9]{1,2})" + _CLOCK)
_TWO = re.compile(r"(?P<a>[0-9]{1,2})(?P<by>[-/.])(?P<b>[0-9]{1,2})(?P=by)(?P<y>[0-9]{4}|[0-9]{2})" + _CLOCK)
_WORD = re.compile(r"(?P<d>[0-9]{1,2})[- ./]?\s?(?P<m>[A-Za-z]{3,9})[- ./,]?\s?(?P<y>[0-9]{4})" + _CLOCK)
_WORD_US = re.compile(r"(?P<m>[A-Za-z]{3,9})\.?\s(?P<d>[0-9]{1,2}),?\s(?P<y>[0-9]{4})" + _CLOCK)
HOUR = re.compile(r"(?P<h>[0-9]{1,2}):(?P<min>[0-9]{2})(?::(?P<s>[0-9]{2})(?P<f>\.[0-9]+)?)?")
_PLAIN = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?")
SHAPES = (_ISO, _TWO, _WORD, _WORD_US)
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
SAMPLE = 500  # texts that are tried before all are
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, eq=False)
class Dates:
    """The value of each text (NaN: no date), and why the column cannot be read, if so."""

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
        """Is this a column of dates? At least half of the distinct texts look like one."""
        return len(self.values) - len(self.odd) >= max(1, len(self.odd))


def parse_dates(texts: Sequence[str], written: str = "") -> Dates | None:
    """Read distinct texts, or None where fewer than half look like dates or times; `written` is what is known before.

    >>> parse_dates(["1970-01-02", "1970-01-03 12:00"]).values.tolist()
    [1.0, 2.5]
    """
    if not any(m.fullmatch(t) for t in texts[:: len(texts) // SAMPLE + 1] for m in (*SHAPES, HOUR)):
        return None
    if (plain := _plain_days(texts)) is not None:
        return Dates(plain, (), DAYS)
    found = [next((m for shape in SHAPES if (m := shape.fullmatch(t))), None) for t in texts]
    if 2 * sum(m is not None for m in found) < len(texts):
        return _hours(texts)
    two = [m for m in found if m is not None and m.re is _TWO]
    day_first, problem = _order(two, written)
    values = np.array([np.nan if m is None else _days(m, day_first) for m in found])
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
    found = [HOUR.fullmatch(t) for t in texts]
    if 2 * sum(m is not None for m in found) < len(texts):
        return None
    values = np.array([np.nan if m is None else _hour(m) for m in found])
    return Dates(values, tuple(t for t, v in zip(texts, values, strict=True) if v != v), HOURS)


def _hour(m: re.Match[str]) -> float:
    hour, minute, second = int(m["h"]), int(m["min"]), float((m["s"] or "0") + (m["f"] or ""))
    return hour + minute / 60 + second / 3600 if hour < 24 and minute < 60 and second < 60 else np.nan


def _order(dates: list[re.Match[str]], written: str = "") -> tuple[bool, str]:
    """Does the day come before the month? And why nobody can tell, if so."""
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


def _days(m: re.Match[str], day_first: bool) -> float:
    if m.re is _TWO:
        day, month = (m["a"], m["b"]) if day_first else (m["b"], m["a"])
    else:
        day, month = m["d"], m["m"]
    if not month.isdigit():
        if month[:3].lower() not in MONTHS:
            return np.nan
        month = str(MONTHS.index(month[:3].lower()) + 1)
    hour, half = int(m["h"] or 0), (m["half"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    try:
        at = datetime(int(m["y"]), int(month), int(day), hour, int(m["min"] or 0), int(m["s"] or 0), tzinfo=_zone(m))
    except ValueError:
        return np.nan
    return ((at - _EPOCH).total_seconds() + float(m["f"] or 0)) / 86400


def _zone(m: re.Match[str]) -> timezone:
    zone = m["zone"]
    if zone in (None, "Z"):
        return UTC
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))

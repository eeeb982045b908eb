"""Reads numbers and dates out of the distinct texts of a column: limits, thousands, decimal commas, units, times."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.tables.columns import Comma, listed

PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
CELL = re.compile(
    r"(?P<limit>>=|<=|=>|=<|[<>≥≤])?\s*(?P<sign>[+-]?)(?P<coin>[$€£¥])?\s*"
    r"(?P<digits>(?:[0-9]|[.,][0-9])(?:[.,' ]?[0-9])*\.?)(?P<power>[eE][+-]?[0-9]+)?"
    r"(?P<more>\+)?(?P<gap>\s*)(?P<unit>[A-Za-zµμ°%‰$€£¥].{0,15})?"
)
POINT = re.compile(
    r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+|[1-9][0-9]{0,2}(?:(?P<by>[,' ])[0-9]{3})(?:(?P=by)[0-9]{3})*(?:\.[0-9]+)?"
)
COMMA = re.compile(
    r"[0-9]+(?:,[0-9]+)?|,[0-9]+|[1-9][0-9]{0,2}(?:(?P<by>[.' ])[0-9]{3})(?:(?P=by)[0-9]{3})*(?:,[0-9]+)?"
)
_GERMAN = re.compile(r"[+-]?[0-9]+(?:,[0-9]+)?")
_PROOF = re.compile(r"[+-]?(?:[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})|0,[0-9]+)")  # no separator of thousands
_COMMA_NOTE = "read the comma as a decimal comma"
SAMPLE = 500  # texts that are tried before all are
SPELLING = str.maketrans({"−": "-", "’": "'", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "＜": "<", "＞": ">"})
_UNITS = (
    "% ‰ $ € £ ¥ usd eur gbp ng ug µg μg mcg mg g kg t lb lbs oz ml dl cl l ul µl nmol umol µmol mmol mol meq iu u miu "
    "mm cm m km in inch inches ft h hr hrs hour hours min mins minutes s sec secs ms d day days wk wks week weeks mo "
    "month months y yr yrs year years °c °f ° mmhg cmh2o kpa bar bpm hz khz mhz kcal cal kj j w kw v mv pg fl "
    "rpm ppm m2 m² m3 m³"
)
UNITS = frozenset(_UNITS.split())


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
        """Is this a column of numbers? At least half of the distinct texts are."""
        return self.counted > 0 and self.counted >= len(self.odd)


class _Parts(NamedTuple):
    text: str
    sign: str
    digits: str
    power: str
    limit: bool
    unit: str


def parse_numbers(texts: Sequence[str], comma: Comma = "no") -> Numbers:
    """Read distinct texts; `comma` says what a comma is where it could be a decimal one or part thousands.

    Examples:
        >>> parse_numbers(["1,5", "2", ">90"]).values.tolist()
        [1.5, 2.0, 90.0]
    """
    if (quick := _quick(texts, comma)) is not None:
        return quick
    parts = [_parts(text) for text in texts]
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
    """The quick way for long columns: all plain, all with decimal commas, or no number at all."""
    nothing = np.full(len(texts), np.nan)
    some = texts[:: len(texts) // SAMPLE + 1]
    if len(texts) > SAMPLE and not any(map(_parts, some)) and not any(map(INFINITE.fullmatch, some)):
        return Numbers(nothing, tuple(texts), (), 0, (), ())
    if comma != "surely" and all(map(PLAIN.fullmatch, texts)):
        return Numbers(np.array(texts, dtype=np.float64), (), (), len(texts), (), ())
    if all(map(_GERMAN.fullmatch, texts)) and any(map(_PROOF.fullmatch, texts)):
        values = np.array([text.replace(",", ".") for text in texts], dtype=np.float64)
        return Numbers(values, (), (), len(texts), (), (_COMMA_NOTE,), decimal_comma=True)
    return None


def keep_unit(numbers: Numbers, texts: Sequence[str]) -> NDArray[np.float64]:
    """The values in the most common unit, and NaN for those in any other."""
    parts = [_parts(text) for text in texts]
    own = [p.unit for p in parts if p and p.unit]
    first = max(numbers.units, key=own.count)
    other = np.array([p is not None and p.unit not in ("", first) for p in parts])
    return np.where(other, np.nan, numbers.values)


def _notes(good: list[_Parts], decimal: bool, units: tuple[str, ...]) -> list[str]:
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


def _parts(text: str) -> _Parts | None:
    if PLAIN.fullmatch(text):
        sign = text[0] if text[0] in "+-" else ""
        digits, e, power = text[len(sign) :].lower().partition("e")
        return _Parts(text, sign, digits, e + power, False, "")
    found = CELL.fullmatch(text.translate(SPELLING))
    if found is None:
        return None
    unit, coin = (found["unit"] or "").strip(), found["coin"] or ""
    if unit and (coin or not _is_unit(unit, bool(found["gap"]))):
        return None
    limit = bool(found["limit"] or found["more"])
    return _Parts(text, found["sign"], found["digits"], found["power"] or "", limit, (unit or coin).casefold())


def _is_unit(unit: str, apart: bool) -> bool:
    """Units that are known may touch the number; any one word may stand apart from it."""
    if all(part.strip() in UNITS for part in unit.casefold().split("/")) or unit.casefold() in UNITS:
        return True
    return apart and bool(re.fullmatch(r"[^\W\d_]{1,12}(?:/[^\W\d_]{1,6})?", unit))


def _decimal_comma(digits: Sequence[str], comma: Comma) -> bool:
    """Does a comma stand before the decimals of this column?"""
    against_comma = sum(not COMMA.fullmatch(d) for d in digits)
    if comma == "surely" and not against_comma:
        return True  # 150.000 in a file that writes 1,5
    if not any("," in d or d.count(".") > 1 for d in digits):
        return False
    against_point = sum(not POINT.fullmatch(d) for d in digits)
    if against_point == against_comma:
        return comma != "no" and any("," in d for d in digits)
    return against_comma < against_point


def _value(p: _Parts, decimal: bool, dots: bool) -> float:
    """The number, or NaN; `dots` says that points part thousands in a column with decimal commas."""
    shape = COMMA if decimal else POINT
    if not shape.fullmatch(p.digits):
        return np.nan
    if decimal and not dots and "." in p.digits:
        return np.nan  # 1.234 beside 1,5: nobody can tell
    digits = p.digits.replace("'", "").replace(" ", "")
    digits = digits.replace(".", "").replace(",", ".") if decimal else digits.replace(",", "")
    return float(p.sign + digits + p.power)


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

    Examples:
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

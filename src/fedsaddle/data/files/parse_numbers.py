"""Reads numbers out of the distinct texts of a column: limits, thousands, decimal commas and units."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.files.cells_as_read import Comma
from fedsaddle.data.files.column_names import listed

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

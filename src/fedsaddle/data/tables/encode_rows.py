"""How a cell of a table is read, and how a row becomes the features of a model.

The library reads and encodes with this module, and `load_model.py` beside a trained model has a copy of it. So it needs
Python and numpy only, and imports nothing of the library.
"""

import difflib
import hashlib
import math
import re
import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

# The markers of missing cells, in lower case; which ones count depends on the other cells of the column.
_MARKERS = "na n/a #n/a #na n.a. nan <na> nat null #null! . ? - -- --- missing #value! #div/0! #ref! #num!"
MISSING = frozenset(_MARKERS.split()) | {""}  # in any column
NOTHING = frozenset({"none", "nil"})  # missing among numbers and truth values, a value among other words
MISSING_NUMBER = MISSING | NOTHING | {"unknown", "unk", "not known"}  # among numbers; some are values among words
TRUTH = frozenset({"true", "false"})
LARGEST = float(np.finfo(np.float32).max)  # rows are stored in single precision

PLAIN = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
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
SPELLING = str.maketrans({"−": "-", "’": "'", "\u00a0": " ", "\u202f": " ", "\u2009": " ", "＜": "<", "＞": ">"})
_UNITS = (
    "% ‰ $ € £ ¥ usd eur gbp ng ug µg μg mcg mg g kg t lb lbs oz ml dl cl l ul µl nmol umol µmol mmol mol meq iu u miu "
    "mm cm m km in inch inches ft h hr hrs hour hours min mins minutes s sec secs ms d day days wk wks week weeks mo "
    "month months y yr yrs year years °c °f ° mmhg cmh2o kpa bar bpm hz khz mhz kcal cal kj j w kw v mv pg fl "
    "rpm ppm m2 m² m3 m³"
)
UNITS = frozenset(_UNITS.split())
_TIME = r"(?:[T ]\s*(?P<h>[0-9]{1,2}):(?P<min>[0-9]{2})(?::(?P<s>[0-9]{2})(?P<f>\.[0-9]+)?)?\s?(?P<half>[AaPp][Mm])?"
_CLOCK = _TIME + r"\s?(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})?)?"
_ISO = re.compile(r"(?P<y>[0-9]{4})(?P<by>[-/.])(?P<m>[0-9]{1,2})(?P=by)(?P<d>[0-9]{1,2})" + _CLOCK)
TWO = re.compile(r"(?P<a>[0-9]{1,2})(?P<by>[-/.])(?P<b>[0-9]{1,2})(?P=by)(?P<y>[0-9]{4}|[0-9]{2})" + _CLOCK)
_WORD = re.compile(r"(?P<d>[0-9]{1,2})[- ./]?\s?(?P<m>[A-Za-z]{3,9})[- ./,]?\s?(?P<y>[0-9]{4})" + _CLOCK)
_WORD_US = re.compile(r"(?P<m>[A-Za-z]{3,9})\.?\s(?P<d>[0-9]{1,2}),?\s(?P<y>[0-9]{4})" + _CLOCK)
DATES = (_ISO, TWO, _WORD, _WORD_US)
HOUR = re.compile(r"(?P<h>[0-9]{1,2}):(?P<min>[0-9]{2})(?::(?P<s>[0-9]{2})(?P<f>\.[0-9]+)?)?")
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_UTC = timezone.utc  # noqa: UP017  (`load_model.py` may run on an older Python)
_EPOCH = datetime(1970, 1, 1, tzinfo=_UTC)


def cell_text(cell: object) -> str:
    """A cell as a CSV file would write it: 7.0 as 7, a day without hours."""
    if isinstance(cell, (float, np.floating)):
        value = float(cell)
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() and cell.tzinfo is None else cell.isoformat(" ")
    if isinstance(cell, (date, time)):
        return cell.isoformat()
    return str(cell)


def text_of(cell: object) -> str:
    """The text of a cell, stripped; empty where there is none: None, NaN, pandas' NA and NaT."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType") or cell != cell:
        return ""
    return cell_text(cell).strip()


def is_missing_number(cell: object) -> bool:
    """Whether a cell of a number column is missing."""
    return text_of(cell).lower() in MISSING_NUMBER


def word(cell: object, known: Collection[str], missing: Collection[str] = MISSING) -> str | None:
    """A cell of a category column; None where it is missing.

    Args:
        cell: as a file or a frame has it.
        known: the categories of the training rows; if they are true and false, TRUE is one of them.
        missing: the markers of missing cells, in lower case.
    """
    found = text_of(cell)
    if found in known:
        return found
    if known and set(known) <= TRUTH:
        found = found.lower()
        return None if found in missing or found in NOTHING else found
    return None if found.lower() in missing else found


class NumberText(NamedTuple):
    """The parts of a text that may be a number."""

    text: str
    sign: str
    digits: str  # with separators
    power: str
    limit: bool  # such as >90
    unit: str

    def value(self, comma: bool) -> float:
        """The number, NaN if the digits are not written so; `comma`: with a decimal comma."""
        if not (COMMA if comma else POINT).fullmatch(self.digits):
            return math.nan
        digits = self.digits.replace("'", "").replace(" ", "")
        digits = digits.replace(".", "").replace(",", ".") if comma else digits.replace(",", "")
        return float(self.sign + digits + self.power)


def number_text(text: str) -> NumberText | None:
    """The parts of a number with perhaps a limit, a sign, separators and a unit; None for any other text."""
    if PLAIN.fullmatch(text):
        sign = text[0] if text[0] in "+-" else ""
        digits, e, power = text[len(sign) :].lower().partition("e")
        return NumberText(text, sign, digits, e + power, False, "")
    found = CELL.fullmatch(text.translate(SPELLING))
    if found is None:
        return None
    unit, coin = (found["unit"] or "").strip(), found["coin"] or ""
    if unit and (coin or not _is_unit(unit, bool(found["gap"]))):
        return None
    limit = bool(found["limit"] or found["more"])
    return NumberText(text, found["sign"], found["digits"], found["power"] or "", limit, (unit or coin).casefold())


def _is_unit(unit: str, apart: bool) -> bool:
    """Units that are known may touch the number; any one word may stand apart from it."""
    if all(part.strip() in UNITS for part in unit.casefold().split("/")) or unit.casefold() in UNITS:
        return True
    return apart and bool(re.fullmatch(r"[^\W\d_]{1,12}(?:/[^\W\d_]{1,6})?", unit))


def hours(match: "re.Match[str]") -> float:
    """Hours of the day, of a match of `HOUR`; NaN if there is no such time."""
    hour, minute, second = int(match["h"]), int(match["min"]), float((match["s"] or "0") + (match["f"] or ""))
    return hour + minute / 60 + second / 3600 if hour < 24 and minute < 60 and second < 60 else math.nan


def date_match(text: str) -> "re.Match[str] | None":
    """The text as one of `DATES`."""
    return next((match for shape in DATES if (match := shape.fullmatch(text))), None)


def days(match: "re.Match[str]", day_first: bool) -> float:
    """Days since 1970-01-01, of a match of `DATES`; NaN if there is no such date."""
    if match.re is TWO:
        day, month = (match["a"], match["b"]) if day_first else (match["b"], match["a"])
    else:
        day, month = match["d"], match["m"]
    if not month.isdigit():
        if month[:3].lower() not in MONTHS:
            return math.nan
        month = str(MONTHS.index(month[:3].lower()) + 1)
    hour, half = int(match["h"] or 0), (match["half"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "pm" else 0)
    clock = (hour, int(match["min"] or 0), int(match["s"] or 0))
    try:
        at = datetime(int(match["y"]), int(month), int(day), *clock, tzinfo=_zone(match["zone"]))
    except ValueError:
        return math.nan
    return ((at - _EPOCH).total_seconds() + float(match["f"] or 0)) / 86400


def _zone(zone: str | None) -> timezone:
    if zone in (None, "Z"):
        return _UTC
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))


def number(cell: object, written: str = "") -> float:
    """A cell of a number column, NaN where it is missing or cannot be read.

    Args:
        cell: as a file or a frame has it.
        written: how the training rows write numbers: plainly, "decimal comma", "day first", "month first" or "hours".
    """
    if is_missing_number(cell):
        return math.nan
    if isinstance(cell, datetime):
        at = cell if cell.tzinfo is not None else cell.replace(tzinfo=_UTC)
        value = at.timestamp() / 86400
    elif isinstance(cell, date):
        value = float((cell - date(1970, 1, 1)).days)
    elif isinstance(cell, timedelta):
        value = cell.total_seconds() / 86400
    elif isinstance(cell, (int, float)):
        value = float(cell) if abs(cell) <= LARGEST else math.nan
    else:
        value = _read(text_of(cell), written)
    return value if abs(value) <= LARGEST else math.nan


def _read(text: str, written: str) -> float:
    if written in ("day first", "month first"):
        match = date_match(text)
        return math.nan if match is None else days(match, written == "day first")
    if written == "hours":
        match = HOUR.fullmatch(text)
        return math.nan if match is None else hours(match)
    parts = number_text(text)
    return math.nan if parts is None else parts.value(written == "decimal comma")


Kind = Literal["number", "hinge", "missing", "category", "other", "site"]


@dataclass(frozen=True)
class Encoded:
    """One feature.

    - number: `(v - mean) / std`, clipped to [-clip, clip]; v is the cell, or `fill` where it is missing, or with `log`
      sign(v) log(1 + |v|) of it.
    - hinge: max(0, number - knot).
    - missing: 1 where the cell is missing, else 0.
    - category: 1 where the cell is `category`, else 0.
    - other: 1 where the cell is not missing and none of `known`, else 0.
    - site: 1 at the site `category`, 0 at other known sites, `unknown` (its share of the training rows) at a new one.
    """

    column: str
    kind: Kind = "number"
    category: str | None = None
    fill: float | None = None
    log: bool = False
    mean: float = 0.0
    std: float = 1.0
    clip: float | None = None
    knot: float = 0.0
    known: tuple[str, ...] = ()
    unknown: float = 0.0
    written: str = ""  # how the file writes the numbers, where not plainly; see `number`

    @property
    def name(self) -> str:
        """Name of the feature in reports."""
        if self.kind in ("category", "site"):
            return f"{self.column}={self.category}"
        return {
            "number": self.column,
            "hinge": f"{self.column}>{self.knot:.2f}",
            "missing": f"{self.column} missing",
            "other": f"{self.column}=other",
        }[self.kind]

    def number(self, cells: NDArray[np.float64]) -> NDArray[np.float64]:
        """The feature for cells of a number column; NaN: missing."""
        missing = np.isnan(cells)
        if self.kind == "missing":
            return missing.astype(np.float64)
        v = np.where(missing, 0.0 if self.fill is None else self.fill, cells)
        z = (signed_log(v) if self.log else v) - self.mean
        z /= self.std
        if self.clip is not None:
            np.clip(z, -self.clip, self.clip, out=z)
        return z if self.kind == "number" else np.maximum(z - self.knot, 0.0)

    def text(self, cell: str | None) -> float:
        """The feature for one cell of a category column; None: missing."""
        if self.kind == "missing":
            return float(cell is None)
        if self.kind == "other":
            return float(cell is not None and cell not in self.known)
        return float(cell == self.category)

    def site(self, name: str, known: bool) -> float:
        """The feature for all rows of a site."""
        return float(name == self.category) if known else self.unknown

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, without fields that have their default."""
        plain = {f: v for f, v in asdict(self).items() if v != getattr(_DEFAULT, f)}
        listed = {f: list(v) if isinstance(v, tuple) else v for f, v in plain.items()}
        return {"column": self.column, "kind": self.kind, **listed}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Encoded":
        """The feature that `to_dict` wrote."""
        return cls(**{**given, "known": tuple(given.get("known", ()))})


_DEFAULT = Encoded("")


def signed_log(v: NDArray[np.float64]) -> NDArray[np.float64]:
    """sign(v) log(1 + |v|): log1p that also takes negative numbers."""
    return np.copysign(np.log1p(np.abs(v)), v)


Row = Mapping[str, object]
_REMEDY = "must be a dictionary {column: cell}"


class RowProblem(NamedTuple):
    """What is wrong with a row, the remedy, and what is done about it without `strict`."""

    wrong: str
    remedy: str
    taken: str


@dataclass(frozen=True)
class RowEncoder:
    """Encodes rows that come after training, and checks each against the training rows.

    Args:
        features: of the model, in order.
        words: by column of categories, its values; those that are too rare for a feature may be in `rare` instead.
        rare: by column, digests of rare values, which count as "other".
        others: other columns of the training table, which a row may have.
    """

    features: tuple[Encoded, ...]
    words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rare: Mapping[str, Sequence[str]] = field(default_factory=dict)
    others: Sequence[str] = ()

    def encode(self, rows: object, strict: bool = True) -> NDArray[np.float64]:
        """The features of rows, (n, d).

        Args:
            rows: a dictionary {column: cell}, a list of them, or a DataFrame.
            strict: raise a ValueError for a row with a problem; False: warn, and take the cell as the warning says.
        """
        given, records = _records(rows), list[Row]()
        for at, row in enumerate(given):
            records.append(self._checked(at, row, len(given), strict))
        found = np.empty((len(records), len(self.features)))
        for column in dict.fromkeys(feature.column for feature in self.features):
            cells = [row.get(column) for row in records]
            own = {k: feature for k, feature in enumerate(self.features) if feature.column == column}
            first = next(iter(own.values()))
            if first.kind == "site":
                sites = [self._site(cell) for cell in cells]
                columns = {k: [feature.site(site, bool(site)) for site in sites] for k, feature in own.items()}
            elif column in self.words:
                names = [self._word(cell, column) for cell in cells]
                columns = {k: [feature.text(name) for name in names] for k, feature in own.items()}
            else:
                numbers = np.array([number(cell, first.written) for cell in cells], dtype=np.float64)
                columns = {k: feature.number(numbers).tolist() for k, feature in own.items()}
            for k, values in columns.items():
                found[:, k] = values
        return found

    def problems(self, row: Row) -> list[RowProblem]:
        """All that is wrong with a row."""
        columns = list(dict.fromkeys(feature.column for feature in self.features))
        unknown = [name for name in row if name and name not in columns and name not in self.others]
        found = list[RowProblem]()
        for column in columns:
            own = [feature for feature in self.features if feature.column == column]
            if column not in row:
                near = close(column, unknown)
                hint = f"did you misspell it as {near!r}? " if near else ""
                where = " at a site that was not trained on" if own[0].kind == "site" else ""
                remedy = f"{hint}add it; its cell may be empty{where}"
                found.append(RowProblem(f"column {column!r} is not there", remedy, "it is taken as missing"))
            else:
                found += self._of_cell(column, row[column], own)
        for name in unknown:
            near = close(name, columns)
            remedy = f"did you mean {near!r}? leave it out" if near else "leave it out"
            found.append(RowProblem(f"column {name!r}: the training table has no such column", remedy, "it is ignored"))
        return found

    def _checked(self, at: int, row: object, count: int, strict: bool) -> Row:
        """A row with stripped names."""
        if not isinstance(row, dict):
            raise ValueError(f"rows[{at}] = {row!r:.80}: {_REMEDY}")
        named = {str(name).strip(): cell for name, cell in row.items()}
        found, where = self.problems(named), f"row {at + 1}, " if count > 1 else ""
        if found and strict:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            remedy = f"{found[0].remedy}, or use strict=False to get a warning instead{more}"
            raise ValueError(f"{where}{found[0].wrong}; {remedy}")
        for wrong, _, taken in found:
            warnings.warn(f"{where}{wrong}; {taken}", stacklevel=5)
        return named

    def _of_cell(self, column: str, cell: object, own: Sequence[Encoded]) -> list[RowProblem]:
        if own[0].kind == "site":
            name, near = text_of(cell), self._site(cell)
            if near in ("", name):
                return []
            wrong = f"column {column!r} = {name!r}: the site is written {near!r} in training"
            return [RowProblem(wrong, "write it so", "it is taken so")]
        if column in self.words:
            return self._of_word(column, word(cell, self.words[column]), own)
        written = own[0].written
        if is_missing_number(cell) or not math.isnan(number(cell, written)):
            return []
        kind = {"day first": "date", "month first": "date", "hours": "time"}.get(written, "number")
        wrong = f"column {column!r} = {cell!r:.80}: is not a {kind}"
        return [RowProblem(wrong, "correct it, or leave the cell empty", "it is taken as missing")]

    def _of_word(self, column: str, name: str | None, own: Sequence[Encoded]) -> list[RowProblem]:
        words = self.words[column]
        if name is None or name in words or digest(column, name) in self.rare.get(column, ()):
            return []
        alike = alike_but_case(name, words)
        near = alike or close(name, words)
        hint = f"did you mean {near!r}? " if near else ""
        known = ", ".join(map(repr, words[:10])) + (", ..." if len(words) > 10 else "")
        kinds = {feature.kind: feature.category for feature in own}
        rest = [value for value in words if value != kinds.get("category")]
        if alike or (len(rest) == 1 and len(own) == 1):
            taken = f"as {(alike or rest[0])!r}"
        else:
            taken = "as a rare value" if "other" in kinds else "as no known value"
        wrong = f"column {column!r} = {name!r:.80}: was not seen in training"
        return [RowProblem(wrong, f"{hint}use one of {known}", f"it is taken {taken}")]

    def _site(self, cell: object) -> str:
        """The known site that a cell names; empty if it is none."""
        sites = [feature.category or "" for feature in self.features if feature.kind == "site"]
        name = text_of(cell)
        return name if name in sites else alike_but_case(name, sites)

    def _word(self, cell: object, column: str) -> str | None:
        words = self.words[column]
        name = word(cell, words)
        if name is None or name in words or digest(column, name) in self.rare.get(column, ()):
            return name
        return alike_but_case(name, words) or name  # only without `strict`


def _records(rows: Any) -> list[object]:
    if hasattr(rows, "columns") and hasattr(rows, "to_dict"):
        twice = [name for name, count in Counter(map(str, rows.columns)).items() if count > 1]
        if twice:
            raise ValueError(f"column {twice[0]!r} is there twice; rename or drop one")
        rows = rows.to_dict("records")
    if not isinstance(rows, (dict, list, tuple)):
        raise ValueError(f"rows = {rows!r:.80}: {_REMEDY}, a list of them or a DataFrame")
    return [rows] if isinstance(rows, dict) else list(rows)


def close(name: str, names: Iterable[str]) -> str:
    """The name that is most like this one; empty if none is."""
    listed = list(names)
    return next(iter(difflib.get_close_matches(name, listed, 1)), "") or alike_but_case(name, listed)


def alike_but_case(name: str, names: Iterable[str]) -> str:
    """The name that differs in case and spaces only; empty if there is none."""
    folded = "".join(name.casefold().split())
    return next((one for one in names if "".join(one.casefold().split()) == folded), "")


def digest(column: str, name: str) -> str:
    """Stands for a rare value, which is not written into a file that may be passed on."""
    return hashlib.sha256(f"{column}\0{name}".encode()).hexdigest()[:16]

"""Decides what a column is: numbers, dates, categories, an identifier, a group, a near duplicate, or useless."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.table import GROUP, Array
from fedsaddle.data.tables.columns import Cells, Comma, RawColumn, empty_column, shown, text_cells
from fedsaddle.data.tables.encode_rows import LARGEST, MISSING, MISSING_NUMBER, NOTHING, TRUTH
from fedsaddle.data.tables.parse import DAYS, Dates, Numbers, keep_unit, parse_dates, parse_numbers
from fedsaddle.errors import BadInput

FEW = 20  # rows below which nothing is called an identifier
MANY_CATEGORIES = 1000
LONG_TEXT = 40  # characters, on average
FORCE = "list it in `features`, --numeric or --categorical to keep it"
_ID = re.compile(
    r"(?:^|[\W_])(?:id|ids|uuid|guid|mrn|key|index|idx|rowid|row|nr|no|number|record)$|^(?:id|uuid|index|row)(?:[\W_]|$)"
    r"|(?:patient|subject|stay|visit|encounter|record|person|case|admission|study|hadm|sample|unit)id$",
    re.IGNORECASE,
)
_CAMEL_ID = re.compile(r"[a-z](?:Id|ID)$")


@dataclass(frozen=True)
class ColumnHint:
    """The user's settings for a column: its kind, and whether it was selected by name."""

    numeric: bool = False
    categorical: bool = False
    listed: bool = False  # keep it whatever it holds
    comma: Comma = "no"
    constant: bool = False  # keep it also if it never changes: it may elsewhere
    written: str = ""  # as earlier rows were, see `RawColumn.written`; for cells that could be read in two ways


@dataclass(frozen=True, eq=False)
class ColumnDecision:
    """The column, or None if it is left out, and the notes about it."""

    column: RawColumn | None
    notes: tuple[str, ...] = ()


def judge_column(name: str, cells: Cells, hint: ColumnHint) -> ColumnDecision:
    """Decide what the cells are; see `docs/data.md` for the rules."""
    if cells.unreadable:
        return _unreadable(name, cells, hint)
    if cells.numbers is not None:
        numbers = _finite(name, cells.numbers, hint)
        made = RawColumn(name, numbers, written="decimal comma" if hint.comma == "surely" else "")
        notes = [f"read as {cells.meaning}{_or(name, 'categorical')}"] if cells.meaning else []
        dropped = int(np.isnan(numbers).sum() - np.isnan(cells.numbers).sum())
        notes += [f"{dropped} infinite cells are taken as missing"] if dropped else []
    else:
        made, notes = _from_text(name, cells, hint)
    why = (
        None
        if hint.listed
        else _left_out(made, bool(cells.meaning) or any(s.startswith("read as ") for s in notes), hint.constant)
    )
    if why is not None:
        return ColumnDecision(None, (f"column {shown(name)} is left out: {why}",))
    return ColumnDecision(made, tuple(f"column {shown(name)}: {one}" for one in [*notes, *_noticed(made)]))


def _or(name: str, *ways: str) -> str:
    options = ", ".join(f"--{way} {shown(name)}" for way in ways)
    return f" (otherwise: {options})"


def _unreadable(name: str, cells: Cells, hint: ColumnHint) -> ColumnDecision:
    if hint.listed:
        raise BadInput(f"type of column {shown(name)}", cells.unreadable, "use numbers or text, or drop the column")
    return ColumnDecision(
        None, (f"column {shown(name)} is left out: its type is {cells.unreadable}, not numbers or text",)
    )


def _from_text(name: str, cells: Cells, hint: ColumnHint) -> tuple[RawColumn, list[str]]:
    assert cells.codes is not None
    codes, texts = text_cells(cells.codes, cells.texts, MISSING)
    if not texts:
        return empty_column(name, len(codes)), []
    if not (hint.categorical or cells.declared):
        known = [t for t in texts if t.lower() not in MISSING_NUMBER]
        read = _read_values(name, known, hint)
        if read is not None:
            values, notes, written = read
            table = dict(zip(known, values.tolist(), strict=True))
            spread = np.array([table.get(t, np.nan) for t in texts] + [np.nan])
            return RawColumn(name, _finite(name, spread[codes], hint), written=written), notes
    folded = [t.lower() for t in texts]
    if set(folded) - NOTHING and set(folded) - NOTHING <= TRUTH:
        codes, texts = text_cells(codes, folded, NOTHING)
    return RawColumn(name, None, codes, tuple(texts)), []


def _read_values(
    name: str, texts: Sequence[str], hint: ColumnHint
) -> tuple[NDArray[np.float64], list[str], str] | None:
    """The number of each text, notes about it and how it is written, or None if the column holds text."""
    dates = parse_dates(texts, hint.written) if texts else None
    if dates is not None:
        return *_dates(name, dates, hint), dates.written
    numbers = parse_numbers(texts, "surely" if hint.written == "decimal comma" else hint.comma)
    if not (numbers.likely or (hint.numeric and numbers.counted)):
        if hint.numeric:
            raise BadInput(
                f"column {shown(name)}", _few(texts), f"holds no numbers; --categorical or --drop {shown(name)}"
            )
        return None
    return *_numbers(name, texts, numbers, hint), "decimal comma" if numbers.decimal_comma else ""


def _dates(name: str, dates: Dates, hint: ColumnHint) -> tuple[NDArray[np.float64], list[str]]:
    if dates.problem:
        remedy = f"holds {dates.problem}; write them as 2026-11-17, or --categorical or --drop {shown(name)}"
        raise BadInput(f"column {shown(name)}", "dates", remedy)
    if dates.odd and not hint.numeric:
        raise _odd(name, dates.odd, "dates")
    notes = [f"dates are read as {dates.meaning}{_or(name, 'categorical', 'drop')}"]
    return dates.values, notes + _now_missing(dates.odd)


def _numbers(
    name: str, texts: Sequence[str], numbers: Numbers, hint: ColumnHint
) -> tuple[NDArray[np.float64], list[str]]:
    if numbers.infinite and not hint.numeric:
        remedy = f"is not finite; mend the cells, --numeric {shown(name)} (they become missing) or --drop {shown(name)}"
        raise BadInput(f"column {shown(name)}", _few(numbers.infinite), remedy)
    if len(numbers.units) > 1 and not hint.numeric:
        remedy = (
            f"are different units in one column; use one, --numeric {shown(name)} (all but the most common become "
            f"missing), --categorical {shown(name)} or --drop {shown(name)}"
        )
        raise BadInput(f"column {shown(name)}", list(numbers.units[:5]), remedy)
    if numbers.odd and not hint.numeric:
        raise _odd(name, numbers.odd, "numbers")
    values = keep_unit(numbers, texts) if len(numbers.units) > 1 else numbers.values
    odd = [t for t, v in zip(texts, values, strict=True) if v != v]
    return values, [f"{one}{_or(name, 'categorical', 'drop')}" for one in numbers.notes] + _now_missing(odd)


def _odd(name: str, odd: Sequence[str], what: str) -> BadInput:
    own = shown(name)
    remedy = (
        f"are not {what} as the other cells are; mend them, --numeric {own} (odd cells become missing), "
        f"--categorical {own} or --drop {own}"
    )
    return BadInput(f"column {own}", _few(odd), remedy)


def _now_missing(odd: Sequence[str]) -> list[str]:
    return [f"{len(odd)} odd values are taken as missing: {', '.join(map(shown, odd[:5]))}"] if odd else []


def _few(texts: Sequence[str]) -> list[str]:
    return [t if len(t) <= LONG_TEXT else f"{t[:LONG_TEXT]}..." for t in texts[:5]]


def _finite(name: str, numbers: NDArray[np.float64], hint: ColumnHint) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        large = np.abs(numbers) > LARGEST
    if not large.any():
        return numbers
    if hint.numeric:
        return np.where(large, np.nan, numbers)
    row = int(np.argmax(large))
    remedy = (
        f"is not a finite number; mend the cell, --numeric {shown(name)} (it becomes missing) or --drop {shown(name)}"
    )
    raise BadInput(f"row {row + 1}, column {shown(name)}", float(numbers[row]), remedy)


def _left_out(column: RawColumn, dates: bool, constant: bool) -> str | None:
    """Why the column is not informative, or None."""
    there = ~column.missing
    n = int(there.sum())
    if n == 0:
        return None if constant else f"all cells are missing; {FORCE}"
    if len(there) < 2:
        return None
    if column.numbers is not None:
        values = column.numbers[there]
        if n == len(there) and (values == values[0]).all():
            return None if constant else f"it is {values[0]:g} in all rows; {FORCE}"
        return f"it looks like an identifier; {FORCE}" if not dates and _is_id(column.name, values) else None
    assert column.codes is not None
    if len(column.categories) == 1 and n == len(there):
        return None if constant else f"it is {shown(column.categories[0])} in all rows; {FORCE}"
    counts = np.bincount(column.codes[there], minlength=len(column.categories))
    return no_categories(column.name, dict(zip(column.categories, counts.tolist(), strict=True)))


def no_categories(name: str, counts: Mapping[str, int]) -> str | None:
    """Why a column of words holds no categories: free text, or an identifier; None if it does."""
    n, different = sum(counts.values()), len(counts)
    length = sum(count * len(text) for text, count in counts.items()) / max(n, 1)
    if length > LONG_TEXT and different > 1:
        return f"it holds free text ({length:.0f} characters on average); {FORCE}"
    if n >= FEW and (different > 0.9 * n or (different > 0.5 * n and _named_id(name))):
        return f"it looks like an identifier ({different:,} values in {n:,} rows); {FORCE}"
    if different > MANY_CATEGORIES:
        return f"it has {different:,} categories; {FORCE}"
    return None


def _named_id(name: str) -> bool:
    return bool(_ID.search(name) or _CAMEL_ID.search(name))


def _is_id(name: str, values: NDArray[np.float64]) -> bool:
    """Whole numbers that all differ, and run from a to b or are named like an identifier."""
    if len(values) < FEW or (values[:FEW] != np.round(values[:FEW])).any() or (values != np.round(values)).any():
        return False
    different = len(np.unique(values))
    if different == len(values) and values.max() - values.min() == len(values) - 1:
        return True
    return _named_id(name) and different > 0.5 * len(values)


def _noticed(column: RawColumn) -> list[str]:
    """Notes about a column that is kept."""
    missing = int(column.missing.sum())
    n = len(column.missing)
    if column.kind == "empty" or n == 0:
        return []
    if missing and column.numbers is None and len(column.categories) == 1:
        return [f"is {shown(column.categories[0])} or missing"]
    folded: dict[str, list[str]] = {}
    for category in column.categories[:MANY_CATEGORIES]:
        folded.setdefault(" ".join(category.casefold().split()), []).append(category)
    same = [", ".join(map(shown, group)) for group in folded.values() if len(group) > 1]
    return (
        [f"values that differ only in case or spaces are different categories: {'; '.join(same[:3])}"] if same else []
    )


MOST_NUMBERS = 10  # different numbers that are a group each; more are cut into quarters of the rows
MOST_GROUPS = 20  # the smallest of more are one group
MISSING_GROUP, OTHER_GROUP = "(missing)", "(other)"
DATES = ("day first", "month first")  # how a column of dates is written


def group_column(name: str, cells: Cells, hint: ColumnHint) -> RawColumn:
    """The cells as numbers where they can be read so, and as text otherwise."""
    try:
        column = judge_column(name, cells, replace(hint, listed=True)).column
    except BadInput:
        if cells.codes is None:
            raise
        column = judge_column(name, cells, replace(hint, listed=True, numeric=False, categorical=True)).column
    assert column is not None  # it is listed
    return replace(column, written=DATES[0]) if cells.meaning == DAYS else column


def group_names(tables: Sequence[Mapping[str, RawColumn]]) -> list[dict[str, Array]]:
    """The group of each row by column, for tables with the same columns; the keys begin with `GROUP`."""
    named: list[dict[str, Array]] = [{} for _ in tables]
    for name in tables[0]:
        columns = [table[name] for table in tables]
        if any(column.numbers is None for column in columns) or not _many([c.numbers for c in columns]):
            words = [group_words(column) for column in columns]
            made = _largest(words)
        else:
            made = _quarters([np.asarray(column.numbers) for column in columns], columns[0].written in DATES)
        for own, groups in zip(named, made, strict=True):
            own[GROUP + name] = groups
    return named


def _many(numbers: Sequence[NDArray[np.float64] | None]) -> bool:
    there = np.concatenate([n for n in numbers if n is not None])
    return len(np.unique(there[~np.isnan(there)])) > MOST_NUMBERS


def group_words(column: RawColumn) -> Array:
    """The cells of a column as words."""
    if column.numbers is None:
        return np.array([*column.categories, MISSING_GROUP], dtype=object)[column.codes]
    values, codes = np.unique(column.numbers, return_inverse=True)
    dates = column.written in DATES
    names = [MISSING_GROUP if np.isnan(v) else _shown(float(v), dates, 6) for v in values]
    return np.array(names, dtype=object)[codes]


def _largest(tables: Sequence[NDArray[np.generic]]) -> list[Array]:
    """The cells, with `OTHER` for those of all but the largest groups."""
    counts = Counter(cell for cells in tables for cell in cells.tolist() if cell != MISSING_GROUP)
    if len(counts) <= MOST_GROUPS:
        return [cells.astype(str) for cells in tables]
    largest = {MISSING_GROUP, *sorted(counts, key=lambda cell: (-counts[cell], cell))[: MOST_GROUPS - 1]}
    return [np.array([cell if cell in largest else OTHER_GROUP for cell in cells.tolist()]) for cells in tables]


def _quarters(tables: Sequence[NDArray[np.float64]], dates: bool) -> list[Array]:
    """Quarters of the rows of all tables, named by the numbers at their ends: "up to 51", "52 to 67", ..."""
    values = np.sort(np.concatenate(tables))
    values = values[~np.isnan(values)]
    ends = np.unique(np.quantile(values, [0.25, 0.5, 0.75], method="lower"))
    ends = ends[ends < values[-1]]
    starts = values[np.searchsorted(values, ends, side="right")]  # the smallest number of the next quarter
    for digits in range(4, 18):
        first, last = ([_shown(float(v), dates, digits) for v in side] for side in (starts, ends))
        if len({*first, *last}) >= len({*starts, *ends}):
            break
    middle = [low if low == high else f"{low} to {high}" for low, high in zip(first, last[1:], strict=False)]
    more = "later" if dates else "more"
    names = np.array([f"up to {last[0]}", *middle, f"{first[-1]} or {more}", MISSING_GROUP])
    return [names[np.where(np.isnan(own), len(names) - 1, np.searchsorted(ends, own))] for own in tables]


def _shown(value: float, dates: bool, digits: int) -> str:
    if dates and abs(value) < 1_000_000:
        return str(date(1970, 1, 1) + timedelta(days=int(value)))
    return f"{value:.{digits}g}" if value != round(value) or abs(value) >= 1e15 else f"{int(value)}"


SAMPLE = 2000  # rows
MOST_COLUMNS = 1000  # above, the comparison is left out
MOST_NOTES = 10
SAME = 0.999
FEWEST = 10  # rows that two columns must share


def near_duplicates(columns: Sequence[RawColumn]) -> list[str]:
    """A note for each pair of columns that (nearly) determine each other; they are kept."""
    pairs = [*_same_numbers(columns), *_same_codes(columns)]
    notes = [
        f"columns {shown(a)} and {shown(b)} say nearly the same; both are kept (to leave one out: --drop {shown(b)})"
        for a, b in pairs[:MOST_NOTES]
    ]
    return [*notes, f"and {len(pairs) - MOST_NOTES} more pairs like these"] if len(pairs) > MOST_NOTES else notes


def _same_numbers(columns: Sequence[RawColumn]) -> list[tuple[str, str]]:
    own = [c for c in columns if c.numbers is not None]
    if not 2 <= len(own) <= MOST_COLUMNS:
        return []
    rows = len(own[0].missing)
    at = np.linspace(0, rows - 1, min(rows, SAMPLE)).astype(np.int64)
    x = np.stack([c.numbers[at] for c in own if c.numbers is not None], axis=1)
    same = np.argwhere(np.triu(np.abs(_correlation(x)) > SAME, 1))
    return [(own[a].name, own[b].name) for a, b in same]


def _correlation(x: Array) -> Array:
    """Pearson's correlation of each two columns over the rows where neither is missing; 0 where there are too few."""
    there = ~np.isnan(x)
    count = np.maximum(there.sum(axis=0), 1)
    mean = np.where(there, x, 0).sum(axis=0) / count
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        centred = np.where(there, x - mean, 0)
        largest = np.abs(centred).max(axis=0, initial=0)
        z = centred / np.where(largest > 0, largest, 1)
        m = there.astype(np.float64)
        n = m.T @ m
        sums, squares = z.T @ m, (z**2).T @ m  # of column a over the rows where b is there too
        shared = np.maximum(n, 1)
        covariance = (z.T @ z) / shared - sums * sums.T / shared**2
        variance = squares / shared - (sums / shared) ** 2
        product = variance * variance.T
        correlation = covariance / np.sqrt(np.where(product > 1e-24, product, np.inf))
    return np.where(n >= FEWEST, correlation, 0.0)


def _same_codes(columns: Sequence[RawColumn]) -> list[tuple[str, str]]:
    groups: dict[bytes, list[str]] = {}
    for column in columns:
        if column.codes is not None and len(column.codes) >= FEWEST and len(column.categories) > 1:
            groups.setdefault(_by_appearance(column.codes), []).append(column.name)
    return [pair for names in groups.values() for pair in combinations(names, 2)]


def _by_appearance(codes: Array) -> bytes:
    """The codes renamed in the order of their appearance, so that other names for the same do not count."""
    present = codes[codes >= 0]
    _, first = np.unique(present, return_index=True)
    order = np.full(int(codes.max(initial=-1)) + 2, -1, dtype=np.int32)
    for rank, place in enumerate(np.sort(first)):
        order[present[place]] = rank
    return bytes(order[codes].tobytes())


MOST_CATEGORIES = 50
SHARE = 5  # distinct values may be a fifth of the cells
FEW_VALUES = 10  # categories, up to which a column is not an identifier, however small the site
RUN = 100  # consecutive whole numbers, from which a column is not a measurement
DIGITS = 6  # from which whole numbers of equal length are not a measurement
_WORDS = frozenset(
    """
    name surname forename firstname lastname fullname initials id ids uuid guid mrn ssn nhs pid nin key index
    row address street city town village zip zipcode postcode postal phone telephone tel mobile fax email mail
    dob birth birthday birthdate born insurance passport iban account url ip mac licence license plate note
    notes comment comments text remark remarks report narrative description file filename path image picture
    photo scan dicom barcode accession
    """.split()  # noqa: SIM905
)
_PARTS = re.compile(
    "birth|surname|firstname|lastname|fullname|patientname|address|e-?mail|phone|postcode|zipcode|passport|filename"
)
_UNITS = frozenset(  # of whom or of what: a column that is named so and nothing else holds its numbers
    """
    patient patients subject subjects person persons case stay encounter episode participant participants individual
    individuals member proband hadm icustay record records specimen respondent
    """.split()  # noqa: SIM905
)
_NUMBERS = frozenset(("no", "nr", "num", "number", "numbers", "code", "ref", "reference", "identifier", "of", "the"))
_JOINED = re.compile(
    "(?:patient|subject|person|case|stay|encounter|visit|episode|admission|participant|hadm|record|member|sample)s?"
    "(?:unit)?(?:stay)?(?:id|ids|no|nr|num|number|code|key)"
)


def by_name(name: str) -> str:
    """Why a column is left out by its name alone; empty if it is not.

    Examples:
        >>> by_name("PatientName"), by_name("date_of_birth"), by_name("creatinine")
        ("its name says 'name'", "its name says 'birth'", '')
        >>> by_name("patient"), by_name("Case-No."), by_name("length_of_stay"), by_name("patient_age")
        ("its name says 'patient'", "its name says 'case'", '', '')
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    words = [word for word in re.split(r"[\W_\d]+", spaced) if word]
    for word in words:
        if word in _WORDS or _JOINED.fullmatch(word):
            return f"its name says {word!r}"
    if words and all(word in _UNITS or word in _NUMBERS for word in words):
        unit = next((word for word in words if word in _UNITS), None)
        if unit is not None:
            return f"its name says {unit!r}"
    match = _PARTS.search(spaced)
    return f"its name says {match.group()!r}" if match else ""


def by_content(column: RawColumn) -> str:
    """Why a column is left out by its cells; empty if it is not.

    Categories may be as many as a fifth of the cells, and 50. Numbers are measurements however many differ, unless
    they are whole and consecutive, or have the same six digits or more.
    """
    there = ~column.missing
    n = int(there.sum())
    if n < FEW:
        return ""
    if column.codes is not None:
        different = len(np.unique(column.codes[there]))
        if different > MOST_CATEGORIES or different > max(FEW_VALUES, n / SHARE):
            return f"it has {different:,} categories in {n:,} rows, like an identifier"
        return ""
    return "" if column.numbers is None or column.written else _identifying_numbers(column.numbers[there])


def _identifying_numbers(values: NDArray[np.float64]) -> str:
    if (values[:FEW] != np.round(values[:FEW])).any() or (values != np.round(values)).any():
        return ""
    distinct = np.unique(values)
    if len(distinct) <= max(FEW_VALUES, len(values) / SHARE):
        return ""
    reason = f"it has {len(distinct):,} different whole numbers in {len(values):,} rows"
    if len(distinct) > RUN and len(distinct) > 0.9 * (distinct[-1] - distinct[0] + 1):
        return f"{reason} that are consecutive, like an identifier"
    digits = np.floor(np.log10(np.maximum(np.abs(distinct), 1.0))) + 1
    if digits.min() == digits.max() >= DIGITS and (distinct % 100 != 0).any():
        return f"{reason} of {int(digits[0])} digits, like an identifier"
    return ""

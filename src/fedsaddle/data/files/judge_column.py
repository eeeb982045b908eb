"""Decides what a feature column is: numbers, dates, categories, or nothing to learn from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.files.cells_as_read import MISSING, MISSING_NUMBER, NOTHING, TRUTH, Cells, Comma, text_cells
from fedsaddle.data.files.column_names import shown
from fedsaddle.data.files.parse_dates import Dates, parse_dates
from fedsaddle.data.files.parse_numbers import Numbers, keep_unit, parse_numbers
from fedsaddle.data.files.raw_table import RawColumn, empty_column
from fedsaddle.errors import BadInput

LARGEST = float(np.finfo(np.float32).max)  # rows are stored in single precision
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
class Wish:
    """What the user says of a column: its kind, and whether it was asked for by name."""

    numeric: bool = False
    categorical: bool = False
    listed: bool = False  # keep it whatever it holds
    comma: Comma = "no"
    constant: bool = False  # keep it also if it never changes: it may elsewhere
    written: str = ""  # as earlier rows were, see `RawColumn.written`; for cells that could be read in two ways


@dataclass(frozen=True, eq=False)
class Judged:
    """The column, or None if it is left out, and the notes about it."""

    column: RawColumn | None
    notes: tuple[str, ...] = ()


def judge_column(name: str, cells: Cells, wish: Wish) -> Judged:
    """Decide what the cells are; see `docs/data.md` for the rules."""
    if cells.unreadable:
        return _unreadable(name, cells, wish)
    if cells.numbers is not None:
        numbers = _finite(name, cells.numbers, wish)
        made = RawColumn(name, numbers, written="decimal comma" if wish.comma == "surely" else "")
        said = [f"read as {cells.meaning}{_or(name, 'categorical')}"] if cells.meaning else []
        dropped = int(np.isnan(numbers).sum() - np.isnan(cells.numbers).sum())
        said += [f"{dropped} infinite cells are taken as missing"] if dropped else []
    else:
        made, said = _from_text(name, cells, wish)
    why = (
        None
        if wish.listed
        else _left_out(made, bool(cells.meaning) or any(s.startswith("read as ") for s in said), wish.constant)
    )
    if why is not None:
        return Judged(None, (f"column {shown(name)} is left out: {why}",))
    return Judged(made, tuple(f"column {shown(name)}: {one}" for one in [*said, *_noticed(made)]))


def _or(name: str, *ways: str) -> str:
    options = ", ".join(f"--{way} {shown(name)}" for way in ways)
    return f" (otherwise: {options})"


def _unreadable(name: str, cells: Cells, wish: Wish) -> Judged:
    if wish.listed:
        raise BadInput(f"type of column {shown(name)}", cells.unreadable, "use numbers or text, or drop the column")
    return Judged(None, (f"column {shown(name)} is left out: its type is {cells.unreadable}, not numbers or text",))


def _from_text(name: str, cells: Cells, wish: Wish) -> tuple[RawColumn, list[str]]:
    assert cells.codes is not None
    codes, texts = text_cells(cells.codes, cells.texts, MISSING)
    if not texts:
        return empty_column(name, len(codes)), []
    if not (wish.categorical or cells.declared):
        known = [t for t in texts if t.lower() not in MISSING_NUMBER]
        read = _read_values(name, known, wish)
        if read is not None:
            values, said, written = read
            table = dict(zip(known, values.tolist(), strict=True))
            spread = np.array([table.get(t, np.nan) for t in texts] + [np.nan])
            return RawColumn(name, _finite(name, spread[codes], wish), written=written), said
    folded = [t.lower() for t in texts]
    if set(folded) - NOTHING and set(folded) - NOTHING <= TRUTH:
        codes, texts = text_cells(codes, folded, NOTHING)
    return RawColumn(name, None, codes, tuple(texts)), []


def _read_values(name: str, texts: Sequence[str], wish: Wish) -> tuple[NDArray[np.float64], list[str], str] | None:
    """The number of each text, what to say about it and how it is written, or None where the column holds words."""
    dates = parse_dates(texts, wish.written) if texts else None
    if dates is not None:
        return *_dates(name, dates, wish), dates.written
    numbers = parse_numbers(texts, "surely" if wish.written == "decimal comma" else wish.comma)
    if not (numbers.likely or (wish.numeric and numbers.counted)):
        if wish.numeric:
            raise BadInput(
                f"column {shown(name)}", _few(texts), f"holds no numbers; --categorical or --drop {shown(name)}"
            )
        return None
    return *_numbers(name, texts, numbers, wish), "decimal comma" if numbers.decimal_comma else ""


def _dates(name: str, dates: Dates, wish: Wish) -> tuple[NDArray[np.float64], list[str]]:
    if dates.problem:
        remedy = f"holds {dates.problem}; write them as 2026-11-17, or --categorical or --drop {shown(name)}"
        raise BadInput(f"column {shown(name)}", "dates", remedy)
    if dates.odd and not wish.numeric:
        raise _odd(name, dates.odd, "dates")
    said = [f"dates are read as {dates.meaning}{_or(name, 'categorical', 'drop')}"]
    return dates.values, said + _now_missing(dates.odd)


def _numbers(name: str, texts: Sequence[str], numbers: Numbers, wish: Wish) -> tuple[NDArray[np.float64], list[str]]:
    if numbers.infinite and not wish.numeric:
        remedy = f"is not finite; mend the cells, --numeric {shown(name)} (they become missing) or --drop {shown(name)}"
        raise BadInput(f"column {shown(name)}", _few(numbers.infinite), remedy)
    if len(numbers.units) > 1 and not wish.numeric:
        remedy = (
            f"are different units in one column; use one, --numeric {shown(name)} (all but the most common become "
            f"missing), --categorical {shown(name)} or --drop {shown(name)}"
        )
        raise BadInput(f"column {shown(name)}", list(numbers.units[:5]), remedy)
    if numbers.odd and not wish.numeric:
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


def _finite(name: str, numbers: NDArray[np.float64], wish: Wish) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        large = np.abs(numbers) > LARGEST
    if not large.any():
        return numbers
    if wish.numeric:
        return np.where(large, np.nan, numbers)
    row = int(np.argmax(large))
    remedy = (
        f"is not a finite number; mend the cell, --numeric {shown(name)} (it becomes missing) or --drop {shown(name)}"
    )
    raise BadInput(f"row {row + 1}, column {shown(name)}", float(numbers[row]), remedy)


def _left_out(column: RawColumn, dates: bool, constant: bool) -> str | None:
    """Why there is nothing to learn from the column, or None."""
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
    """What is odd about a column that is kept."""
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

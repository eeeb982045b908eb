"""Columns whose values are groups, such as sex or age: figures are reported for each group apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.files.cells_as_read import Cells
from fedsaddle.data.files.judge_column import Wish, judge_column
from fedsaddle.data.files.parse_dates import DAYS
from fedsaddle.data.files.raw_table import RawColumn
from fedsaddle.data.table import GROUP, Array
from fedsaddle.errors import BadInput

MOST_NUMBERS = 10  # different numbers that are a group each; more are cut into quarters of the rows
MOST_GROUPS = 20  # the smallest of more are one group
MISSING, OTHER = "(missing)", "(other)"
DATES = ("day first", "month first")  # how a column of dates is written


def group_column(name: str, cells: Cells, wish: Wish) -> RawColumn:
    """The cells as numbers where they can be read so, and as words otherwise."""
    try:
        column = judge_column(name, cells, replace(wish, listed=True)).column
    except BadInput:
        if cells.codes is None:
            raise
        column = judge_column(name, cells, replace(wish, listed=True, numeric=False, categorical=True)).column
    assert column is not None  # it is listed
    return replace(column, written=DATES[0]) if cells.meaning == DAYS else column


def group_names(tables: Sequence[Mapping[str, RawColumn]]) -> list[dict[str, Array]]:
    """The group of each row by column, for tables with the same columns; the keys begin with `GROUP`."""
    found: list[dict[str, Array]] = [{} for _ in tables]
    for name in tables[0]:
        columns = [table[name] for table in tables]
        if any(column.numbers is None for column in columns) or not _many([c.numbers for c in columns]):
            words = [_words(column) for column in columns]
            made = _largest(words)
        else:
            made = _quarters([np.asarray(column.numbers) for column in columns], columns[0].written in DATES)
        for own, groups in zip(found, made, strict=True):
            own[GROUP + name] = groups
    return found


def _many(numbers: Sequence[NDArray[np.float64] | None]) -> bool:
    there = np.concatenate([n for n in numbers if n is not None])
    return len(np.unique(there[~np.isnan(there)])) > MOST_NUMBERS


def _words(column: RawColumn) -> NDArray[Any]:
    if column.numbers is None:
        return np.array([*column.categories, MISSING], dtype=object)[column.codes]
    values, codes = np.unique(column.numbers, return_inverse=True)
    dates = column.written in DATES
    names = [MISSING if np.isnan(v) else _shown(float(v), dates, 6) for v in values]
    return np.array(names, dtype=object)[codes]


def _largest(tables: Sequence[NDArray[Any]]) -> list[Array]:
    """The cells, with `OTHER` for those of all but the largest groups."""
    counts = Counter(cell for cells in tables for cell in cells.tolist() if cell != MISSING)
    if len(counts) <= MOST_GROUPS:
        return [cells.astype(str) for cells in tables]
    kept = {MISSING, *sorted(counts, key=lambda cell: (-counts[cell], cell))[: MOST_GROUPS - 1]}
    return [np.array([cell if cell in kept else OTHER for cell in cells.tolist()]) for cells in tables]


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
    names = np.array([f"up to {last[0]}", *middle, f"{first[-1]} or {more}", MISSING])
    return [names[np.where(np.isnan(own), len(names) - 1, np.searchsorted(ends, own))] for own in tables]


def _shown(value: float, dates: bool, digits: int) -> str:
    if dates and abs(value) < 1_000_000:
        return str(date(1970, 1, 1) + timedelta(days=int(value)))
    return f"{value:.{digits}g}" if value != round(value) or abs(value) >= 1e15 else f"{int(value)}"

"""Names feature columns that say the same."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fedsaddle.data.files.column_names import shown
from fedsaddle.data.files.raw_table import RawColumn
from fedsaddle.data.table import Array

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

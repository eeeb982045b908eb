"""What a site says of its columns, never of a row, so that all sites can encode alike; of training rows only.

Of a number column: how many cells are there and missing, mean and sums of squares and cubes of the deviations, of the
numbers and of their logs; later, counts between agreed edges. Of a category column: how often each value occurs.
Facts of several sites are arrays with an axis of sites, so that a simulation takes them of all sites in one pass and
merges them with the same arithmetic, bit for bit, as a server that collects them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.encoded import signed_log
from fedsaddle.data.files.encode import is_constant
from fedsaddle.data.files.raw_table import RawColumn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = 400  # between -5 and 5 standard deviations
REACH = 5.0


class Shape(NamedTuple):
    """Mean, standard deviation and skewness of all sites' cells together."""

    mean: float
    std: float
    skew: float
    flat: bool = False  # all cells are alike


@dataclass(frozen=True, eq=False)
class Moments:
    """Of each site's cells: mean, and sums of the squares and cubes of the deviations from it, (S,)."""

    mean: Floats
    squares: Floats
    cubes: Floats

    @classmethod
    def of(cls, cells: Floats, ends: Ints) -> Moments:
        """Of cells that lie site by site; site i has `cells[ends[i] : ends[i + 1]]`."""
        count = np.diff(ends)
        mean = _sums(cells, ends) / np.maximum(count, 1)
        away = cells - np.repeat(mean, count)
        square = away * away
        return cls(mean, _sums(square, ends), _sums(square * away, ends))

    def merged(self, count: Ints) -> Shape:
        """Over all sites, which have `count (S,)` cells."""
        n = int(count.sum())
        if n == 0:
            return Shape(0.0, 1.0, 0.0)
        mean = float((count * self.mean).sum() / n)
        away = self.mean - mean
        squares = float((self.squares + count * away**2).sum())
        cubes = float((self.cubes + 3 * away * self.squares + count * away**3).sum())
        std = np.sqrt(squares / n)
        if is_constant(mean, std):
            return Shape(mean, 1.0, 0.0, flat=True)
        cubed = std**3  # 0 by underflow in very small units
        return Shape(mean, float(std), float(cubes / n / cubed) if cubed else 0.0)


@dataclass(frozen=True, eq=False)
class NumberFacts:
    """A number column at each of S sites."""

    name: str
    count: Ints  # cells that are there, (S,)
    missing: Ints
    plain: Moments
    logs: Moments

    @classmethod
    def of(cls, column: RawColumn, rows: Ints, ends: Ints) -> NumberFacts:
        """Of the rows of each site: site i has `rows[ends[i] : ends[i + 1]]`."""
        assert column.numbers is not None
        cells = column.numbers[rows]
        there = ~np.isnan(cells)
        count = np.diff(np.concatenate([[0], np.cumsum(there)])[ends])
        cells = cells if there.all() else cells[there]
        own = np.concatenate([[0], np.cumsum(count)])
        with np.errstate(over="ignore", invalid="ignore"):
            plain, logs = Moments.of(cells, own), Moments.of(signed_log(cells), own)
        return cls(column.name, count, np.diff(ends) - count, plain, logs)

    def to_dict(self) -> dict[str, Any]:
        """The facts of a single site, as plain JSON."""
        moments = {k: [float(v[0]) for v in (m.mean, m.squares, m.cubes)] for k, m in self._both().items()}
        return {"name": self.name, "count": int(self.count[0]), "missing": int(self.missing[0]), **moments}

    @classmethod
    def from_dicts(cls, facts: Sequence[Mapping[str, Any]]) -> NumberFacts:
        """The facts of several sites."""
        count, missing = (np.array([one[k] for one in facts], dtype=np.int64) for k in ("count", "missing"))
        plain, logs = (
            Moments(*np.array([one.get(k, (0.0, 0.0, 0.0)) for one in facts], dtype=np.float64).T)
            for k in ("plain", "logs")
        )
        return cls(facts[0]["name"], count, missing, plain, logs)

    def _both(self) -> dict[str, Moments]:
        return {"plain": self.plain, "logs": self.logs}


@dataclass(frozen=True)
class CategoryFacts:
    """A category column of all sites together: how often each value occurs, and how many cells are missing."""

    name: str
    counts: Mapping[str, int]
    missing: int
    other: int = 0  # cells of values that are not named: they are too rare at their sites

    @classmethod
    def of(cls, column: RawColumn, rows: Ints) -> CategoryFacts:
        """Of some rows."""
        assert column.codes is not None
        counts = np.bincount(column.codes[rows] + 1, minlength=len(column.categories) + 1).tolist()
        return cls(column.name, {c: n for c, n in zip(column.categories, counts[1:], strict=True) if n}, counts[0])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"name": self.name, "counts": dict(self.counts), "missing": self.missing, "other": self.other}

    @classmethod
    def from_dicts(cls, facts: Sequence[Mapping[str, Any]]) -> CategoryFacts:
        """The facts of several sites, merged."""
        total: dict[str, int] = {}
        for one in facts:
            for value, n in one.get("counts", {}).items():
                total[value] = total.get(value, 0) + n
        missing, other = (sum(one.get(key, 0) for one in facts) for key in ("missing", "other"))
        return cls(facts[0]["name"], dict(sorted(total.items())), missing, other)


def count_between(z: Floats) -> Ints:
    """How many standardised numbers lie in each of `BINS` bins; what is further out counts in the outermost ones."""
    return np.bincount(bin_of(z[~np.isnan(z)]), minlength=BINS)


def bin_of(z: Floats) -> Ints:
    """The bin of each standardised number."""
    return np.clip((z + REACH) / (2 * REACH / BINS), 0, BINS - 1).astype(np.int64)


def quantile(counts: Ints, share: float) -> float:
    """The middle of the bin in which the quantile lies."""
    total = np.cumsum(counts)
    at = int(np.searchsorted(total, share * total[-1]))
    return (at + 0.5) * 2 * REACH / BINS - REACH


def _sums(values: Floats, ends: Ints) -> Floats:
    """The sum of each site's stretch; 0 for an empty one."""
    out = np.zeros(len(ends) - 1)
    there = np.diff(ends) > 0
    if there.any():
        out[there] = np.add.reduceat(values, ends[:-1][there])
    return out

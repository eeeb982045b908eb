"""Statistics of each site's columns, never of a row, and the treatment of each column that follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.table import Encoded, is_constant
from fedsaddle.data.tables.columns import RawColumn
from fedsaddle.data.tables.encode_rows import signed_log
from fedsaddle.files import Json, JsonObject

BINS = 400  # between -5 and 5 standard deviations
REACH = 5.0


class Shape(NamedTuple):
    """Mean, standard deviation and skewness of all sites' cells together."""

    mean: float
    std: float
    skew: float
    flat: bool = False  # all cells are alike


@dataclass(frozen=True, eq=False)
class ColumnMoments:
    """Of each site's cells: mean, and sums of the squares and cubes of the deviations from it, (S,)."""

    mean: Floats
    squares: Floats
    cubes: Floats

    @classmethod
    def of(cls, cells: Floats, ends: Ints) -> ColumnMoments:
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
    plain: ColumnMoments
    logs: ColumnMoments

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
            plain, logs = ColumnMoments.of(cells, own), ColumnMoments.of(signed_log(cells), own)
        return cls(column.name, count, np.diff(ends) - count, plain, logs)

    def to_dict(self) -> dict[str, Json]:
        """The facts of a single site, as plain JSON."""
        moments = {k: [float(v[0]) for v in (m.mean, m.squares, m.cubes)] for k, m in self._both().items()}
        return {"name": self.name, "count": int(self.count[0]), "missing": int(self.missing[0]), **moments}

    @classmethod
    def from_dicts(cls, facts: Sequence[JsonObject]) -> NumberFacts:
        """The facts of several sites."""
        count, missing = (np.array([one[k] for one in facts], dtype=np.int64) for k in ("count", "missing"))
        plain, logs = (
            ColumnMoments(*np.array([one.get(k, (0.0, 0.0, 0.0)) for one in facts], dtype=np.float64).T)
            for k in ("plain", "logs")
        )
        return cls(facts[0]["name"], count, missing, plain, logs)

    def _both(self) -> dict[str, ColumnMoments]:
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

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON."""
        return {"name": self.name, "counts": dict(self.counts), "missing": self.missing, "other": self.other}

    @classmethod
    def from_dicts(cls, facts: Sequence[JsonObject]) -> CategoryFacts:
        """The facts of several sites, merged."""
        total: dict[str, int] = {}
        for one in facts:
            for value, n in one.get("counts", {}).items():
                total[value] = total.get(value, 0) + n
        missing, other = (sum(one.get(key, 0) for one in facts) for key in ("missing", "other"))
        return cls(facts[0]["name"], dict(sorted(total.items())), missing, other)


def count_between(z: Floats) -> Ints:
    """How many standardised numbers lie in each of `BINS` bins; numbers beyond count in the outermost ones."""
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
    """The sum of each site's cells; 0 for an empty site."""
    out = np.zeros(len(ends) - 1)
    there = np.diff(ends) > 0
    if there.any():
        out[there] = np.add.reduceat(values, ends[:-1][there])
    return out


SKEWED = 2.0  # skewness beyond which a column is logged
CLIP = 5.0  # standard deviations
LEAST_ROWS = 10  # of a category; those with fewer are pooled
LEAST_MISSING = 10  # cells for a missing flag
MOST_CATEGORIES = 100  # features of one column
MOST_INTERCEPTS = 500  # sites with an intercept of their own: the largest ones
LEAST_SHAPES = 8  # different values that a column with hinges has, about


@dataclass(frozen=True)
class Treatment:
    """The settings that are agreed before any row is read."""

    standardise: bool = True  # False: numbers as they are, filled
    hinges: int = 0  # of each number column
    site_intercept: bool = False
    minimum_cell: int = 1  # smallest count that a site discloses
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)  # column -> its values, where they are listed


def treat_numbers(facts: NumberFacts, how: Treatment) -> Encoded:
    """How a number column is transformed; what fills its gaps follows from the median."""
    plain, logs = facts.plain.merged(facts.count), facts.logs.merged(facts.count)
    log = how.standardise and plain.skew > SKEWED and abs(logs.skew) < plain.skew
    shape = logs if log else plain
    return Encoded(facts.name, log=log, mean=shape.mean, std=shape.std, clip=CLIP if how.standardise else None)


def number_features(draft: Encoded, counts: Ints, missing: int, how: Treatment) -> list[Encoded]:
    """The features of a number column, from counts of its standardised cells."""
    median = quantile(counts, 0.5) if counts.sum() else 0.0
    fill = _back(draft, median)
    if how.standardise:
        number = replace(draft, fill=fill)
    else:
        number = Encoded(draft.column, fill=fill, written=draft.written)
    features = [number]
    if missing >= LEAST_MISSING:
        features.append(Encoded(draft.column, "missing", written=draft.written))
    if how.hinges and (counts > 0).sum() >= LEAST_SHAPES:
        knots = {quantile(counts, (k + 1) / (how.hinges + 1)) for k in range(how.hinges)}
        features += [replace(number, kind="hinge", knot=knot) for knot in sorted(knots)]
    return features


def category_features(facts: CategoryFacts, listed: Sequence[str] = ()) -> list[Encoded]:
    """A feature for each frequent value, one for the rest together and one for missing cells.

    Where the config lists the values, each of them has a feature. Of two values that are never missing, one feature is
    enough.
    """
    counts = {**dict.fromkeys(listed, 0), **facts.counts}
    frequent = sorted(counts, key=lambda value: (-counts[value], value))[:MOST_CATEGORIES]
    named = sorted(value for value in frequent if counts[value] >= LEAST_ROWS) or sorted(frequent[:2])
    named = sorted(set(listed)) or named
    rest = sum(counts.values()) + facts.other - sum(counts[value] for value in named)
    if len(named) == 2 and not rest and facts.missing < LEAST_MISSING:
        named = [min(named, key=lambda value: (counts[value], value))]
    features = [Encoded(facts.name, "category", category=value) for value in named]
    if rest:
        features.append(Encoded(facts.name, "other", known=tuple(named)))
    if facts.missing >= LEAST_MISSING:
        features.append(Encoded(facts.name, "missing"))
    return features


def site_features(column: str, names: Sequence[str], sizes: Ints) -> list[Encoded]:
    """An intercept for each site, or for the largest ones if there are very many; `sizes` are training rows."""
    largest = np.sort(np.argsort(-sizes, kind="stable")[:MOST_INTERCEPTS])
    total = int(sizes.sum())
    return [
        Encoded(column, "site", category=names[i], unknown=float(sizes[i] / total)) for i in largest if sizes[i] > 0
    ]


def standardised(draft: Encoded, cells: Floats) -> Floats:
    """The cells in standard deviations, NaN where they are missing; these are counted in bins."""
    return np.asarray(((signed_log(cells) if draft.log else cells) - draft.mean) / draft.std)


def _back(draft: Encoded, z: float) -> float:
    """The cell that is `z` standard deviations from the mean."""
    v = draft.mean + z * draft.std
    return float(np.copysign(np.expm1(abs(v)), v)) if draft.log else float(v)

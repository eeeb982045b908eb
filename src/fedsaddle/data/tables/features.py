"""Features of a table or an array, made after the split: the training rows of all sites decide how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Ints
from fedsaddle.data.table import Array, Encoded, Scale, Seen, encode_column
from fedsaddle.data.tables.columns import RawColumn
from fedsaddle.data.tables.small_cells import merge_small_bins, suppress_rare_categories, suppress_small_columns
from fedsaddle.data.tables.treatment import (
    CategoryFacts,
    NumberFacts,
    Treatment,
    category_features,
    number_features,
    site_features,
    treat_numbers,
)


@dataclass(frozen=True, eq=False)
class ArrayFeatures:
    """Rows of an array. Each feature has a mean and a deviation; pixels and other rows with several axes share one."""

    x: Array
    standardise: bool = True
    file: str = ""  # the column of file names that pictures come from

    def fit(self, train: Sequence[Array], names: Sequence[str]) -> FittedArray:
        """Compute mean and deviation."""
        if not self.standardise:
            return FittedArray(Scale(np.zeros(()), np.ones(())), self.file)
        rows = np.concatenate(train)
        whole = len(rows) == len(self.x)
        return FittedArray(Scale.fit(self.x if whole else self.x[rows]), self.file)


@dataclass(frozen=True, eq=False)
class FittedArray:
    """The scale of an array."""

    scale: Scale
    file: str = ""

    @property
    def encoding(self) -> tuple[Encoded, ...]:
        """Of pictures, mean and deviation of all pixels."""
        if not self.file:
            return ()
        return (Encoded(self.file, mean=float(self.scale.mean), std=float(self.scale.std)),)

    @property
    def names(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def seen(self) -> Seen:
        """Empty, as there are no columns."""
        return Seen()

    def apply(self, pending: ArrayFeatures, parts: Sequence[Array], names: Sequence[str]) -> Array:
        """The rows of all parts, standardised."""
        rows = np.concatenate(parts)
        return self.scale.apply(pending.x[rows])


Parts = Sequence[Ints]
BLOCK = 16_384  # rows


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """The columns of a table, and their treatment."""

    columns: tuple[RawColumn, ...]
    how: Treatment
    site: str = "site"  # the name of the site column
    others: tuple[str, ...] = ()  # columns of the table that are no features

    def fit(self, train: Parts, names: Sequence[str]) -> FittedTable:
        """The encoding that the training rows of each site make; `names` are the sites."""
        rows = np.concatenate(train)
        ends = np.concatenate([[0], np.cumsum([len(part) for part in train])]).astype(np.int64)
        features = [feature for column in self.columns for feature in self._fit_column(column, rows, ends)]
        sites = site_features(self.site, names, np.diff(ends)) if self.how.site_intercept else []
        values = {
            column.name: tuple(column.categories[code] for code in np.unique(column.codes[rows]) if code >= 0)
            for column in self.columns
            if column.codes is not None
        }
        return FittedTable(in_order(features, sites), Seen(values, self.others))

    def _fit_column(self, column: RawColumn, rows: Ints, ends: Ints) -> list[Encoded]:
        least = self.how.minimum_cell
        parts = [rows] if least <= 1 else [rows[a:b] for a, b in pairwise(ends.tolist())]  # the same for all, or not
        if column.numbers is None:
            own = [suppress_rare_categories(CategoryFacts.of(column, part), least).to_dict() for part in parts]
            return category_features(CategoryFacts.from_dicts(own), self.how.categories.get(column.name, ()))
        facts = NumberFacts.of(column, rows, ends)
        disclosed = suppress_small_columns(facts, least)
        draft = replace(treat_numbers(disclosed, self.how), written=column.written)
        counts = [merge_small_bins(draft, column.numbers[part], facts, site, least) for site, part in enumerate(parts)]
        return number_features(draft, np.sum(counts, axis=0), int(disclosed.missing.sum()), self.how)

    def encode(self, encoding: Sequence[Encoded], parts: Parts, names: Sequence[str]) -> NDArray[np.float32]:
        """The features of the rows `parts[i]` of the site `names[i]`, site by site; others are new sites."""
        rows = np.concatenate(parts)
        out = np.empty((len(rows), len(encoding)), dtype=np.float32)
        places: dict[str, list[int]] = {}
        for k, feature in enumerate(encoding):
            places.setdefault("" if feature.kind == "site" else feature.column, []).append(k)
        sites = places.pop("", [])
        of = {column.name: column for column in self.columns}
        for first in range(0, len(rows), BLOCK):  # a block of rows fits into the caches
            at = rows[first : first + BLOCK]
            for name, own in places.items():
                column = of[name]
                encode_column(
                    [encoding[k] for k in own],
                    out[first : first + BLOCK],
                    own,
                    None if column.numbers is None else column.numbers[at],
                    None if column.codes is None else column.codes[at],
                    column.categories,
                )
        if sites:
            self._encode_sites([encoding[k] for k in sites], out, sites, parts, names)
        return out

    def _encode_sites(
        self,
        features: Sequence[Encoded],
        out: NDArray[np.float32],
        places: Sequence[int],
        parts: Parts,
        names: Sequence[str],
    ) -> None:
        """Write the features of sites, of one kind for all rows of a site."""
        known = {feature.category: k for k, feature in zip(places, features, strict=True)}
        unknown = np.array([feature.unknown for feature in features], dtype=np.float32)
        block, first = slice(places[0], places[-1] + 1), 0  # they are neighbours
        for part, name in zip(parts, names, strict=True):
            own = out[first : first + len(part), block]
            own[:] = 0.0 if name in known else unknown
            if name in known:
                out[first : first + len(part), known[name]] = 1.0
            first += len(part)

    def missing_shares(self, parts: Parts) -> dict[str, list[float]]:
        """Of each column with gaps, the share of missing cells among each site's rows."""
        shares = {}
        for column in self.columns:
            gaps = np.isnan(column.numbers) if column.numbers is not None else _cells(column) < 0
            if gaps.any():
                shares[column.name] = [float(gaps[part].mean()) if len(part) else 0.0 for part in parts]
        return shares

    def treated(self, **changes: object) -> TableFeatures:
        """The same columns with another treatment."""
        return replace(self, how=replace(self.how, **changes))  # type: ignore[arg-type]


def in_order(features: Sequence[Encoded], sites: Sequence[Encoded]) -> tuple[Encoded, ...]:
    """The features of all columns with hinges at the end, so that a model without hinges uses the first ones."""
    straight, bent = (tuple(f for f in features if (f.kind == "hinge") == hinge) for hinge in (False, True))
    return (*straight, *sites, *bent)


@dataclass(frozen=True)
class FittedTable:
    """The encoding of a table's columns."""

    encoding: tuple[Encoded, ...]
    seen: Seen = Seen()

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(feature.name for feature in self.encoding)

    def apply(self, pending: TableFeatures, parts: Parts, names: Sequence[str]) -> NDArray[np.float32]:
        """Some rows of a table as features."""
        return pending.encode(self.encoding, parts, names)


def _cells(column: RawColumn) -> NDArray[np.float64] | NDArray[np.int32]:
    cells = column.numbers if column.numbers is not None else column.codes
    assert cells is not None
    return cells

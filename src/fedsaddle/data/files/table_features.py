"""Features of a table, made after its rows are split: the training rows of all sites settle the treatment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.encoded import Encoded, encode_column
from fedsaddle.data.files.column_facts import CategoryFacts, Ints, NumberFacts, count_between
from fedsaddle.data.files.raw_table import RawColumn
from fedsaddle.data.files.treatment import (
    Treatment,
    category_features,
    number_features,
    site_features,
    standardised,
    treat_numbers,
)

Parts = Sequence[Ints]


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """The columns of a table, and how they will be treated."""

    columns: tuple[RawColumn, ...]
    how: Treatment
    site: str = "site"  # the name of the site column

    def fit(self, train: Parts, names: Sequence[str]) -> FittedTable:
        """The encoding that the training rows of each site make; `names` are the sites."""
        rows = np.concatenate(train)
        ends = np.concatenate([[0], np.cumsum([len(part) for part in train])]).astype(np.int64)
        found = [feature for column in self.columns for feature in self._fit_column(column, rows, ends)]
        if self.how.site_intercept:
            found += site_features(self.site, names, np.diff(ends))
        return FittedTable(tuple(found))

    def _fit_column(self, column: RawColumn, rows: Ints, ends: Ints) -> list[Encoded]:
        if column.numbers is None:
            return category_features(CategoryFacts.of(column, rows))
        facts = NumberFacts.of(column, rows, ends)
        draft = replace(treat_numbers(facts, self.how), written=column.written)
        counts = count_between(standardised(draft, column.numbers[rows]))
        return number_features(draft, counts, int(facts.missing.sum()), self.how)

    def encode(
        self, encoding: Sequence[Encoded], clients: Parts = (), names: Sequence[str] = ()
    ) -> NDArray[np.float32]:
        """All rows as features; `clients` are all rows of each of the sites `names`, other rows are of new sites."""
        rows = len(next(iter(_cells(c) for c in self.columns)))
        out = np.empty((rows, len(encoding)), dtype=np.float32)
        of = {column.name: column for column in self.columns}
        first = 0
        while first < len(encoding) and encoding[first].kind != "site":
            column, last = of[encoding[first].column], first
            while last < len(encoding) and encoding[last].column == column.name and encoding[last].kind != "site":
                last += 1
            encode_column(encoding[first:last], out[:, first:last], column.numbers, column.codes, column.categories)
            first = last
        sites = encoding[first:]
        if sites:
            out[:, first:] = [feature.unknown for feature in sites]
            at = {feature.category: first + k for k, feature in enumerate(sites)}
            for part, name in zip(clients, names, strict=False):
                if name in at:
                    out[part, first:] = 0.0
                    out[part, at[name]] = 1.0
        return out

    def missing_shares(self, parts: Parts) -> dict[str, list[float]]:
        """Of each column with gaps, the share of missing cells among each site's rows."""
        found = {}
        for column in self.columns:
            gaps = np.isnan(column.numbers) if column.numbers is not None else _cells(column) < 0
            if gaps.any():
                found[column.name] = [float(gaps[part].mean()) if len(part) else 0.0 for part in parts]
        return found

    def treated(self, **changes: object) -> TableFeatures:
        """The same columns with another treatment."""
        return replace(self, how=replace(self.how, **changes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class FittedTable:
    """The encoding of a table's columns."""

    encoding: tuple[Encoded, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names."""
        return tuple(feature.name for feature in self.encoding)

    def apply(self, pending: TableFeatures, clients: Parts, names: Sequence[str]) -> NDArray[np.float32]:
        """All rows of a table as features."""
        return pending.encode(self.encoding, clients, names)


def _cells(column: RawColumn) -> NDArray[np.float64] | NDArray[np.int32]:
    found = column.numbers if column.numbers is not None else column.codes
    assert found is not None
    return found

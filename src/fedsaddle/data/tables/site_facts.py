"""The statistics that a site sends before the first round, never of a single row, as checked documents.

All are of training rows, except the values that labels have. The receiver trusts nothing: names, lengths, signs and
sums must be consistent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedsaddle.data.table import Array, Encoded
from fedsaddle.data.tables.cells import MAX_AUTO_CLASSES, whole
from fedsaddle.data.tables.columns import RawColumn
from fedsaddle.data.tables.features import ArrayFeatures, TableFeatures
from fedsaddle.data.tables.site_file import SiteRows
from fedsaddle.data.tables.small_cells import (
    Disclosure,
    merge_small_bins,
    suppress_rare_categories,
    suppress_rare_labels,
    suppress_small_columns,
)
from fedsaddle.data.tables.treatment import BINS, CategoryFacts, NumberFacts
from fedsaddle.errors import BadInput

MAX_VALUES = 1000  # distinct labels that a site may report
MAX_COLUMNS = 20_000
MAX_ROWS = 10**12
LONGEST_NAME = 1000  # characters of a column, a category or a label
Count = Annotated[int, Field(ge=0, le=MAX_ROWS)]
Name = Annotated[str, Field(max_length=LONGEST_NAME)]
Mean = Annotated[float, Field(ge=-1e39, le=1e39)]
Squares = Annotated[float, Field(ge=0, le=1e100)]
Cubes = Annotated[float, Field(ge=-1e140, le=1e140)]
Moments = Annotated[tuple[Mean, Squares, Cubes], Field(strict=False)]  # a list, too, as JSON has no tuples


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class LabelFacts(_Strict):
    """The values of the label and how often training rows have them; nothing of a regression target.

    Rows of values that are too rare to disclose are `withheld`. With a `positive` label only two counts are sent, of
    negative and of positive rows, or none.
    """

    kind: Literal["real", "whole", "text"]
    values: list[Annotated[int, Field(ge=-(2**53), le=2**53)]] | list[Name] = Field([], max_length=MAX_VALUES)
    counts: list[Count] = Field([], max_length=MAX_VALUES)
    withheld: Count = 0
    positive: Annotated[tuple[Count, Count], Field(strict=False)] | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.values) != len(self.counts) or len(set(self.values)) != len(self.values):
            raise ValueError("a count for each value is needed")
        if any(isinstance(value, int) != (self.kind == "whole") for value in self.values):
            raise ValueError("the values are not of the kind")
        if self.positive is not None and sum(self.positive) != sum(self.counts) + self.withheld:
            raise ValueError("the positive and other rows are not all rows")
        return self


class NumberColumn(_Strict):
    """A column of numbers: cells, missing cells, and mean and sums of squares and cubes of the deviations from it."""

    kind: Literal["number"]
    name: Name
    count: Count
    missing: Count
    plain: Moments
    logs: Moments
    written: Literal["", "decimal comma", "day first", "month first", "hours"] = ""

    @property
    def rows(self) -> int:
        """Cells and missing cells."""
        return self.count + self.missing


class CategoryColumn(_Strict):
    """A column of categories: how often each occurs."""

    kind: Literal["category"]
    name: Name
    counts: dict[Name, Annotated[int, Field(ge=1, le=MAX_ROWS)]]
    missing: Count
    other: Count = 0  # cells of values that are too rare to be named

    @property
    def rows(self) -> int:
        """Cells and missing cells."""
        return sum(self.counts.values()) + self.other + self.missing


class EmptyColumn(_Strict):
    """A column without a cell, or an optional one that the site does not have."""

    kind: Literal["empty"]
    name: Name
    missing: Count

    @property
    def rows(self) -> int:
        """Missing cells."""
        return self.missing


AnyColumn = NumberColumn | CategoryColumn | EmptyColumn
Column = Annotated[AnyColumn, Field(discriminator="kind")]


class ArrayFacts(_Strict):
    """An array: the shape of a row, and mean and sum of squared deviations of each feature or of all pixels."""

    shape: list[Annotated[int, Field(ge=1, le=2**31)]] = Field(min_length=1, max_length=8)
    mean: list[Mean] = []  # empty: not standardised
    squares: list[Squares] = []

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wanted = self.shape[0] if len(self.shape) == 1 else 1
        if len(self.mean) != len(self.squares) or len(self.mean) not in (0, wanted):
            raise ValueError("the moments do not fit the shape")
        return self


class SiteFacts(_Strict):
    """The statistics of a site's rows: counts, labels, and either columns or an array."""

    rows: Annotated[int, Field(ge=1, le=MAX_ROWS)]
    validation_rows: Count
    test_rows: Count
    target: LabelFacts
    columns: list[Column] = Field([], max_length=MAX_COLUMNS)
    array: ArrayFacts | None = None
    left_out: list[Name] = Field([], max_length=MAX_COLUMNS)  # columns that look like identifiers or free text here
    minimum_sites: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 1  # that an average must be of, by the site's policy
    digest: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""  # of all rows, keyed by the run

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = [*(column.name for column in self.columns), *self.left_out]
        if len(set(names)) != len(names):
            raise ValueError("a column stands twice")
        if bool(self.columns) == (self.array is not None):
            raise ValueError("either columns or an array is needed")
        if any(column.rows != self.rows for column in self.columns):
            raise ValueError("a column has another number of rows")
        if self.target.kind != "real" and sum(self.target.counts) + self.target.withheld != self.rows:
            raise ValueError("the labels are not as many as the rows")
        return self


class SiteCounts(_Strict):
    """How many standardised cells of each number column lie in each bin."""

    counts: list[Annotated[list[Count], Field(min_length=BINS, max_length=BINS)]] = Field(max_length=MAX_COLUMNS)


def site_facts(
    rows: SiteRows, disclosure: Disclosure | None = None, minimum_sites: int = 1, key: str | None = None
) -> SiteFacts:
    """The statistics of this site's rows, in which no cell is smaller than `disclosure` allows.

    With the `key` of the run they contain a digest that shows the server whether two sites have the same rows.
    """
    features, disclosure = rows.sources[0].features, disclosure or Disclosure()
    table, array = (features, None) if isinstance(features, TableFeatures) else (None, features)
    return SiteFacts(
        rows=rows.count("train"),
        validation_rows=rows.count("validation"),
        test_rows=rows.count("test"),
        target=_labels(rows, disclosure),
        columns=[] if table is None else [_column(c, rows.train, disclosure.least) for c in table.columns],
        array=None if array is None else _array(array, rows.train),
        left_out=list(rows.left_out),
        minimum_sites=minimum_sites,
        digest="" if key is None else _digest(rows, key),
    )


def _digest(rows: SiteRows, key: str) -> str:
    """A keyed digest of the cells and labels of all rows."""
    made = hmac.new(f"fedsaddle rows {key}".encode(), digestmod=hashlib.sha256)
    features = rows.sources[0].features
    if isinstance(features, TableFeatures):
        for column in sorted(features.columns, key=lambda one: one.name):
            made.update(f"{column.name}\0{chr(0).join(column.categories)}\0".encode("utf-8", "surrogatepass"))
            own = column.codes if column.numbers is None else column.numbers
            made.update(b"" if own is None else np.ascontiguousarray(own).tobytes())
    else:
        made.update(np.ascontiguousarray(features.x).tobytes())
    made.update("\0".join(map(str, rows.sources[0].labels.tolist())).encode("utf-8", "surrogatepass"))
    return made.hexdigest()[:32]


def _labels(rows: SiteRows, disclosure: Disclosure) -> LabelFacts:
    """Of the values in the file; test rows of another file may have no others."""
    own, at = rows.sources[0].labels, rows.train
    values = whole(own, rows.target)
    if values.dtype.kind == "f" or disclosure.task == "regression":
        return LabelFacts(kind="text" if values.dtype.kind == "U" else "real", withheld=len(at))
    found, codes = np.unique(values, return_inverse=True)
    kind: Literal["text", "whole"] = "text" if values.dtype.kind == "U" else "whole"
    if len(found) > MAX_VALUES or (kind == "whole" and disclosure.task == "auto" and len(found) > MAX_AUTO_CLASSES):
        return LabelFacts(kind="real")
    often = np.bincount(codes, minlength=len(found)) >= disclosure.least
    named = often | np.isin(found.astype(str), sorted(disclosure.named))
    counts = np.bincount(codes[at], minlength=len(found))
    disclosed = suppress_rare_labels(counts, disclosure.least)[0]
    positive = None
    if disclosure.positive is not None:
        is_it = np.isin(found.astype(str), sorted(Disclosure(positive=disclosure.positive).named))
        pair = (int(counts[~is_it].sum()), int(counts[is_it].sum()))
        positive = pair if suppress_rare_labels(pair, disclosure.least)[1] == 0 else None
        disclosed = [0] * len(found)
    disclosed = [n if name else 0 for n, name in zip(disclosed, named, strict=True)]
    return LabelFacts(
        kind=kind,
        values=found[named].tolist(),
        counts=np.array(disclosed)[named].tolist(),
        withheld=len(at) - sum(disclosed),
        positive=positive,
    )


def _column(column: RawColumn, train: Array, least: int) -> AnyColumn:
    if column.kind == "category":
        words = suppress_rare_categories(CategoryFacts.of(column, train), least)
        if words.counts or words.other or least <= 1:
            return CategoryColumn(kind="category", **words.to_dict())
    if column.kind == "number":
        numbers = suppress_small_columns(NumberFacts.of(column, train, np.array([0, len(train)])), least)
        if numbers.count[0] or least <= 1:
            return NumberColumn.model_validate({"kind": "number", **numbers.to_dict(), "written": column.written})
    return EmptyColumn(kind="empty", name=column.name, missing=len(train))


def _array(features: ArrayFeatures, train: Array) -> ArrayFacts:
    x = features.x if len(train) == len(features.x) else features.x[train]
    shape = list(x.shape[1:])
    if not features.standardise:
        return ArrayFacts(shape=shape)
    axis = 0 if x.ndim == 2 else None
    mean = np.mean(x, axis=axis, dtype=np.float64)
    squares = np.square(x - mean).sum(axis=axis)
    return ArrayFacts(shape=shape, mean=np.atleast_1d(mean).tolist(), squares=np.atleast_1d(squares).tolist())


def site_counts(rows: SiteRows, drafts: Sequence[dict[str, object]], least: int = 1) -> SiteCounts:
    """Counts of the cells of number columns between edges that all sites share."""
    features = rows.sources[0].features
    own = {c.name: c for c in features.columns} if isinstance(features, TableFeatures) else {}
    counts = []
    for draft in map(Encoded.from_dict, drafts):
        column = own.get(draft.column)
        if column is None or column.numbers is None:
            raise BadInput("column", draft.column, "is no number column of this site's file; use the same file again")
        facts = NumberFacts.of(column, rows.train, np.array([0, len(rows.train)]))
        counts.append(merge_small_bins(draft, column.numbers[rows.train], facts, 0, least).tolist())
    return SiteCounts(counts=counts)

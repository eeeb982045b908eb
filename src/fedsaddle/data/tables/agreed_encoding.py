"""The statistics that a site sends before the first round, and the encoding that the statistics of all sites give.

The statistics are of training rows, except the values of labels, and never of a single row. The receiver trusts
nothing: names, lengths, signs and sums must be consistent. The encoding is bit for bit that of one pooled file with the
training rows of all sites, because a simulated federation merges its statistics with the same arithmetic.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedsaddle.array_types import Ints
from fedsaddle.data.table import Array, Encoded, Scale, Table, ordinal
from fedsaddle.data.tables.columns import MAX_AUTO_CLASSES, RawColumn, need_numbers, shown, whole
from fedsaddle.data.tables.features import ArrayFeatures, FittedArray, TableFeatures, in_order
from fedsaddle.data.tables.judge import no_categories
from fedsaddle.data.tables.read import ColumnChoice, two_classes
from fedsaddle.data.tables.site_file import SiteRows, Source
from fedsaddle.data.tables.small_cells import (
    Disclosure,
    merge_small_bins,
    suppress_rare_categories,
    suppress_rare_labels,
    suppress_small_columns,
)
from fedsaddle.data.tables.treatment import (
    BINS,
    CategoryFacts,
    NumberFacts,
    Treatment,
    category_features,
    number_features,
    site_features,
    treat_numbers,
)
from fedsaddle.errors import BadInput
from fedsaddle.files import JsonObject

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
    labels, codes = np.unique(values, return_inverse=True)
    kind: Literal["text", "whole"] = "text" if values.dtype.kind == "U" else "whole"
    if len(labels) > MAX_VALUES or (kind == "whole" and disclosure.task == "auto" and len(labels) > MAX_AUTO_CLASSES):
        return LabelFacts(kind="real")
    often = np.bincount(codes, minlength=len(labels)) >= disclosure.least
    named = often | np.isin(labels.astype(str), sorted(disclosure.named))
    counts = np.bincount(codes[at], minlength=len(labels))
    disclosed = suppress_rare_labels(counts, disclosure.least)[0]
    positive = None
    if disclosure.positive is not None:
        is_it = np.isin(labels.astype(str), sorted(Disclosure(positive=disclosure.positive).named))
        pair = (int(counts[~is_it].sum()), int(counts[is_it].sum()))
        positive = pair if suppress_rare_labels(pair, disclosure.least)[1] == 0 else None
        disclosed = [0] * len(labels)
    disclosed = [n if name else 0 for n, name in zip(disclosed, named, strict=True)]
    return LabelFacts(
        kind=kind,
        values=labels[named].tolist(),
        counts=np.array(disclosed)[named].tolist(),
        withheld=len(at) - sum(disclosed),
        positive=positive,
    )


def _column(column: RawColumn, train: Array, least: int) -> AnyColumn:
    if column.kind == "category":
        words = suppress_rare_categories(CategoryFacts.of(column, train), least)
        if words.counts or words.other or least <= 1:
            return CategoryColumn.model_validate({"kind": "category", **words.to_dict()})
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


def site_counts(rows: SiteRows, drafts: Sequence[JsonObject], least: int = 1) -> SiteCounts:
    """Counts of the cells of number columns between edges that all sites share."""
    features = rows.sources[0].features
    own = {c.name: c for c in features.columns} if isinstance(features, TableFeatures) else {}
    counts = []
    for draft in map(Encoded.from_dict, drafts):
        column = own.get(draft.column)
        if column is None or column.numbers is None:
            raise BadInput("column", draft.column, "is not a number column of this site's file; use the same file")
        facts = NumberFacts.of(column, rows.train, np.array([0, len(rows.train)]))
        counts.append(merge_small_bins(draft, column.numbers[rows.train], facts, 0, least).tolist())
    return SiteCounts(counts=counts)


Agreed = JsonObject
H = TypeVar("H", bound=Hashable)


class UnknownLabel(BadInput):
    """A label that is not among the classes of the run."""


def merge_labels(facts: Sequence[SiteFacts], names: Sequence[str], disclosure: Disclosure, target: str) -> Agreed:
    """The classes, None for a regression target, and how many training rows have each, as far as sites disclose them.

    With a positive label, that value of the column `target` is class 1 and all others are class 0.
    """
    values, positive = _classes(facts, names, disclosure), disclosure.positive
    if values is None:
        if positive is not None:
            two_classes((), positive, target)
        return {"values": None, "classes": None, "counts": []}
    counts = label_counts(facts, values).sum(axis=0).tolist()
    agreed: Agreed = {"values": values, "classes": [str(value) for value in values], "counts": counts}
    if positive is not None:
        index, both = two_classes(agreed["classes"], positive, target)
        pairs = [one.target.positive for one in facts if one.target.positive is not None]
        agreed |= {"classes": list(both), "counts": [sum(own[k] for own in pairs) for k in (0, 1)], "positive": index}
    if not any(agreed["counts"]):
        remedy = "every site has too few rows of a class to tell (minimum_cell); bring more rows, or agree on fewer"
        raise BadInput("label counts", 0, remedy)
    return agreed


def odd_one_out(values: Sequence[H]) -> tuple[int | None, H]:
    """The place of the first value that is not the most common one, None if all are alike, and the most common one."""
    usual = Counter(values).most_common(1)[0][0]
    return next((place for place, value in enumerate(values) if value != usual), None), usual


def label_counts(facts: Sequence[SiteFacts], values: Sequence[object]) -> Ints:
    """How many training rows of each site have each of the values."""
    own = [dict(zip(one.target.values, one.target.counts, strict=True)) for one in facts]
    return np.array([[one.get(value, 0) for value in values] for one in own], dtype=np.int64)


def _classes(facts: Sequence[SiteFacts], names: Sequence[str], disclosure: Disclosure) -> list[Any] | None:
    """The sorted labels; None for a regression target."""
    kinds, task = {one.target.kind for one in facts}, disclosure.task
    if "text" in kinds and len(kinds) > 1:
        forms = ["texts" if one.target.kind == "text" else "numbers" for one in facts]
        odd, usual = odd_one_out(forms)
        assert odd is not None
        remedy = f"other sites have {usual}; write the labels in the same way at all sites"
        raise BadInput(f"target of {names[odd]}", forms[odd], remedy)
    labels = {value for one in facts for value in one.target.values}
    values = sorted(labels | set(listed_labels(disclosure.classes, "text" in kinds)))
    many = "whole" in kinds and len(values) > MAX_AUTO_CLASSES
    if task == "regression" or (task == "auto" and ("real" in kinds or many)):
        return None
    if "real" in kinds:
        raise BadInput("task", task, "the target has real values; use 'regression'")
    if len(values) < 2:
        raise BadInput("classes of all sites", values, "training needs two classes or more; choose another target")
    return values


def listed_labels(classes: Sequence[str], texts: bool) -> list[Any]:
    """The labels that the config lists, as texts or as whole numbers."""
    if texts:
        return list(classes)
    try:
        return [int(label) for label in classes]
    except ValueError:
        raise BadInput("classes", list(classes), "the labels at the sites are whole numbers; list them so") from None


@dataclass(frozen=True, eq=False)
class AgreedColumns:
    """The columns that all sites share, with the facts of all sites; `notes` say which were left out."""

    columns: tuple[NumberFacts | CategoryFacts, ...]
    drafts: tuple[Encoded, ...]  # of the number columns, in order
    how: Treatment
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, facts: Sequence[SiteFacts], names: Sequence[str], how: Treatment, choice: ColumnChoice
    ) -> AgreedColumns:
        """Merge the facts of all sites; the error names a site that lacks a column or has another kind."""
        columns: list[NumberFacts | CategoryFacts] = []
        drafts: list[Encoded] = []
        notes: list[str] = []
        tables = [{column.name: column for column in one.columns} for one in facts]
        for name in _shared_names(facts, names, notes):
            merged, written = _merge(name, [own[name] for own in tables], names)
            listed = choice.features is not None or name in (*choice.numeric, *choice.categorical)
            why = None if listed else _nothing_in(merged)
            if why is not None:
                notes.append(f"column {shown(name)} is left out: {why}")
                continue
            columns.append(merged)
            if isinstance(merged, NumberFacts):
                drafts.append(replace(treat_numbers(merged, how), written=written))
        if not columns:
            raise BadInput("features", list(choice.features or ()), "no column is left to learn from")
        return cls(tuple(columns), tuple(drafts), how, tuple(notes))

    def encoding(
        self, counts_of_sites: Sequence[SiteCounts], names: Sequence[str], sizes: Ints, site_column: str
    ) -> list[Encoded]:
        """The features, from the counts of all sites; `sizes` are training rows."""
        features: list[Encoded] = []
        number = 0
        for merged in self.columns:
            if isinstance(merged, CategoryFacts):
                features += category_features(merged, self.how.categories.get(merged.name, ()))
                continue
            counts = np.array([one.counts[number] for one in counts_of_sites], dtype=np.int64).sum(axis=0)
            features += number_features(self.drafts[number], counts, int(merged.missing.sum()), self.how)
            number += 1
        sites = site_features(site_column, names, sizes) if self.how.site_intercept else []
        return [*in_order(features, sites)]

    def expected(self, site: int) -> list[int]:
        """How many cells the counts of a site must sum up to, for each draft."""
        return [int(c.count[site]) for c in self.columns if isinstance(c, NumberFacts)]


def _shared_names(facts: Sequence[SiteFacts], names: Sequence[str], notes: list[str]) -> list[str]:
    """The columns, in the order of the site that knows most of them; what one site leaves out, all do."""
    most = max(facts, key=lambda one: sum(not isinstance(column, EmptyColumn) for column in one.columns))
    every = [*most.columns, *(column for one in facts for column in one.columns)]
    order = list(dict.fromkeys(column.name for column in every))
    out: dict[str, list[str]] = {}
    for one, site in zip(facts, names, strict=True):
        for name in one.left_out:
            out.setdefault(name, []).append(site)
    for one, site in zip(facts, names, strict=True):
        own = {column.name for column in one.columns}
        lacking = next((name for name in order if name not in own and name not in out), None)
        if lacking is not None:
            having = [at for at, other in zip(names, facts, strict=True) if lacking in {c.name for c in other.columns}]
            if 2 * len(having) < len(names):
                remedy = "most sites have no such column; remove it there, or list it in optional_columns or drop"
                raise BadInput(f"columns of {having[0]}", lacking, remedy)
            remedy = "the file there lacks a column that others have; add it, or list it in optional_columns or drop"
            raise BadInput(f"columns of {site}", f"no {lacking!r}", remedy)
    for name, sites in out.items():
        where = ", ".join(sites[:3]) + (f" and {len(sites) - 3} more sites" if len(sites) > 3 else "")
        notes.append(f"column {shown(name)} is left out: at {where} it looks like an identifier or free text")
    return [name for name in order if name not in out]


def _merge(name: str, own: Sequence[AnyColumn], names: Sequence[str]) -> tuple[NumberFacts | CategoryFacts, str]:
    """The facts of all sites about a column, and how its numbers are written."""
    kinds = {column.kind for column in own} - {"empty"}
    if len(kinds) > 1:
        at = {column.kind: site for site, column in zip(reversed(names), reversed(own), strict=True)}
        remedy = (
            f"but categories at {at['category']}; write it alike, or list it in `categorical`, in `numeric` (words "
            "become missing) or in `drop`"
        )
        raise BadInput(f"column {shown(name)} of {at['number']}", "numbers", remedy)
    columns = [{"count": 0, **column.model_dump()} for column in own]
    if kinds == {"category"}:
        return CategoryFacts.from_dicts(columns), ""
    written = next((c.written for c in own if isinstance(c, NumberColumn) and c.written), "")
    return NumberFacts.from_dicts(columns), written


def _nothing_in(merged: NumberFacts | CategoryFacts) -> str | None:
    """Why a column that was not selected is not informative, as for one pooled file."""
    if isinstance(merged, CategoryFacts):
        one = len(merged.counts) == 1 and not merged.missing and not merged.other
        return "it has one value at all sites" if one else no_categories(merged.name, merged.counts)
    if not merged.count.sum():
        return "all cells are missing at all sites"
    if not merged.missing.sum() and merged.plain.merged(merged.count).flat:
        return "it has one value at all sites"
    return None


def merge_arrays(facts: Sequence[SiteFacts], names: Sequence[str]) -> Agreed:
    """The shape of a row, and mean and deviation of each feature, or of all pixels."""
    arrays = [one.array for one in facts if one.array is not None]
    first = arrays[0]
    odd, usual = odd_one_out([tuple(own.shape) for own in arrays])
    if odd is not None:
        remedy = f"other sites have {list(usual)}; all sites need the same"
        raise BadInput(f"shape of rows of {names[odd]}", arrays[odd].shape, remedy)
    if any(len(own.mean) != len(first.mean) for own in arrays):
        raise BadInput("standardise", "different", "all sites need the same config")
    if not first.mean:
        return {"shape": first.shape, "mean": 0.0, "std": 1.0}
    pixels = 1 if len(first.shape) == 1 else int(np.prod(first.shape))
    count = np.array([[one.rows * pixels] for one in facts], dtype=np.float64)
    means, squares = (np.array([getattr(own, key) for own in arrays]) for key in ("mean", "squares"))
    mean = (count * means).sum(axis=0) / count.sum()
    std = np.sqrt((squares + count * np.square(means - mean)).sum(axis=0) / count.sum())
    scale = Scale.from_moments(mean, std)
    single = len(first.shape) > 1
    return {
        "shape": first.shape,
        "mean": float(scale.mean[0]) if single else scale.mean.tolist(),
        "std": float(scale.std[0]) if single else scale.std.tolist(),
    }


def encode(rows: SiteRows, agreed: Agreed, site: str) -> tuple[Table, Table, Table]:
    """This site's training, validation and test rows as the agreed features; the last two tables may be empty."""
    made = [_features(source, agreed, site) for source in rows.sources]
    labels = [_codes(source.labels, rows.target, agreed) for source in rows.sources]
    classes, names = tuple(agreed["classes"] or ()), tuple(e.name for e in encoding_of(agreed))
    tables = []
    for part in ("train", "validation", "test"):
        at, own = rows.parts[part]
        table = Table.of(made[at][own], labels[at][own], None, classes, names)
        if part == "train" or len(table):
            table.check()
        tables.append(table)
    return tables[0], tables[1], tables[2]


def encoding_of(agreed: Agreed) -> tuple[Encoded, ...]:
    """How each feature is made from a column; empty for arrays."""
    return tuple(Encoded.from_dict(feature) for feature in agreed.get("features", ()))


def _features(source: Source, agreed: Agreed, site: str) -> Array:
    features = source.features
    if not isinstance(features, TableFeatures):
        scale = Scale(np.asarray(agreed["array"]["mean"]), np.asarray(agreed["array"]["std"]))
        return FittedArray(scale).apply(features, [np.arange(len(source))], [site])
    encoding = encoding_of(agreed)
    words = {e.column for e in encoding if e.kind in ("category", "other")}
    _check_columns(features, encoding, words)
    columns = tuple(
        replace(c, numbers=None, codes=np.full(len(source), -1, dtype=np.int32))
        if c.name in words and c.kind == "empty" and c.numbers is not None
        else c
        for c in features.columns
    )
    return replace(features, columns=columns).encode(encoding, [np.arange(len(source))], [site])


def _check_columns(features: TableFeatures, encoding: Sequence[Encoded], words: set[str]) -> None:
    """Raise `BadInput` for a file other than the one that the site's facts came from."""
    own = {column.name: column.kind for column in features.columns}
    for feature in encoding:
        if feature.kind == "site":
            continue
        kind = own.get(feature.column)
        wanted = "category" if feature.column in words else "number" if feature.kind in ("number", "hinge") else kind
        if kind is None or kind not in (wanted, "empty"):
            remedy = "is no longer what the sites agreed on; use the same file again, or begin a new run"
            raise BadInput(f"column {shown(feature.column)}", kind, remedy)


def _codes(cells: Array, target: str, agreed: Mapping[str, object]) -> Array:
    if agreed["classes"] is None:
        return need_numbers(cells, target)
    if not len(cells):
        return np.zeros(0, dtype=np.int64)
    known = np.array(agreed["values"])
    own = cells.astype(str) if known.dtype.kind == "U" else need_numbers(cells, target)
    codes = ordinal(own, known)
    if (codes < 0).any() and "positive" not in agreed:
        odd = str(cells[int(np.argmin(codes))])
        remedy = "is not among the classes of the run: too rare everywhere to disclose; list all labels in `classes`"
        raise UnknownLabel(f"column '{target}'", odd, remedy)
    return (codes == agreed["positive"]).astype(np.int64) if "positive" in agreed else codes

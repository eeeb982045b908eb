"""The encoding that the facts of all sites make: classes, and features from columns or arrays.

It is bit for bit the encoding of one pooled file whose training rows are those of all sites, because the facts of a
simulated federation are merged with the same arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedsaddle.array_types import Ints
from fedsaddle.data.table import Array, Encoded, Scale, Table, ordinal
from fedsaddle.data.tables.cells import MAX_AUTO_CLASSES, need_numbers
from fedsaddle.data.tables.columns import shown
from fedsaddle.data.tables.features import FittedArray, TableFeatures, in_order
from fedsaddle.data.tables.judge import no_categories
from fedsaddle.data.tables.read import ColumnChoice, two_classes
from fedsaddle.data.tables.site_facts import AnyColumn, EmptyColumn, NumberColumn, SiteCounts, SiteFacts
from fedsaddle.data.tables.site_file import SiteRows, Source
from fedsaddle.data.tables.small_cells import Disclosure
from fedsaddle.data.tables.treatment import (
    CategoryFacts,
    NumberFacts,
    Treatment,
    category_features,
    number_features,
    site_features,
    treat_numbers,
)
from fedsaddle.errors import BadInput

Agreed = dict[str, Any]  # plain JSON
H = TypeVar("H", bound=Hashable)


class UnknownLabel(BadInput):
    """A label that is not among the classes of the run."""


def merge_labels(facts: Sequence[SiteFacts], names: Sequence[str], disclosure: Disclosure, target: str) -> Agreed:
    """The classes, None for a regression target, and how many training rows have each, as far as sites tell.

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
        told = [one.target.positive for one in facts if one.target.positive is not None]
        agreed |= {"classes": list(both), "counts": [sum(own[k] for own in told) for k in (0, 1)], "positive": index}
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
        said = ["texts" if one.target.kind == "text" else "numbers" for one in facts]
        odd, usual = odd_one_out(said)
        assert odd is not None
        remedy = f"other sites have {usual}; write the labels in the same way at all sites"
        raise BadInput(f"target of {names[odd]}", said[odd], remedy)
    told = {value for one in facts for value in one.target.values}
    values = sorted(told | set(listed_labels(disclosure.classes, "text" in kinds)))
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
        """Merge what the sites say; one that lacks a column, or has another kind, is named."""
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
        self, told: Sequence[SiteCounts], names: Sequence[str], sizes: Ints, site_column: str
    ) -> list[Encoded]:
        """The features, from the counts of all sites; `sizes` are training rows."""
        found: list[Encoded] = []
        number = 0
        for merged in self.columns:
            if isinstance(merged, CategoryFacts):
                found += category_features(merged, self.how.categories.get(merged.name, ()))
                continue
            counts = np.array([one.counts[number] for one in told], dtype=np.int64).sum(axis=0)
            found += number_features(self.drafts[number], counts, int(merged.missing.sum()), self.how)
            number += 1
        sites = site_features(site_column, names, sizes) if self.how.site_intercept else []
        return [*in_order(found, sites)]

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
    told = [{"count": 0, **column.model_dump()} for column in own]
    if kinds == {"category"}:
        return CategoryFacts.from_dicts(told), ""
    written = next((c.written for c in own if isinstance(c, NumberColumn) and c.written), "")
    return NumberFacts.from_dicts(told), written


def _nothing_in(merged: NumberFacts | CategoryFacts) -> str | None:
    """Why there is nothing to learn from a column that was not asked for, as for one pooled file."""
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


def encode(rows: SiteRows, agreed: Mapping[str, Any], site: str) -> tuple[Table, Table, Table]:
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


def encoding_of(agreed: Mapping[str, Any]) -> tuple[Encoded, ...]:
    """How each feature is made from a column; empty for arrays."""
    return tuple(Encoded.from_dict(feature) for feature in agreed.get("features", ()))


def _features(source: Source, agreed: Mapping[str, Any], site: str) -> Array:
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
    """Refuse a file that is not the one that the site told of."""
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

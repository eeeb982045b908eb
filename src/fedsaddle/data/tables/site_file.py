"""The rows of one site's file, before all sites agree on an encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from fedsaddle.array_types import Bools, Ints
from fedsaddle.data.hold_out import hold_out
from fedsaddle.data.pictures import picture_shape, read_pictures
from fedsaddle.data.table import Array
from fedsaddle.data.tables.columns import RawTable, require, whole
from fedsaddle.data.tables.features import ArrayFeatures, TableFeatures
from fedsaddle.data.tables.judge import group_words
from fedsaddle.data.tables.own import feature_array, read_arrays, row_entries, treatment
from fedsaddle.data.tables.read import (
    ColumnChoice,
    Roles,
    checked_categories,
    filled,
    labelled_rows,
    read_roles,
    some_rows,
    units,
)
from fedsaddle.data.tables.treatment import Treatment
from fedsaddle.errors import BadInput
from fedsaddle.files import JsonObject

Part = Literal["train", "validation", "test"]


@dataclass(frozen=True, eq=False)
class Source:
    """The rows of one file or array: features that wait for an encoding, and the cells of the label."""

    features: TableFeatures | ArrayFeatures
    labels: Array

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class SiteRows:
    """A site's rows: their sources, and for each part its source and the row numbers in it.

    Training rows are of the first source. `left_out` are columns of the file that look like identifiers or free text.
    """

    target: str
    sources: tuple[Source, ...]
    parts: dict[Part, tuple[int, Array]]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what the site should know about its columns, a line each
    units: Array | None = None  # to whom each row of the first source belongs, such as the patient
    groups: tuple[Mapping[str, Array], ...] = ()  # of each source, by column the group of each row

    @property
    def train(self) -> Array:
        """The numbers of the training rows."""
        return self.parts["train"][1]

    def part_units(self, part: Part) -> Ints | None:
        """The number of each row's unit in a part; None if the file has no such column."""
        place, rows = self.parts[part]
        if self.units is None or place:
            return None
        return np.unique(self.units[rows], return_inverse=True)[1].astype(np.int64)

    def part_groups(self, part: Part, agreed: Sequence[tuple[str, str]]) -> list[Bools]:
        """Which rows of a part are in each agreed group, a value of a column."""
        place, rows = self.parts[part]
        if place >= len(self.groups):
            return [np.zeros(len(rows), dtype=bool) for _ in agreed]
        return [self.groups[place][column][rows] == value for column, value in agreed]

    def count(self, part: Part) -> int:
        """How many rows a part has."""
        return len(self.parts[part][1])

    def with_parts_of(self, least: int) -> tuple[SiteRows, list[Part]]:
        """The rows without validation or test rows that are fewer than `least`, and which parts those were."""
        small: list[Part] = [p for p, (_, own) in self.parts.items() if p != "train" and 0 < len(own) < least]
        parts = {p: (at, own[:0] if p in small else own) for p, (at, own) in self.parts.items()}
        return replace(self, parts=parts), small


@dataclass(frozen=True)
class HeldOutShares:
    """Which rows a site holds out where its files do not state it."""

    test: float = 0.2
    validation: float = 0.0
    seed: int = 0
    stratify: bool = False


@dataclass(frozen=True)
class SiteFile:
    """How a site reads its file: as `from_file` does; the client column is ignored, as all rows are this site's."""

    roles: Roles = field(default_factory=lambda: Roles("y", "client", None))
    columns: ColumnChoice = field(default_factory=ColumnChoice)
    how: Treatment = field(default_factory=Treatment)
    delimiter: str | None = None

    @classmethod
    def of_options(cls, options: JsonObject) -> SiteFile:
        """From the options of `from_file`; keys that only a pooled file has are ignored.

        No column is read that is not named.
        """
        given = {key: value for key, value in options.items() if value is not None}
        roles = Roles(given.get("target", "y"), given.get("client", "client") or None, given.get("together"))
        kinds = ("features", "numeric", "categorical", "drop", "optional_columns", "groups")
        listed, groups = checked_categories(given.get("categories")), tuple(given.get("groups") or ())
        named = {*(given.get("features") or ()), *(given.get("categorical") or ())}
        if given.get("features") is not None:  # the values of a column of groups alone make no feature
            listed = {name: values for name, values in listed.items() if name in named or name not in groups}
        columns = ColumnChoice(**{key: given[key] for key in kinds if key in given}).with_kinds(listed).only_named()
        wanted = ("standardise", "hinges", "site_intercept", "categories")
        how = treatment(**{key: given[key] for key in wanted if key in given})
        return cls(roles, columns, how, given.get("delimiter"))

    @classmethod
    def encoded_already(cls) -> SiteFile:
        """Of rows of a named data set, which were encoded before partitioning."""
        return cls(how=Treatment(standardise=False))

    def read(self, path: Path, shares: HeldOutShares, test_path: Path | None = None) -> SiteRows:
        """Read a site's table or .npz file.

        Test rows come from `test_path` or from `x_test` of the .npz file, validation rows from its `x_validation`.
        Otherwise shares of the rows are held out; with `stratify`, of each class. Rows with the same value in the
        column `together` stay in one part.
        """
        if path.suffix.lower() == ".npz":
            self.columns.refuse_for_arrays(test_path, self.roles.together)
            return self._arrays(path, shares)
        own = Roles(self.roles.target, None, self.roles.together)
        client = self.roles.client or ""
        raw = self.columns.read(path, own, self.delimiter, ignore=client)
        raws = [raw]
        if test_path is not None:
            raws.append(self.columns.like(raw).read(test_path, own, self.delimiter, ignore=client))
        notes = list(raw.notes)
        labelled = []
        for one in raws:
            rows, note = labelled_rows(one, self.roles.target)
            notes += [note] if note else []
            labelled.append(one if rows is None else some_rows(one, rows))
        together = units(labelled[0].roles["together"].astype(str)) if self.roles.together else None
        sources = tuple(self._source(one) for one in labelled)
        places: dict[Part, int] = {} if test_path is None else {"test": 1}
        parts = row_parts(sources, places, shares, self.roles.target, together)
        groups = tuple({name: group_words(column) for name, column in one.groups.items()} for one in labelled)
        return SiteRows(self.roles.target, sources, parts, raw.left_out, tuple(notes), together, groups)

    def _source(self, raw: RawTable) -> Source:
        features = TableFeatures(raw.features, self.how, self.roles.client or "client")
        return Source(features, raw.roles["target"].astype(str))

    def _arrays(self, path: Path, shares: HeldOutShares) -> SiteRows:
        arrays, target = read_arrays(path), self.roles.target
        sources: list[Source] = []
        places: dict[Part, int] = {}
        named: tuple[tuple[Part, str], ...] = (("train", ""), ("test", "_test"), ("validation", "_validation"))
        for part, end in named:
            if end and f"x{end}" not in arrays:
                continue
            x = arrays[require(f"x{end}", list(arrays), "x")]
            labels = row_entries(arrays, require(f"{target}{end}", list(arrays), "target"))
            if len(x) != len(labels):
                raise BadInput(f"len({target}{end})", len(labels), f"x{end} has {len(x)} rows; give one entry for each")
            if len(x):
                feature_array(x, f"x{end}")
            elif not end:
                raise BadInput("path", str(path), "has no rows")
            places[part] = len(sources)
            sources.append(Source(ArrayFeatures(x, self.how.standardise), labels))
        return SiteRows(target, tuple(sources), row_parts(sources, places, shares, target, None))


def row_parts(
    sources: tuple[Source, ...] | list[Source],
    places: dict[Part, int],
    shares: HeldOutShares,
    target: str,
    together: Array | None,
) -> dict[Part, tuple[int, Array]]:
    """The rows of each part: all of its own source, or those held out of the first."""
    test, validation = (
        0.0 if part in places else share for part, share in (("test", shares.test), ("validation", shares.validation))
    )
    labels = _classes(sources[0].labels, target) if shares.stratify and (test or validation) else None
    held = hold_out([np.arange(len(sources[0]))], test, shares.seed, labels, together, validation)
    parts: dict[Part, tuple[int, Array]] = {"train": (0, held.train[0])}
    for part, own in (("validation", held.validation[0]), ("test", held.test[0])):
        at = places.get(part)  # type: ignore[call-overload]
        parts[part] = (0, own) if at is None else (at, np.arange(len(sources[at])))  # type: ignore[index]
    return parts


def _classes(values: Array, target: str) -> Array:
    labels = whole(values, target)
    if labels.dtype.kind == "f" or labels.ndim > 1:
        raise BadInput("stratify", True, "needs data with one class a row; leave it out")
    return labels


@dataclass(frozen=True)
class SitePictures:
    """How a site reads its table of pictures: as `pictures` does; all rows are this site's."""

    file: str = "file"
    target: str = "label"
    together: str | None = None
    size: int | list[int] = 28
    colour: bool = False
    standardise: bool = True
    delimiter: str | None = None
    folder: str | None = None  # from the table's own folder, if it is relative; None: that folder

    @classmethod
    def of_options(cls, options: JsonObject) -> SitePictures:
        """From the options of `pictures`; the column of sites is ignored."""
        wanted = ("file", "target", "together", "size", "colour", "standardise", "delimiter", "folder")
        return cls(**{key: options[key] for key in wanted if options.get(key) is not None})

    def read(self, path: Path, shares: HeldOutShares, test_path: Path | None = None) -> SiteRows:
        """Read a site's pictures; test rows come from `test_path`, or a share is held out."""
        sources: list[Source] = []
        together: Array | None = None
        for table in [path] if test_path is None else [path, test_path]:
            source, patients = self._source(table)
            together = patients if not sources else together
            sources.append(source)
        places: dict[Part, int] = {} if test_path is None else {"test": 1}
        parts = row_parts(sources, places, shares, self.target, together)
        return SiteRows(self.target, tuple(sources), parts, units=together)

    def _source(self, path: Path) -> tuple[Source, Array | None]:
        roles = {"file": self.file, "target": self.target}
        roles |= {"together": self.together} if self.together else {}
        cells = read_roles(path, roles, self.delimiter)
        folder = path.parent if self.folder is None else path.parent / self.folder
        names = filled(cells["file"], self.file)
        x = read_pictures(folder, names, self.file, picture_shape(self.size), self.colour)
        labels = filled(cells["target"], self.target)
        together = units(cells["together"].astype(str)) if self.together else None
        return Source(ArrayFeatures(x, self.standardise, self.file), labels), together

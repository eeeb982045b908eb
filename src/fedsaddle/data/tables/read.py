"""Reads a table and decides the roles of its columns: features and their kinds, target, client, patient, groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsaddle.arguments import text
from fedsaddle.data.table import Array, Table
from fedsaddle.data.tables import sources
from fedsaddle.data.tables.columns import (
    Comma,
    How,
    Loaded,
    Plan,
    RawColumn,
    RawTable,
    check_lists,
    empty_column,
    require,
    role_cells,
    shown,
)
from fedsaddle.data.tables.judge import ColumnHint, group_column, judge_column, near_duplicates
from fedsaddle.data.tables.sources import read_excel, read_frame, read_parquet
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.text import visible

if TYPE_CHECKING:
    import pandas as pd


def read_table(
    source: Path | pd.DataFrame,
    *,
    roles: Mapping[str, str],
    features: Sequence[str] | None = None,
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    optional: Sequence[str] = (),
    delimiter: str | None = None,
    ignore: Sequence[str] = (),
    one_of_many: bool = False,
    groups: Sequence[str] = (),
) -> RawTable:
    """Read a table as it comes.

    Numbers are numbers, also where a few cells are written as `>90`, `1,234` or `12 mg`; dates become days since
    1970-01-01; other columns are categories. Identifiers, free text and constant columns are left out, unless they
    are listed in `features`, `numeric` or `categorical`. The notes of the table state what was done and how to force
    the other choice.

    Args:
        source: A .csv, .tsv, .txt (also .gz), .parquet or .xlsx file, or a pandas DataFrame.
        roles: The column of each role, such as `{"label": "died", "site": "hospital"}`; they are no features.
        features: The feature columns; None: every other column.
        numeric: Columns of numbers; cells that are none become missing.
        categorical: Columns of categories, also where they look like numbers.
        drop: Columns to leave out.
        optional: Feature columns that this file may lack; then all their cells are missing.
        delimiter: What parts the cells of a CSV file; None: found from the first lines.
        ignore: Columns to leave out where they are there.
        one_of_many: Whether this is the file of one site; then columns stay that never change here, but may elsewhere.
        groups: Columns to read besides, whether or not they are features.

    Raises:
        BadInput: A column is not there, or its cells contradict each other.
        MissingData: There is no such file.
    """
    wanted = _Wanted(
        dict(roles), None if features is None else _names("features", features), _names("numeric", numeric),
        _names("categorical", categorical), _names("drop", drop), _names("optional", optional),
        _names("ignore", ignore), one_of_many, _names("groups", groups),
    )  # fmt: skip
    there: list[str] = []

    def plan(names: Sequence[str]) -> dict[str, How]:
        there[:] = names
        return wanted.plan(names)

    loaded = _load(source, plan, delimiter)
    parted = {name: group_column(name, loaded.columns[name], wanted.hint(name, loaded.comma)) for name in wanted.groups}
    made = {role: role_cells(loaded.columns[column]) for role, column in roles.items()}
    columns: list[RawColumn] = []
    notes, left_out = list(loaded.notes), []
    for name in wanted.order(list(loaded.columns)):
        cells = loaded.columns.pop(name, None)  # so that its memory is free again
        if cells is None:
            columns.append(empty_column(name, loaded.rows))
            notes.append(f"column {shown(name)} is not in the table; all its cells are taken as missing")
            continue
        judged = judge_column(name, cells, wanted.hint(name, loaded.comma))
        if judged.column is None:
            left_out.append(name)
        else:
            columns.append(judged.column)
        notes += judged.notes
    if not columns:
        why = f" ({notes[-1]})" if notes else ""
        raise BadInput("features", list(features or ()), f"no column is left to learn from{why}")
    used = {column.name for column in columns}
    return RawTable(
        tuple(columns),
        made,
        loaded.rows,
        (*notes, *near_duplicates(columns)),
        tuple(left_out),
        tuple(name for name in there if name not in used),
        parted,
    )


class _Header(Exception):
    """Ends the reading of a file after its column names."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)


def column_names(source: Path, delimiter: str | None = None) -> list[str]:
    """The names of a table's columns, without its rows where the format allows that."""

    def plan(there: Sequence[str]) -> dict[str, How]:
        raise _Header(there)

    try:
        return list(_load(source, plan, delimiter).columns)
    except _Header as header:
        return header.names


def read_roles(source: Path, roles: Mapping[str, str], delimiter: str | None = None) -> dict[str, Array]:
    """Read only the columns of roles: their cells as the file writes them, '' where one is missing."""

    def plan(there: Sequence[str]) -> dict[str, How]:
        named = {require(column, there, role) for role, column in roles.items()}
        return {name: "text" if name in named else "skip" for name in there}

    loaded = _load(source, plan, delimiter)
    return {role: role_cells(loaded.columns[column]) for role, column in roles.items()}


def read_groups(source: Path, groups: Sequence[str], delimiter: str | None = None) -> dict[str, RawColumn]:
    """Read only the columns of groups."""

    def plan(there: Sequence[str]) -> dict[str, How]:
        named = {require(column, there, "groups") for column in groups}
        return {name: "infer" if name in named else "skip" for name in there}

    loaded = _load(source, plan, delimiter) if groups else Loaded({}, 0)
    return {name: group_column(name, loaded.columns[name], ColumnHint(comma=loaded.comma)) for name in groups}


@dataclass(frozen=True)
class _Wanted:
    """The columns that the user selected, and their kinds."""

    roles: dict[str, str]
    features: tuple[str, ...] | None
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    drop: tuple[str, ...]
    optional: tuple[str, ...]
    ignore: tuple[str, ...]
    one_of_many: bool
    groups: tuple[str, ...] = ()

    def plan(self, there: Sequence[str]) -> dict[str, How]:
        """How to read each column; raises `BadInput` for unknown names."""
        for role, column in self.roles.items():
            require(column, there, role)
        for name in self.features or ():
            if name not in self.optional:
                require(name, there, "features")
        label = self.roles.get("target", self.roles.get("label"))
        if label is not None and label in (*(self.features or ()), *self.optional):
            raise BadInput("features", label, "is the label column, which is no feature; leave it out")
        known = [*there, *(name for name in self.optional if name not in there)]
        owner = {column: role for role, column in self.roles.items() if column not in (self.features or ())}
        check_lists({"numeric": self.numeric, "categorical": self.categorical, "drop": self.drop}, known, owner)
        if both := [name for name in (self.features or ()) if name in self.drop]:
            raise BadInput("drop", both[0], "is in `features` too; choose one")
        for name in self.groups:
            require(name, there, "groups")
            if name in self.roles.values():
                raise BadInput("groups", name, "has another role, such as the label or the site; name another column")
        text = {*self.roles.values(), *self.categorical}
        features = {*self.order(there), *self.groups}
        return {name: "text" if name in text else "infer" if name in features else "skip" for name in there}

    def order(self, there: Sequence[str]) -> list[str]:
        """The feature columns in order: as listed, or as in the table with those that are lacking at the end."""
        if self.features is not None:
            return list(dict.fromkeys([*self.features, *self.optional]))
        out = {*self.drop, *self.ignore}
        own = [name for name in there if name not in out and name not in self.roles.values()]
        return list(dict.fromkeys([*own, *(name for name in self.optional if name not in out)]))

    def hint(self, name: str, comma: Comma) -> ColumnHint:
        """The user's settings for the column."""
        numeric, categorical = name in self.numeric, name in self.categorical
        listed = numeric or categorical or name in (self.features or ())
        return ColumnHint(numeric, categorical, listed, comma, self.one_of_many)


def _names(key: str, names: object) -> tuple[str, ...]:
    if isinstance(names, list | tuple | set | frozenset) and all(isinstance(name, str) for name in names):
        return tuple(name.strip() for name in names)
    raise BadInput(key, names, "must be a list of column names, such as ['age', 'sex']")


def _load(source: object, plan: Plan, delimiter: str | None) -> Loaded:
    if not isinstance(source, str | Path):
        return read_frame(source, plan)
    path = existing(Path(source))
    name = path.name.lower()
    if name.removesuffix(".gz").endswith(sources.SUFFIXES):
        return sources.read_csv(path, plan, delimiter)
    if name.endswith((".parquet", ".pq")):
        return read_parquet(path, plan)
    if name.endswith((".xlsx", ".xlsm")):
        return read_excel(path, plan)
    remedy = "the name must end in .csv, .tsv or .txt (also with .gz), .parquet, .pq or .xlsx; save the table as such"
    raise BadInput("path", str(path), remedy)


def existing(path: Path) -> Path:
    """The path, if there is a file."""
    try:
        if path.is_file():
            return path
        if path.is_dir():
            raise BadInput("path", str(path), "is a folder; name the file in it")
        if path.exists():
            raise BadInput("path", str(path), "is not a regular file")
    except (OSError, ValueError) as error:
        raise MissingData(
            f"{shown(path)} cannot be a file ({getattr(error, 'strerror', error)}); check the path"
        ) from error
    raise MissingData(f"{path} does not exist; check the path of the data file")


@dataclass(frozen=True)
class Roles:
    """The roles of columns."""

    target: str
    client: str | None
    together: str | None
    event: str | None = None  # whether there was one at the time, the target
    exposure: str | None = None  # of the count, the target

    def __post_init__(self) -> None:
        text("target", self.target)
        optional_text("client", self.client)
        optional_text("together", self.together)
        optional_text("event", self.event)
        optional_text("exposure", self.exposure)
        if self.event is not None and self.exposure is not None:
            raise BadInput("exposure", self.exposure, "is for counts, and `event` is for times; leave one out")

    def columns(self) -> dict[str, str]:
        """Role -> column."""
        named = {"target": self.target, "client": self.client, "together": self.together}
        named |= {"event": self.event, "exposure": self.exposure}
        return {role: column for role, column in named.items() if column}


@dataclass(frozen=True)
class ColumnChoice:
    """Which columns are features, and of which kind, where that is not to be found out."""

    features: Sequence[str] | None = None
    numeric: Sequence[str] = ()
    categorical: Sequence[str] = ()
    drop: Sequence[str] = ()
    optional_columns: Sequence[str] = ()
    groups: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_names("features", self.features)
        for key in ("numeric", "categorical", "drop", "optional_columns", "groups"):
            check_names(key, getattr(self, key))

    def read(self, source: object, roles: Roles, delimiter: str | None, ignore: str | None = None) -> RawTable:
        """Read a table; `ignore` is the site column, which may or may not be in the file of one site."""
        return read_table(
            source,
            roles=roles.columns(),
            features=self.features,
            numeric=self.numeric,
            categorical=self.categorical,
            drop=self.drop,
            optional=self.optional_columns,
            delimiter=delimiter,
            ignore=[ignore] if ignore else (),
            one_of_many=ignore is not None,
            groups=self.groups,
        )

    def like(self, first: RawTable) -> ColumnChoice:
        """The choice that reads another file as the first one was read."""
        kinds: dict[bool, list[str]] = {True: [], False: []}
        for column in first.features:
            kinds[column.numbers is not None].append(column.name)
        names = [column.name for column in first.features]
        return ColumnChoice(names, kinds[True], kinds[False], (), self.optional_columns, self.groups)

    def with_kinds(self, categories: Mapping[str, Sequence[str]]) -> ColumnChoice:
        """The choice with columns whose categories are listed as categorical ones."""
        more = [name for name in categories if name not in self.categorical]
        return replace(self, categorical=(*self.categorical, *more)) if more else self

    def only_named(self) -> ColumnChoice:
        """The choice that reads no feature but those that are named, if there are any."""
        named = (*self.numeric, *self.categorical)
        return self if self.features is not None or not named else replace(self, features=named)

    def refuse_for_arrays(self, test_path: object, together: object) -> None:
        """Raise `BadInput` for options that a .npz file cannot have."""
        given = {"features": self.features, "test_path": test_path, "together": together}
        given |= {k: getattr(self, k) or None for k in ("numeric", "categorical", "drop", "optional_columns", "groups")}
        for key, value in given.items():
            if value is not None:
                raise BadInput(key, value, "not for .npz files, which hold the arrays x and x_test; leave it out")


def labelled_rows(raw: RawTable, target: str) -> tuple[Array | None, str]:
    """The rows that have a label, None if all have, and a line for the user."""
    gaps = raw.roles["target"] == ""
    if not gaps.any():
        return None, ""
    if gaps.all():
        raise BadInput(f"column {visible(target)!r}", "", "has no label at all; choose another column")
    rows = np.flatnonzero(~gaps)
    return rows, f"{int(gaps.sum()):,} rows have no label in column {visible(target)!r} and are left out"


def some_rows(raw: RawTable, rows: Array) -> RawTable:
    """The table with these rows only."""

    def some(column: RawColumn) -> RawColumn:
        numbers = None if column.numbers is None else column.numbers[rows]
        return replace(column, numbers=numbers, codes=None if column.codes is None else column.codes[rows])

    columns, groups = tuple(map(some, raw.features)), {name: some(c) for name, c in raw.groups.items()}
    return replace(
        raw, features=columns, groups=groups, roles={k: v[rows] for k, v in raw.roles.items()}, rows=len(rows)
    )


def filled(cells: Array, column: str) -> Array:
    """The cells of a role as strings; none may be empty."""
    made = cells.astype(str)
    if (made == "").any():
        row = int(np.argmax(made == ""))
        raise BadInput(
            f"row {row + 1}, column {visible(column)!r}", "", "the cell is empty; fill it in, or drop the row"
        )
    return made


def units(cells: Array) -> Array:
    """The unit of each row; a row without one is its own."""
    empty = np.flatnonzero(cells == "")
    if not len(empty):
        return cells
    codes = np.unique(cells, return_inverse=True)[1]
    codes[empty] = len(cells) + np.arange(len(empty))
    return codes


def check_names(key: str, names: object) -> None:
    """Raise `BadInput` unless it is None or a list of names."""
    if names is None:
        return
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise BadInput(key, names, "must be a list of column names, such as ['age', 'sex']")


def optional_text(key: str, value: object) -> str | None:
    """None or a name, which may be empty."""
    return None if value is None else text(key, value, empty=True)


def checked_categories(given: object) -> dict[str, tuple[str, ...]]:
    """Column -> its values, as the user lists them."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadInput("categories", given, "must be a table of lists, such as { sex = ['f', 'm'] }")
    for name, values in given.items():
        check_names(f"categories.{name}", values)
    return {str(name): tuple(values) for name, values in given.items()}


def check_positive_value(positive: object) -> None:
    """Raise `BadInput` for anything that cannot be a value of a target column."""
    if positive is not None and not isinstance(positive, str | Integral):
        raise BadInput("positive", positive, "must be a value of the target: text, a whole number or a truth value")


def with_positive(table: Table, positive: str | int | bool, target: str) -> Table:
    """Class 1 is the value `positive` of the target, class 0 all others."""
    index, classes = two_classes(table.classes, positive, target)
    return replace(table, y=(table.y == index).astype(np.int64), classes=classes)


def with_listed_classes(table: Table, classes: Sequence[str], target: str) -> Table:
    """The table with the listed classes, also where no row has one of them."""
    if not table.classes:
        raise BadInput("classes", list(classes), f"column '{target}' holds numbers; say task = 'classes'")
    unknown = next((label for label in table.classes if label not in classes), None)
    if unknown is not None:
        raise BadInput("classes", list(classes), f"column '{target}' holds {visible(unknown)!r} as well; list it too")
    names = sorted(set(classes), key=_as_sorted)
    codes = np.array([names.index(label) for label in table.classes], dtype=np.int64)
    return replace(table, y=codes[table.y], classes=tuple(names))


def _as_sorted(label: str) -> tuple[int, int, str]:
    """Whole numbers in their order, then texts."""
    whole = label.removeprefix("-").isdecimal()
    return (0, int(label), "") if whole else (1, 0, label)


def _is_endless(value: object) -> bool:
    """Whether a whole number has more digits than Python writes."""
    return isinstance(value, int) and abs(value) >= 10**18


def two_classes(classes: Sequence[str], positive: str | int | bool, target: str) -> tuple[int, tuple[str, str]]:
    """Which of the classes is the positive one, and the names of the two that are left."""
    written = [str(positive), str(positive).lower(), str(int(positive))] if isinstance(positive, bool) else [positive]
    name = next((str(w) for w in written if not _is_endless(w) and str(w) in classes), None)
    if name is None:
        there = ", ".join(classes[:10]) or "numbers; say task = 'classes'"
        raise BadInput("positive", positive, f"is not a value of column '{target}'; there are: {there}")
    others = [c for c in classes if c != name]
    return list(classes).index(name), (others[0] if len(others) == 1 else f"not {name}", name)

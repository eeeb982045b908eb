"""Reads a table from a CSV, Parquet or Excel file or a pandas DataFrame, and decides what each column is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedsaddle.data.files import csv_source
from fedsaddle.data.files.cells_as_read import Comma, How, Loaded, Plan, role_cells
from fedsaddle.data.files.column_names import check_lists, require, shown
from fedsaddle.data.files.excel_source import read_excel
from fedsaddle.data.files.frame_source import read_frame
from fedsaddle.data.files.group_names import group_column
from fedsaddle.data.files.judge_column import Wish, judge_column
from fedsaddle.data.files.near_duplicates import near_duplicates
from fedsaddle.data.files.parquet_source import read_parquet
from fedsaddle.data.files.raw_table import RawColumn, RawTable, empty_column
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput, MissingData

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
    are listed in `features`, `numeric` or `categorical`. The notes of the table say what was done and how to force
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
    parted = {name: group_column(name, loaded.columns[name], wanted.wish(name, loaded.comma)) for name in wanted.groups}
    made = {role: role_cells(loaded.columns[column]) for role, column in roles.items()}
    columns: list[RawColumn] = []
    notes, left_out = list(loaded.notes), []
    for name in wanted.order(list(loaded.columns)):
        cells = loaded.columns.pop(name, None)  # so that its memory is free again
        if cells is None:
            columns.append(empty_column(name, loaded.rows))
            notes.append(f"column {shown(name)} is not in the table; all its cells are taken as missing")
            continue
        judged = judge_column(name, cells, wanted.wish(name, loaded.comma))
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
    return {name: group_column(name, loaded.columns[name], Wish(comma=loaded.comma)) for name in groups}


@dataclass(frozen=True)
class _Wanted:
    """Which columns the user wants, and as what."""

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
        """How to read each column; refuses names that are not there."""
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

    def wish(self, name: str, comma: Comma) -> Wish:
        """What the user says of the column."""
        numeric, categorical = name in self.numeric, name in self.categorical
        listed = numeric or categorical or name in (self.features or ())
        return Wish(numeric, categorical, listed, comma, self.one_of_many)


def _names(key: str, names: object) -> tuple[str, ...]:
    if isinstance(names, list | tuple | set | frozenset) and all(isinstance(name, str) for name in names):
        return tuple(name.strip() for name in names)
    raise BadInput(key, names, "must be a list of column names, such as ['age', 'sex']")


def _load(source: object, plan: Plan, delimiter: str | None) -> Loaded:
    if not isinstance(source, str | Path):
        return read_frame(source, plan)
    path = existing(Path(source))
    name = path.name.lower()
    if name.removesuffix(".gz").endswith(csv_source.SUFFIXES):
        return csv_source.read_csv(path, plan, delimiter)
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

"""The roles of a table's columns: what is a feature and of which kind, the target, the client, who stays together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from fedsaddle.arguments import text
from fedsaddle.data.files.raw_table import RawColumn, RawTable
from fedsaddle.data.files.read_table import read_table
from fedsaddle.data.table import Array, Table
from fedsaddle.errors import BadInput
from fedsaddle.shown import visible


@dataclass(frozen=True)
class Roles:
    """Which column is what."""

    target: str
    client: str | None
    together: str | None

    def __post_init__(self) -> None:
        text("target", self.target)
        optional_text("client", self.client)
        optional_text("together", self.together)

    def columns(self) -> dict[str, str]:
        """Role -> column."""
        named = {"target": self.target, "client": self.client, "together": self.together}
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

    def read(self, source: Any, roles: Roles, delimiter: str | None, ignore: str | None = None) -> RawTable:
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
        """Refuse what a .npz file cannot have."""
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
    """Who a row belongs to; a row that does not say is on its own."""
    empty = np.flatnonzero(cells == "")
    if not len(empty):
        return cells
    codes = np.unique(cells, return_inverse=True)[1]
    codes[empty] = len(cells) + np.arange(len(empty))
    return codes


def check_names(key: str, names: object) -> None:
    """Refuse what is neither None nor a list of names."""
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
    """Refuse what can be no value of a target column."""
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
        raise BadInput("positive", positive, f"is no value of column '{target}'; there are: {there}")
    others = [c for c in classes if c != name]
    return list(classes).index(name), (others[0] if len(others) == 1 else f"not {name}", name)

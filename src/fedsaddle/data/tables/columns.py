"""The columns of a table as it was read, and how messages name them."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsaddle.errors import BadInput

LONGEST_SHOWN = 60  # characters of a name or a cell in a message
MOST_SHOWN = 20  # names in a list of all columns, and notes about columns
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")  # as `repr` writes text
_VARIES = re.compile(rf"{_QUOTED.pattern}|-?[0-9][0-9,.]*(?:e[+-]?[0-9]+)?")


class MissingColumn(BadInput):
    """A column that the file does not have."""


def shown(name: object) -> str:
    r"""The name or cell in quotes, on one line and not too long.

    Examples:
        >>> shown("a\nb")
        "'a\\nb'"
    """
    said = str(name)
    return repr(said if len(said) <= LONGEST_SHOWN else f"{said[: LONGEST_SHOWN - 3]}...")


def listed(names: Sequence[str], most: int = MOST_SHOWN) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def summarised(notes: Sequence[str], most: int = MOST_SHOWN) -> list[str]:
    """The notes about columns; where there are many, those that say the same of several columns are one line.

    Examples:
        >>> summarised([f"column 'c{k}' is left out: it is {k} in all rows" for k in range(5000)])
        ["column 'c0' is left out: it is 0 in all rows (the same for 4,999 more columns, such as 'c1', 'c2', 'c3')"]
    """
    if len(notes) <= most:
        return list(notes)
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(_VARIES.sub("*", note), []).append(note)
    lines = []
    for first, *others in alike.values():
        known = set(_QUOTED.findall(first))
        names = [new for note in others if (new := next((n for n in _QUOTED.findall(note) if n not in known), ""))]
        such = f", such as {', '.join(list(dict.fromkeys(names))[:3])}" if names else ""
        more = f" (the same for {len(others):,} more columns{such})" if len(others) > 1 else ""
        lines += [first + more] if more else [first, *others]
    rest = len(lines) - most
    return lines if rest <= 0 else [*lines[:most], f"and {rest:,} more notes like these"]


def require(name: str, there: Sequence[str], key: str) -> str:
    """`name` if it is one of the columns; otherwise an error with the nearest name and the list."""
    if name in there:
        return name
    near = difflib.get_close_matches(name, there, n=1) or [c for c in there if c.casefold() == name.casefold()]
    hint = f"did you mean {shown(near[0])}? " if near else ""
    raise MissingColumn(key, name, f"there is no such column; {hint}the columns are: {listed(there)}")


def tidy_names(names: Iterable[object]) -> tuple[list[str], list[str]]:
    """The stripped names, and notes; a column without a name is called by its place.

    Raises:
        BadInput: A name stands twice.
    """
    notes: list[str] = []
    tidy = []
    for place, name in enumerate(names, 1):
        if isinstance(name, tuple | list | dict):
            raise BadInput("column name", name, "must be text; flatten the header to one line of names")
        text = "" if name is None or name != name else str(name).strip()
        if not text:
            text = f"column {place}"
            notes.append(f"column {place} has no name in the first line and is called {shown(text)}")
        tidy.append(text)
    twice = [name for name, count in Counter(tidy).items() if count > 1]
    if twice:
        raise BadInput("column name", twice[0], "stands twice in the first line; rename one")
    return tidy, notes


def check_lists(lists: dict[str, Sequence[str]], there: Sequence[str], roles: dict[str, str]) -> None:
    """Refuse names that no column has, and a column that is in two of the lists or has a role besides."""
    first: dict[str, str] = {}
    for key, names in lists.items():
        for name in dict.fromkeys(names):
            require(name, there, key)
            if name in first:
                raise BadInput(key, name, f"is in `{first[name]}` too; choose one")
            if name in roles:
                raise BadInput(key, name, f"is the {roles[name]} column, which is no feature; leave it out")
            first[name] = key


WRITTEN = ("", "decimal comma", "day first", "month first", "hours")


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One feature column before it is encoded. A number column has `numbers`, a category column `codes`.

    Examples:
        >>> age = RawColumn("age", np.array([63.0, np.nan]))
        >>> age.kind, age.missing.tolist()
        ('number', [False, True])
    """

    name: str
    numbers: NDArray[np.float64] | None  # (n,), NaN: missing
    codes: NDArray[np.int32] | None = None  # (n,), -1: missing
    categories: tuple[str, ...] = ()  # what the codes name, sorted
    written: str = ""  # how numbers are written, where not plainly: one of `WRITTEN`

    @property
    def kind(self) -> Literal["number", "category", "empty"]:
        """What the cells are; "empty" if all of them are missing."""
        if self.missing.all():
            return "empty"
        return "category" if self.numbers is None else "number"

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which cells are missing, (n,)."""
        if self.numbers is not None:
            return np.isnan(self.numbers)
        assert self.codes is not None
        return self.codes < 0


@dataclass(frozen=True, eq=False)
class RawTable:
    """The feature columns, the columns with a role, and what the user should know about how they were read."""

    features: tuple[RawColumn, ...]
    roles: dict[str, NDArray[Any]]  # role ("label", "site" ...) -> its cells as the file writes them, '' for missing
    rows: int
    notes: tuple[str, ...]  # one line each
    left_out: tuple[str, ...] = ()  # columns that were not asked for and hold nothing to learn from
    others: tuple[str, ...] = ()  # all columns of the table that are no features
    groups: dict[str, RawColumn] = field(default_factory=dict)  # columns for whose values figures are reported apart


def empty_column(name: str, rows: int) -> RawColumn:
    """A column whose cells are all missing."""
    return RawColumn(name, np.full(rows, np.nan))

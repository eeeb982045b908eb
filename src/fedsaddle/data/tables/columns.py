"""The columns of a table as read: how messages name them, and what their cells mean."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.table import Array, ordinal
from fedsaddle.data.tables.encode_rows import LARGEST, MISSING, MISSING_NUMBER
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
    text = str(name)
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 3]}...")


def listed(names: Sequence[str], most: int = MOST_SHOWN) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def summarised(notes: Sequence[str], most: int = MOST_SHOWN) -> list[str]:
    """The notes about columns; equal notes about several columns become one line.

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
    """The stripped names, and notes; a column without a name is named by its place.

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
    """Raise `BadInput` for unknown names, and for a column in two of the lists or with a role."""
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
    """The feature columns, the columns with a role, and notes for the user about how they were read."""

    features: tuple[RawColumn, ...]
    roles: dict[str, Array]  # role ("label", "site" ...) -> its cells as the file writes them, '' for missing
    rows: int
    notes: tuple[str, ...]  # one line each
    left_out: tuple[str, ...] = ()  # columns that were not asked for and hold nothing to learn from
    others: tuple[str, ...] = ()  # all columns of the table that are no features
    groups: dict[str, RawColumn] = field(default_factory=dict)  # columns for whose values figures are reported apart


def empty_column(name: str, rows: int) -> RawColumn:
    """A column whose cells are all missing."""
    return RawColumn(name, np.full(rows, np.nan))


MISSING_ROLE = MISSING - {"-", "--", "---", "missing"}  # those may be classes or sites

# How to read a column: as it comes, as text to the letter, or not at all.
How = Literal["infer", "text", "skip"]
# Are commas before decimals? "perhaps": cells are parted by ';', "surely": so they are in another column of the file.
Comma = Literal["no", "perhaps", "surely"]
Plan = Callable[[Sequence[str]], dict[str, How]]


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers, or codes of distinct texts; `meaning` is what numbers stand for that were not numbers in the file."""

    numbers: NDArray[np.float64] | None = None  # (n,), NaN: missing
    codes: NDArray[np.int32] | None = None  # (n,), -1: missing
    texts: Sequence[str] = ()  # in any order; may repeat
    meaning: str = ""  # such as "days since 1970-01-01"
    declared: bool = False  # the frame itself declares a category
    unreadable: str = ""  # the type, where the cells are neither numbers nor text

    def __len__(self) -> int:
        return len(self.numbers if self.numbers is not None else self.codes if self.codes is not None else ())


@dataclass(frozen=True, eq=False)
class Loaded:
    """The columns of a source that were requested."""

    columns: dict[str, Cells]
    rows: int
    notes: list[str] = field(default_factory=list)
    comma: Comma = "no"


def text_cells(codes: Array, texts: Sequence[str], missing: frozenset[str]) -> tuple[NDArray[np.int32], list[str]]:
    """Codes of the sorted distinct texts, stripped; -1 where the text is one of the `missing` markers."""
    stripped = [text.strip() for text in texts]
    if {t for t in stripped if t.lower() not in MISSING} == {"+"}:  # a column of + and -
        missing = missing - {"-"}
    used = np.zeros(len(stripped), dtype=bool)
    used[codes[codes >= 0]] = True
    keep = sorted({t for t, u in zip(stripped, used, strict=True) if u and t.lower() not in missing})
    places = {text: code for code, text in enumerate(keep)}
    new = np.array([places.get(t, -1) for t in stripped] + [-1], dtype=np.int32)  # the last entry is for -1
    return new[codes], keep


def role_cells(cells: Cells) -> Array:
    """The cells of a column with a role, as text; '' where one is missing."""
    assert cells.codes is not None
    codes, texts = text_cells(cells.codes, cells.texts, MISSING_ROLE)
    return np.array([*texts, ""], dtype=object)[codes]


MAX_AUTO_CLASSES = 100
_FILL_IN = "fill it in, or drop the row or the column"

Task = Literal["auto", "classes", "regression"]


def numbers(column: Array, name: str) -> Array | None:
    """The column as float64 that single precision can hold, or None if it holds strings."""
    try:
        values = column.astype(np.float64)
    except ValueError:
        _refuse_missing_markers(column, name)
        return None
    finite = np.abs(values) <= LARGEST
    if not finite.all():
        row = int(np.argmin(finite.reshape(len(values), -1).all(axis=1)))
        raise BadInput(f"row {row + 1}, column '{name}'", str(column[row]), f"is not a finite number; {_FILL_IN}")
    return values


def need_numbers(column: Array, name: str) -> Array:
    """The column as finite float64; a string in it is an error."""
    values = numbers(column, name)
    if values is None:
        row = next(i for i, cell in enumerate(column) if not is_number(str(cell)))
        raise BadInput(f"row {row + 1}, column '{name}'", str(column[row]), "is not a number, and one is needed here")
    return values


def is_number(cell: str) -> bool:
    """Whether the cell can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def client_names(column: Array, name: str) -> Array:
    """The clients of an array as strings; numbers must be whole, and no name empty."""
    if column.dtype.kind in "iub":
        return column.astype(str)
    if column.dtype.kind == "f":
        values = need_numbers(column, name)
        if (values != np.round(values)).any():
            row = int(np.argmax(values != np.round(values)))
            raise BadInput(f"row {row + 1}, column '{name}'", float(values[row]), "use whole numbers or strings")
        return values.astype(np.int64).astype(str)
    text = column.astype(str)
    if (text == "").any():
        raise BadInput(f"row {int(np.argmax(text == '')) + 1}, column '{name}'", "", "the client is empty; name it")
    return text


def targets(columns: Sequence[Array], name: str, task: Task) -> tuple[list[Array], tuple[str, ...]]:
    """The labels of the training and perhaps the test rows, and the class names (none: regression).

    The classes are the sorted values of the training column.
    """
    first = whole(columns[0], name)
    if task == "regression" or (task == "auto" and _is_real(first)):
        return [need_numbers(column, name) for column in columns], ()
    distinct = np.unique(first)
    if len(distinct) < 2:
        remedy = "a single class leaves nothing to learn; choose another target column"
        raise BadInput(f"classes of '{name}'", distinct.tolist(), remedy)
    labels = [ordinal(first, distinct)]
    for column in columns[1:]:
        values = column.astype(str) if first.dtype.kind == "U" else need_numbers(column, name)
        codes = ordinal(values, distinct)
        if (codes < 0).any():
            odd = column[int(np.argmax(codes < 0))]
            raise BadInput(f"test target '{name}'", str(odd), "no training row has this class; drop these rows")
        labels.append(codes)
    return labels, tuple(str(c) for c in distinct)


def whole(column: Array, name: str) -> Array:
    """Numbers as int64 if all are whole, as float64 if not, and strings as they are."""
    values = numbers(column, name)
    if values is None:
        return column.astype(str)
    if (values == np.round(values)).all() and (np.abs(values) < 2**53).all():
        return values.astype(np.int64)
    return values


def _is_real(values: Array) -> bool:
    return values.dtype.kind == "f" or (values.dtype.kind == "i" and len(np.unique(values)) > MAX_AUTO_CLASSES)


def _refuse_missing_markers(column: Array, name: str) -> None:
    """Numbers with some 'NA' between them are numbers with gaps, not categories."""
    marked = np.isin(np.char.lower(np.char.strip(column.astype(str))), sorted(MISSING_NUMBER))
    if not marked.any() or marked.all():
        return
    try:
        column[~marked].astype(np.float64)
    except ValueError:
        return
    row = int(np.argmax(marked))
    raise BadInput(f"row {row + 1}, column '{name}'", str(column[row]), f"the other cells are numbers; {_FILL_IN}")

"""What the entries of a column mean: numbers, client names, classes or a regression target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.table import Array, ordinal
from fedsaddle.errors import BadInput

# The markers of missing cells, in lower case; which ones count depends on the other cells of the column.
_MARKERS = "na n/a #n/a #na n.a. nan <na> nat null #null! . ? - -- --- missing #value! #div/0! #ref! #num!"
MISSING = frozenset(_MARKERS.split()) | {""}  # in any column
NOTHING = frozenset({"none", "nil"})  # missing among numbers and truth values, a value among other words
MISSING_NUMBER = MISSING | NOTHING | {"unknown", "unk", "not known"}  # among numbers; some are values among words
MISSING_ROLE = MISSING - {"-", "--", "---", "missing"}  # those may be classes or sites
TRUTH = frozenset({"true", "false"})

# How to read a column: as it comes, as text to the letter, or not at all.
How = Literal["infer", "text", "skip"]
# Are commas before decimals? "perhaps": cells are parted by ';', "surely": so they are in another column of the file.
Comma = Literal["no", "perhaps", "surely"]
Plan = Callable[[Sequence[str]], dict[str, How]]


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers, or codes of distinct texts; `meaning` says what numbers stand for that were no numbers in the file."""

    numbers: NDArray[np.float64] | None = None  # (n,), NaN: missing
    codes: NDArray[np.int32] | None = None  # (n,), -1: missing
    texts: Sequence[str] = ()  # in any order; may repeat
    meaning: str = ""  # such as "days since 1970-01-01"
    declared: bool = False  # the frame itself says that this is a category
    unreadable: str = ""  # the type, where the cells are neither numbers nor text

    def __len__(self) -> int:
        return len(self.numbers if self.numbers is not None else self.codes if self.codes is not None else ())


@dataclass(frozen=True, eq=False)
class Loaded:
    """All columns of a source that were wanted."""

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


def role_cells(cells: Cells) -> NDArray[Any]:
    """The cells of a column with a role, as text; '' where one is missing."""
    assert cells.codes is not None
    codes, texts = text_cells(cells.codes, cells.texts, MISSING_ROLE)
    return np.array([*texts, ""], dtype=object)[codes]


MAX_AUTO_CLASSES = 100
LARGEST = float(np.finfo(np.float32).max)  # rows are stored in single precision
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
    """Can the cell be read as a number?"""
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
    found = np.unique(first)
    if len(found) < 2:
        remedy = "a single class leaves nothing to learn; choose another target column"
        raise BadInput(f"classes of '{name}'", found.tolist(), remedy)
    labels = [ordinal(first, found)]
    for column in columns[1:]:
        values = column.astype(str) if first.dtype.kind == "U" else need_numbers(column, name)
        codes = ordinal(values, found)
        if (codes < 0).any():
            odd = column[int(np.argmax(codes < 0))]
            raise BadInput(f"test target '{name}'", str(odd), "no training row has this class; drop these rows")
        labels.append(codes)
    return labels, tuple(str(c) for c in found)


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

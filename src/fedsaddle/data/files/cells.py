"""What the entries of a column mean: numbers, client names, classes or a regression target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedsaddle.data.files.cells_as_read import MISSING_NUMBER
from fedsaddle.data.files.encode import ordinal
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput

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

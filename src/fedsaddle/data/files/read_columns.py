"""Reads the named columns of a CSV or Parquet file; no cell may be empty."""

from __future__ import annotations

import csv
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput, MissingData

MAX_CELL = 1000

Choose = Callable[[Sequence[str]], Sequence[str]]


def read_columns(path: Path, choose: Choose, delimiter: str = ",", text: str | None = None) -> dict[str, Array]:
    """The columns that `choose(all names)` picks, as numbers or strings; `text` stays as the CSV file writes it."""
    if not path.is_file():
        raise MissingData(f"{path} does not exist; check the path of the data file")
    if path.suffix.lower() in (".parquet", ".pq"):
        return _read_parquet(path, choose)
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        check_delimiter(delimiter)
        return _read_csv(path, choose, delimiter, text)
    raise BadInput("path", str(path), "the name must end in .csv, .tsv, .txt, .parquet, .pq or .npz")


def check_delimiter(delimiter: object) -> None:
    """Refuse what is not one character."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise BadInput("delimiter", delimiter, "use one character, such as ',' or ';'")


def require(name: str, there: Sequence[str], key: str) -> str:
    """`name` if it is one of the columns; otherwise an error with the nearest name and the list."""
    if name in there:
        return name
    near = difflib.get_close_matches(name, there, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    raise BadInput(key, name, f"there is no such column; {hint}the columns are: {', '.join(there)}")


def _read_csv(path: Path, choose: Choose, delimiter: str, text: str | None) -> dict[str, Array]:
    lines = _read_lines(path, delimiter)
    if len(lines) < 2:
        raise BadInput("path", str(path), "needs a line of column names and at least one row")
    header = [name.strip() for name in lines.iloc[0]]
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise BadInput("column name", twice[0], "stands twice in the first line; rename one")
    if (lines.iloc[:, -1] == "").any():  # pandas fills up short rows with empty cells
        _refuse_ragged_rows(path, delimiter)
    places = {name: header.index(name) for name in choose(header)}
    read = {name: _strings if name == text else _cells for name in places}
    return {name: read[name](name, lines[at].tolist()[1:]) for name, at in places.items()}


def _read_lines(path: Path, delimiter: str) -> Any:
    """A frame of all cells as text; the first line is the first row, so that its names are not changed."""
    import pandas as pd

    how = {"header": None, "dtype": str, "keep_default_na": False, "na_filter": False, "skipinitialspace": True}
    engine = "c" if delimiter.isascii() else "python"
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = pd.read_csv(file, sep=delimiter, engine=engine, **how).fillna("")
    except UnicodeDecodeError as error:
        raise BadInput("path", str(path), f"is not UTF-8 text ({error.reason}); save it as UTF-8") from error
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except pd.errors.ParserError as error:
        _refuse_ragged_rows(path, delimiter, strict=True)
        raise _no_csv(path, error) from error
    if max(lines[at].str.len().max() for at in lines) > csv.field_size_limit():
        raise _no_csv(path, f"a cell has more than {csv.field_size_limit()} characters")
    return lines


def _refuse_ragged_rows(path: Path, delimiter: str, strict: bool = False) -> None:
    """Name the first row whose number of cells is not that of the first line; `strict` names open quotes too."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            read = csv.reader(file, delimiter=delimiter, skipinitialspace=True, strict=strict)
            rows = (row for row in read if len(row) > 1 or "".join(row).strip())  # as pandas, which skips blank lines
            width = len(next(rows, []))
            number, cells = next(((i, len(row)) for i, row in enumerate(rows, 1) if len(row) != width), (0, width))
    except csv.Error as error:
        raise _no_csv(path, error) from error
    if cells != width:
        remedy = f"the first line names {width} columns; mend the row, or the delimiter {delimiter!r}"
        raise BadInput(f"cells in row {number}", cells, remedy)


def _no_csv(path: Path, reason: object) -> BadInput:
    return BadInput("path", str(path), f"is not a CSV file ({str(reason).strip()}); check the quotes")


def _cells(name: str, cells: list[str]) -> Array:
    try:
        return np.array(list(map(float, cells)))
    except ValueError:
        return _strings(name, cells)


def _strings(name: str, cells: list[str]) -> Array:
    # One very long cell would make every cell of a NumPy string column as long.
    longest = max(map(len, cells))
    if longest > MAX_CELL:
        remedy = f"more than {MAX_CELL} characters; free text is no feature, leave it out of `features`"
        raise BadInput(f"longest cell of '{name}'", longest, remedy)
    column = np.array(cells)
    _refuse_empty(name, column == "")
    return column


def _refuse_empty(name: str, empty: Array) -> None:
    if empty.any():
        row = int(np.argmax(empty)) + 1
        raise BadInput(
            f"row {row}, column '{name}'", "", "the cell is empty; fill it in, or drop the row or the column"
        )


def _read_parquet(path: Path, choose: Choose) -> dict[str, Array]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise BadInput("path", str(path), "Parquet needs pyarrow: pip install 'fedsaddle[parquet]'") from error
    try:
        names = list(choose(pq.read_schema(path).names))
        table = pq.read_table(path, columns=names)
    except pa.ArrowException as error:
        raise BadInput("path", str(path), f"is not a readable Parquet file ({error})") from error
    if table.num_rows == 0:
        raise BadInput("path", str(path), "has no rows")
    return {name: _from_arrow(name, table.column(name)) for name in names}


def _from_arrow(name: str, column: Any) -> Array:
    import pyarrow as pa

    if column.null_count:
        _refuse_empty(name, column.is_null().to_numpy())
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(name, column.to_pylist())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.asarray(column.to_numpy())
    if pa.types.is_decimal(kind):
        return np.array(column.to_pylist(), dtype=np.float64)
    raise BadInput(f"type of column '{name}'", str(kind), "use numbers or strings, or leave it out of `features`")

"""Reads the columns of a pandas DataFrame, whatever their types."""

from __future__ import annotations

import math
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from fedsaddle.data.files.cells_as_read import Cells, How, Loaded, Plan
from fedsaddle.data.files.column_names import shown, tidy_names
from fedsaddle.data.files.parse_dates import DAYS
from fedsaddle.errors import BadInput

DAYS_LONG = "days"
NEITHER = (list, tuple, dict, set, frozenset, np.ndarray, bytes, complex, np.complexfloating)  # numbers nor text


def read_frame(frame: Any, plan: Plan) -> Loaded:
    """The columns of a frame as the plan says; its index is ignored."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise BadInput("source", type(frame).__name__, "must be the path of a file or a pandas DataFrame")
    if isinstance(frame.columns, pd.MultiIndex):
        raise BadInput("column name", list(frame.columns[:1]), "must be one name; flatten the header to one line")
    names, notes = tidy_names(frame.columns)
    how = plan(names)
    if not len(frame):
        raise BadInput("rows", 0, "the table has no rows; at least one is needed")
    columns = {
        name: series_cells(name, frame.iloc[:, at], how[name]) for at, name in enumerate(names) if how[name] != "skip"
    }
    return Loaded(columns, len(frame), notes)


def series_cells(name: str, column: Any, how: How) -> Cells:
    """One column of a frame."""
    import pandas as pd

    kind = column.dtype
    if how == "text" or isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(kind):
        return _as_text(name, column, declared=isinstance(kind, pd.CategoricalDtype))
    if pd.api.types.is_complex_dtype(kind):
        return Cells(unreadable=str(kind), codes=np.full(len(column), -1, dtype=np.int32))
    if pd.api.types.is_numeric_dtype(kind):
        return Cells(numbers=column.to_numpy(dtype=np.float64, na_value=np.nan))
    if pd.api.types.is_datetime64_any_dtype(kind) or isinstance(kind, pd.PeriodDtype):
        return Cells(numbers=_days(column), meaning=DAYS)
    if pd.api.types.is_timedelta64_dtype(kind):
        return Cells(numbers=column.dt.total_seconds().to_numpy(dtype=np.float64) / 86400, meaning=DAYS_LONG)
    return _from_objects(name, column)


def _days(column: Any) -> Any:
    import pandas as pd

    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    utc = pd.to_datetime(column, utc=True)
    return ((utc - pd.Timestamp(0, tz="UTC")).dt.total_seconds() / 86400).to_numpy(dtype=np.float64)


def _from_objects(name: str, column: Any) -> Cells:
    import pandas as pd

    there = column[column.notna()]
    if all(isinstance(cell, Real | Decimal) and not isinstance(cell, bool) for cell in there):
        numbers = np.full(len(column), np.nan)
        numbers[column.notna().to_numpy()] = [_float(cell) for cell in there]
        return Cells(numbers=numbers)
    odd = next((cell for cell in there if isinstance(cell, NEITHER)), None)
    if odd is not None:
        return Cells(unreadable=type(odd).__name__, codes=np.full(len(column), -1, dtype=np.int32))
    if pd.api.types.is_object_dtype(column.dtype):  # 1, 1.0 and True are one key, so write before counting
        column = (
            there.map(cell_text).astype(object).reindex(column.index) if column.index.is_unique else _written(column)
        )
    return _as_text(name, column)


def _written(column: Any) -> Any:
    import pandas as pd

    return pd.Series(
        [None if gap else cell_text(c) for c, gap in zip(column, column.isna(), strict=True)], dtype=object
    )


def _float(cell: Any) -> float:
    try:
        return float(cell)
    except (ArithmeticError, ValueError):  # too large, or a signalling NaN
        return math.inf


def _as_text(name: str, column: Any, declared: bool = False) -> Cells:
    import pandas as pd

    try:
        codes, values = pd.factorize(column)
    except TypeError:
        raise BadInput(f"type of column {shown(name)}", str(column.dtype), "use numbers or text") from None
    return Cells(codes=codes.astype(np.int32), texts=[cell_text(v) for v in values], declared=declared)


def cell_text(cell: Any) -> str:
    """A cell as a CSV file would write it: 7.0 as 7, a day without hours."""
    if isinstance(cell, float | np.floating):
        value = float(cell)
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(cell, datetime):
        return cell.date().isoformat() if cell.time() == time() and cell.tzinfo is None else cell.isoformat(" ")
    if isinstance(cell, date | time):
        return cell.isoformat()
    return str(cell)

"""Reads the first sheet of an Excel file."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path
from typing import Any

from fedsaddle.data.files.cells_as_read import Loaded, Plan
from fedsaddle.data.files.frame_source import read_frame
from fedsaddle.errors import BadInput, FedSaddleError, install

LARGEST = 2**31  # bytes within the file, so that a small one cannot fill the memory


def read_excel(path: Path, plan: Plan) -> Loaded:
    """The columns of the first sheet as the plan says; its first row that is not blank has the names."""
    import pandas as pd

    try:
        import openpyxl
    except ImportError as error:
        raise BadInput("path", str(path), f"Excel files need openpyxl; {install('excel')}") from error
    try:
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > LARGEST:
            raise BadInput("path", str(path), f"unpacks to {size:,} bytes; save the table as CSV or Parquet")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions, which do not matter here
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            try:
                rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
                more = book.sheetnames[1:]
            finally:
                book.close()
    except FedSaddleError:
        raise
    except Exception as error:  # openpyxl lets through whatever zip and XML say
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise BadInput("path", str(path), f"is not a readable .xlsx file ({reason}); save it again") from error
    header, body = _parts(rows)
    if not body:
        raise BadInput("path", str(path), "needs a row of column names and at least one more row")
    loaded = read_frame(pd.DataFrame(body, columns=header, dtype=object), plan)
    if more:
        loaded.notes.append(f"only the first sheet was read; there are {len(more)} more")
    return loaded


def _parts(rows: list[list[Any]]) -> tuple[list[Any], list[list[Any]]]:
    """The names and the rows, without blank rows and blank columns at the end."""
    filled = [row for row in rows if any(_is_there(cell) for cell in row)]
    width = max((at for row in filled for at, cell in enumerate(row, 1) if _is_there(cell)), default=0)
    padded = [[*row[:width], *[None] * (width - len(row))] for row in filled]
    return (padded[0], padded[1:]) if padded else ([], [])


def _is_there(cell: Any) -> bool:
    return cell is not None and str(cell).strip() != ""

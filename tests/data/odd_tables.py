"""Odd tables: what stands in a file or a frame, and what reading it must give."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

Values = Sequence[Any]  # one per row, None: missing


ROWS = "age,sex,y\n30,m,a\n40,f,b\n"


@dataclass(frozen=True, eq=False)
class Odd:
    """A file (its name and its bytes, text or a writer) or a frame, and what is expected of it."""

    name: str
    content: bytes | str | pd.DataFrame | Callable[[Path], None]
    values: Mapping[str, Values] = field(default_factory=dict)
    notes: Sequence[str] = ()  # each must be part of one of the notes
    error: Sequence[str] = ()  # each must be part of the one line
    gone: Sequence[str] = ()  # columns that are left out
    labels: Values | None = None
    file: str = "t.csv"
    how: Mapping[str, Any] = field(default_factory=dict)


def column(*cells: str, name: str = "x", delimiter: str = ",") -> str:
    """A CSV text of one feature column and a label."""
    quoted = [f'"{cell}"' if delimiter in cell else cell for cell in (name, *cells)]
    return "".join(f"{cell}{delimiter}{label}\n" for cell, label in zip(quoted, ["y", *"abababab" * 200], strict=False))


def numbered(n: int, form: str = "{}", name: str = "x", start: int = 0) -> str:
    return column(*[form.format(i + start) for i in range(n)], name=name)


def parquet(columns: Callable[[Any], Mapping[str, Any]], **how: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(dict(columns(pa))), path, **how)

    return write


def broken_parquet(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": list(map(str, range(5000))), "y": ["a", "b"] * 2500}), path)
    data = bytearray(path.read_bytes())
    data[200 : len(data) // 2] = b"\xff" * (len(data) // 2 - 200)
    path.write_bytes(bytes(data))


def same_parquet_column_twice(path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_arrays([pa.array([1, 2])] * 2 + [pa.array(["a", "b"])], names=["x", "x", "y"]), path)


def excel(rows: Sequence[Sequence[Any]], more: Sequence[str] = ()) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import openpyxl

        book = openpyxl.Workbook()
        for row in rows:
            book.active.append(list(row))
        for title in more:
            book.create_sheet(title)
        book.save(path)

    return write


def zip_without_sheets(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as parts:
        parts.writestr("hello.txt", "no sheet")


def folder(path: Path) -> None:
    path.mkdir()


def nothing(path: Path) -> None:
    """Write no file at all."""


def write(odd: Odd, folder: Path) -> Path | pd.DataFrame:
    """The source that `read_table` gets."""
    if isinstance(odd.content, pd.DataFrame):
        return odd.content
    path = folder / odd.file
    if isinstance(odd.content, str):
        path.write_bytes(odd.content.encode())
    elif isinstance(odd.content, bytes):
        path.write_bytes(odd.content)
    else:
        odd.content(path)
    return path


def text_of(rows: Sequence[Sequence[str]], delimiter: str, line_end: str) -> str:
    """The rows as CSV text, quoted where it must be."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=line_end).writerows(rows)
    return out.getvalue()

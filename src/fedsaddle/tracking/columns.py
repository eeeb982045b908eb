"""metrics.csv: the records of metrics.jsonl as a table, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from fedsaddle.atomic import append_line, write_atomically
from fedsaddle.csv_cells import plain_cell, safe_cell
from fedsaddle.shown import visible
from fedsaddle.stored import Record
from fedsaddle.tracking.figures import by_client, leaves

FILE = "metrics.csv"


def row_of(record: Record, clients: Sequence[str] = ()) -> dict[str, float]:
    """The numbers of a record by column: `round`, `test.loss.mean`, `clients.test.loss.Hospital A`.

    Where two clients have one name, the second has its number as well.
    """
    found: dict[str, float] = {}
    names = column_names(tuple(clients))
    for path, value in leaves(record):
        if by_client(path) and path[-1].isdigit():
            number = int(path[-1])
            path = (*path[:-1], names[number] if number < len(names) else f"client {number + 1}")
        found[".".join(path)] = value
    return found


@lru_cache(maxsize=8)
def column_names(clients: tuple[str, ...]) -> list[str]:
    """Names fit for the head of a column, all different."""
    found: list[str] = []
    for number, name in enumerate(map(visible, clients), 1):
        while name in found:
            name = f"{name} ({number})"
        found.append(name)
    return found


def write_columns(path: Path, records: Iterable[Record], clients: Sequence[str] = ()) -> None:
    """Write the table of these records, whole."""
    _write(path, [row_of(record, clients) for record in records])


def append_columns(path: Path, record: Record, clients: Sequence[str] = ()) -> None:
    """Append a record. The table is written anew where it has a column that the table has not."""
    row = row_of(record, clients)
    if row and _first_line(path) == _head_line(tuple(row)):
        return append_line(path, _line([*row.values()]))
    heads = _heads(path)
    if not heads or not row.keys() <= set(heads):
        _write(path, [*_rows(path), row])
        return None
    return append_line(path, _line([row.get(head, "") for head in heads]))


def _write(path: Path, rows: Sequence[dict[str, float] | dict[str, str]]) -> None:
    heads = list(dict.fromkeys(head for row in rows for head in row))
    lines = [_head_line(tuple(heads))] if heads else []
    lines += [_line([row.get(head, "") for head in heads]) for row in rows]
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))


@lru_cache(maxsize=8)
def _head_line(heads: tuple[str, ...]) -> str:
    return _line([safe_cell(head) for head in heads])


def _first_line(path: Path) -> str:
    """The first line as it stands; a head with a line break in it has none, because it is escaped."""
    try:
        with path.open("rb") as file:
            return file.readline().decode("utf-8", "replace").removesuffix("\n")
    except OSError:
        return ""


def _heads(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [plain_cell(cell) for cell in next(csv.reader(file), [])]
    except (OSError, ValueError, csv.Error):
        return []


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            heads, *rows = [*csv.reader(file)] or [[]]
    except (OSError, ValueError, csv.Error):
        return []
    return [dict(zip(map(plain_cell, heads), row, strict=False)) for row in rows]


def _line(cells: Sequence[object]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(cells)
    return out.getvalue()

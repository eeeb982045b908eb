"""metrics.csv: the records of metrics.jsonl as a table, for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
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
    for path, value in leaves(record):
        *before, last = path
        if by_client(path) and last.isdigit():
            number = int(last)
            last = visible(clients[number]) if number < len(clients) else f"client {number + 1}"
            if ".".join((*before, last)) in found:
                last = f"{last} ({number + 1})"
        found[".".join((*before, last))] = value
    return found


def write_columns(path: Path, records: Iterable[Record], clients: Sequence[str] = ()) -> None:
    """Write the table of these records, whole."""
    _write(path, [row_of(record, clients) for record in records])


def append_columns(path: Path, record: Record, clients: Sequence[str] = ()) -> None:
    """Append a record. The table is written anew where it has a column that the table has not."""
    row = row_of(record, clients)
    heads = _heads(path)
    if not heads or not row.keys() <= set(heads):
        _write(path, [*_rows(path), row])
    else:
        append_line(path, _line([row.get(head, "") for head in heads]))


def _write(path: Path, rows: Sequence[dict[str, float] | dict[str, str]]) -> None:
    heads = list(dict.fromkeys(head for row in rows for head in row))
    lines = [_line([safe_cell(head) for head in heads])] if heads else []
    lines += [_line([row.get(head, "") for head in heads]) for row in rows]
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))


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

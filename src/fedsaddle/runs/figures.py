"""The figures of a record as a flat table: one name, one number."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeGuard

from fedsaddle.files import Json, Record, append_line, write_atomically
from fedsaddle.text import plain_cell, safe_cell, visible

COSTS = ("exchanges", "bytes_down", "bytes_up", "samples", "local_steps", "seconds")
_LONGEST = 80  # characters of a part of a key
_FORBIDDEN = re.compile(r"[^\w.-]")

KeyPath = tuple[str, ...]


def flat_figures(record: Record, clients: Sequence[str] = ()) -> dict[str, float]:
    """The finite figures of a record by keys that every tracker accepts: letters, digits, `_`, `.`, `-` and `/`.

    Args:
        record: a line of metrics.jsonl, or of `result.history`.
        clients: their names; numbers where there are too few.

    Examples:
        >>> record = {"round": 3, "seconds": 0.5, "test": {"loss": {"mean": 0.7}}, "clients": {"test": {"loss": [0.7]}}}
        >>> flat_figures(record, ["St. Mary's"])
        {'cost/seconds': 0.5, 'test/loss/mean': 0.7, 'clients/test/loss/St._Mary_s': 0.7}
    """
    named = dict(enumerate(key_names(clients)))
    found = {}
    for path, value in leaves(record):
        if path == ("round",) or not math.isfinite(value):
            continue
        found["/".join(_key_path(path, named))] = value
    return found


def leaves(record: Mapping[str, object]) -> Iterator[tuple[KeyPath, float]]:
    """Every number of a record and the path to it; a client's number is the last part of the path."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from (((str(key), *path), number) for path, number in leaves(value))
        elif isinstance(value, list):
            yield from ((((str(key), str(i)), float(n))) for i, n in enumerate(value) if _is_number(n))
        elif _is_number(value):
            yield (str(key),), value


def by_client(path: KeyPath) -> bool:
    """Whether the last part of a path is the number of a client."""
    return path[0] in ("clients", "mixture") and len(path) > 1


def key_names(names: Sequence[str]) -> list[str]:
    """Names that can stand in a key, all different; other characters become `_`.

    Examples:
        >>> key_names(["A/B", "A B", "", ".."])
        ['A_B', 'A_B-2', 'client-3', 'client-4']
    """
    found: list[str] = []
    taken: set[str] = set()
    for number, name in enumerate(names, 1):
        clean = _FORBIDDEN.sub("_", name)[:_LONGEST].strip(".")
        key = clean or f"client-{number}"
        while key.casefold() in taken:  # file systems may ignore case
            key = f"{clean or 'client'}-{number}" if not key.endswith(f"-{number}") else f"{key}-{number}"
        taken.add(key.casefold())
        found.append(key)
    return found


def _key_path(path: KeyPath, named: Mapping[int, str]) -> KeyPath:
    if len(path) == 1:
        return ("cost" if path[0] in COSTS else "figures", _part(path[0]))
    *before, last = path
    if by_client(path) and last.isdigit():
        return (*map(_part, before), named.get(int(last), f"client-{int(last) + 1}"))
    return tuple(map(_part, path))


def _part(text: str) -> str:
    return _FORBIDDEN.sub("_", text)[:_LONGEST].strip(".") or "figure"


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def flat_parameters(given: Mapping[str, Json], before: str = "") -> dict[str, str | int | float | bool]:
    """Nested settings by dotted keys; lists as text, None left out.

    Examples:
        >>> flat_parameters({"run": {"rounds": 5, "target": None}, "data": {"name": "iris"}})
        {'run.rounds': 5, 'data.name': 'iris'}
    """
    found: dict[str, str | int | float | bool] = {}
    for key, value in given.items():
        name = f"{before}{_part(str(key))}"
        if isinstance(value, Mapping):
            found |= flat_parameters(value, f"{name}.")
        elif value is not None:
            found[name] = value if isinstance(value, int | float | bool) else str(value)
    return found


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
    """Append a record. The table is rewritten if the record has a new column."""
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

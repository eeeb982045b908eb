"""The figures of a record as a flat table: one name, one number."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsaddle.stored import Record

COSTS = ("exchanges", "bytes_down", "bytes_up", "samples", "local_steps", "seconds")
_LONGEST = 80  # characters of a part of a key
_FORBIDDEN = re.compile(r"[^\w.-]")

Path = tuple[str, ...]


def flat_figures(record: Record, clients: Sequence[str] = ()) -> dict[str, float]:
    """The finite figures of a record by keys that every tracker accepts: letters, digits, `_`, `.`, `-` and `/`.

    Args:
        record: a line of metrics.jsonl, or of `result.history`.
        clients: their names; numbers where there are too few.

    Example:
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


def leaves(record: Mapping[str, Any]) -> Iterator[tuple[Path, float]]:
    """Every number of a record and the path to it; a client's number is the last part of the path."""
    for key, value in record.items():
        if isinstance(value, Mapping):
            yield from (((str(key), *path), number) for path, number in leaves(value))
        elif isinstance(value, list):
            yield from ((((str(key), str(i)), float(n))) for i, n in enumerate(value) if _is_number(n))
        elif _is_number(value):
            yield (str(key),), value


def by_client(path: Path) -> bool:
    """Whether the last part of a path is the number of a client."""
    return path[0] in ("clients", "mixture") and len(path) > 1


def key_names(names: Sequence[str]) -> list[str]:
    """Names that can stand in a key, all different; other characters become `_`.

    Example:
        >>> key_names(["A/B", "A B", "", ".."])
        ['A_B', 'A_B-2', 'client-3', 'client-4']
    """
    found: list[str] = []
    taken: set[str] = set()
    for number, name in enumerate(names, 1):
        clean = _FORBIDDEN.sub("_", name)[:_LONGEST].strip(".")
        key = clean or f"client-{number}"
        while key.casefold() in taken:  # stores on disks may not tell capitals apart
            key = f"{clean or 'client'}-{number}" if not key.endswith(f"-{number}") else f"{key}-{number}"
        taken.add(key.casefold())
        found.append(key)
    return found


def _key_path(path: Path, named: Mapping[int, str]) -> Path:
    if len(path) == 1:
        return ("cost" if path[0] in COSTS else "figures", _part(path[0]))
    *before, last = path
    if by_client(path) and last.isdigit():
        return (*map(_part, before), named.get(int(last), f"client-{int(last) + 1}"))
    return tuple(map(_part, path))


def _part(text: str) -> str:
    return _FORBIDDEN.sub("_", text)[:_LONGEST].strip(".") or "figure"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def flat_parameters(given: Mapping[str, Any], before: str = "") -> dict[str, str | int | float | bool]:
    """Nested settings by dotted keys; lists as text, None left out.

    Example:
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

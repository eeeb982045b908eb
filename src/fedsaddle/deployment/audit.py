"""A site's log of everything that left it: a line of JSON for each field of each message."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch import Tensor

from fedsaddle.errors import BadInput, CannotWrite, MissingData
from fedsaddle.federation.records import tensors, visibility
from fedsaddle.secure.fixed_point import layout_of

FILE = "audit.jsonl"
PER_SITE = "per client"  # the server sees this site's own value
SUM_ONLY = "sum only"  # it left behind a mask, which goes away in the sum over sites


@dataclass(frozen=True)
class Entry:
    """One field of one message that left."""

    time: str
    run: str
    round: int | None  # None: before the first round
    exchange: int | None  # None: not an exchange of the algorithm
    request: str  # the task, or "facts", "counts", "agree", "measure"
    field: str
    shape: list[int]
    dtype: str
    bytes: int
    visibility: str
    text: str = ""  # why the site could not answer, as it was told


@dataclass(frozen=True)
class Occasion:
    """Which message it was."""

    run: str
    request: str
    round: int | None = None
    exchange: int | None = None


@dataclass(frozen=True)
class AuditLog:
    """The log of one site; it is only ever appended to."""

    folder: Path

    def add(self, occasion: Occasion, record: Any, failure: str = "", masked: bool = False) -> None:
        """Note a message before it leaves; if that fails, an error keeps the message here.

        With `masked` the averaged fields of the record left behind masks, and so did the weight.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        about = (now, occasion.run, occasion.round, occasion.exchange, occasion.request)
        if failure:
            found = [Entry(*about, "failure", [], "text", len(failure.encode()), PER_SITE, failure)]
        else:
            found = [Entry(*about, *told) for told in (_masked_fields(record) if masked else _fields(record))]
        lines = "".join(json.dumps({k: v for k, v in vars(e).items() if v != ""}) + "\n" for e in found)
        path = self.folder / FILE
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
            with open(os.open(path, flags, 0o600), "ab") as out:
                out.write(lines.encode())
                if not failure:
                    out.flush()
                    os.fsync(out.fileno())
        except OSError as reason:
            raise CannotWrite(path, reason) from None


def _fields(record: Any) -> Iterator[tuple[str, list[int], str, int, str]]:
    """Name, shape, type, bytes and visibility of all that a record tells."""
    if is_dataclass(record):
        seen = visibility(type(record))
        for name, value in tensors(record):
            yield *_of_tensor(name, value), seen[name].value
        return
    for name, value in record.items() if isinstance(record, Mapping) else ():
        if isinstance(value, Tensor):
            yield *_of_tensor(name, value), PER_SITE
        elif name == "columns":
            for column in value:
                yield f"column {column['name']}", [len(column)], "json", len(json.dumps(column)), PER_SITE
        elif isinstance(value, Mapping):
            for key, part in value.items():
                if part is None:
                    continue
                yield f"{name}.{key}", _shape(part), "json", len(json.dumps(part)), PER_SITE
        elif value not in (None, []):
            yield name, _shape(value), "json", len(json.dumps(value)), PER_SITE


def _masked_fields(record: Any) -> Iterator[tuple[str, list[int], str, int, str]]:
    """The same of a reply whose averaged fields are masked."""
    layout = layout_of(record)
    for one in layout:
        yield one.name, [1, *one.shape], f"fixed{8 * one.width}", one.size * one.width, SUM_ONLY
    if layout:
        yield "weight", [1], "fixed64", 8, SUM_ONLY
    hidden = {one.name for one in layout}
    yield from (told for told in _fields(record) if told[0] not in hidden)


def _of_tensor(name: str, value: Tensor) -> tuple[str, list[int], str, int]:
    dtype = str(value.dtype).removeprefix("torch.")
    return name, list(value.shape), dtype, value.numel() * value.element_size()


def _shape(value: Any) -> list[int]:
    if not isinstance(value, list):
        return []
    return [len(value), *(_shape(value[0]) if value else [])]


def read_audit(folder: Path, run: str | None = None) -> list[Entry]:
    """The entries of a log, or of one run in it; a last line that was cut off is left out."""
    path = folder / FILE
    if not path.is_file():
        raise MissingData(f"{path} does not exist: nothing has left this site, or this is not the folder of a site")
    found = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            entry = Entry(**json.loads(line)) if line else None
        except (ValueError, TypeError):
            if number >= len(lines) - 1:
                continue
            raise BadInput(f"{path}, line {number}", line[:60], "is damaged; keep the file and look into it") from None
        if entry is not None and run in (None, entry.run):
            found.append(entry)
    return found

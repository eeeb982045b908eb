"""Logs of a site and the server: a log file, and a line of JSON for every field that leaves a site."""

from __future__ import annotations

import json
import logging
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from torch import Tensor

from fedsaddle.errors import BadInput, CannotWrite, MissingData
from fedsaddle.federation.records import is_record, tensors, visibility
from fedsaddle.secure.fixed_point import layout_of
from fedsaddle.text import shortened, visible

LOG_FILE = "log.txt"
CONTINUED = "\n    | "
LONGEST_LINE = 2000
MOST_LINES = 200


class SafeFormatter(logging.Formatter):
    """Time, level and text; unprintable characters are escaped, and continuation lines indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        return safe_lines(super().format(record))


def safe_lines(text: str) -> str:
    """The text with continuation lines indented and without characters that could forge a line."""
    lines = [shortened(visible(line), LONGEST_LINE) for line in text.split("\n")[:MOST_LINES]]
    return CONTINUED.join(line.removeprefix("    | ") for line in lines)


def traceback_lines(reason: BaseException) -> str:
    """The traceback of an error for a log, with continuation lines indented."""
    return safe_lines("".join(traceback.format_exception(reason)).rstrip("\n"))


class _PatientHandler(logging.FileHandler):
    """A handler that skips a line if writing fails."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, if the disk takes it."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Do nothing: standard error may be on the same disk."""


@contextmanager
def log_to_folder(log: logging.Logger, folder: Path) -> Iterator[None]:
    """Make a logger also write to the log file in the folder."""
    with suppress(OSError):  # a disk that is full must not keep the site from saying so
        folder.mkdir(parents=True, exist_ok=True)
    handler = _PatientHandler(folder / LOG_FILE, encoding="utf-8", delay=True)
    handler.setFormatter(SafeFormatter())
    level = log.level
    if log.getEffectiveLevel() > logging.INFO:
        log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        with suppress(OSError):
            handler.close()


AUDIT_FILE = "audit.jsonl"
PER_SITE = "per client"  # the server sees this site's own value
SUMS = "sums"  # the field of an answer to a request that is masked
SUM_ONLY = "sum only"  # it left under a mask, which cancels in the sum over sites


@dataclass(frozen=True)
class AuditEntry:
    """One field of one message that left.

    Args:
        time: when it left, UTC.
        run: of which run.
        round: None: before the first round.
        exchange: None: not an exchange of the algorithm.
        request: the task, or "facts", "counts", "agree", "measure".
        field: name of the field.
        shape: of the tensor, or the number of entries.
        dtype: type of its numbers, or "json".
        bytes: how many bytes it has.
        visibility: how the server sees it.
        text: why the site could not answer, as sent to the server.
    """

    time: str
    run: str
    round: int | None
    exchange: int | None
    request: str
    field: str
    shape: list[int]
    dtype: str
    bytes: int
    visibility: str
    text: str = ""


@dataclass(frozen=True)
class Occasion:
    """The message that an entry belongs to.

    Args:
        run: of which run.
        request: the task, or the request.
        round: the round, None before the first one.
        exchange: the exchange of the round, None for a request.
    """

    run: str
    request: str
    round: int | None = None
    exchange: int | None = None


@dataclass(frozen=True)
class AuditLog:
    """The append-only log of one site.

    Args:
        folder: the site's folder of runs.
    """

    folder: Path

    def add(self, occasion: Occasion, record: object, failure: str = "", masked: bool = False) -> None:
        """Log a message before it leaves; if that fails, the error keeps the message from leaving.

        With `masked` the averaged fields of the record, and the weight, leave under masks.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        about = (now, occasion.run, occasion.round, occasion.exchange, occasion.request)
        if failure:
            found = [AuditEntry(*about, "failure", [], "text", len(failure.encode()), PER_SITE, failure)]
        else:
            found = [AuditEntry(*about, *sent) for sent in (_masked_fields(record) if masked else _fields(record))]
        lines = "".join(json.dumps({k: v for k, v in vars(e).items() if v != ""}) + "\n" for e in found)
        path = self.folder / AUDIT_FILE
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


def _fields(record: object) -> Iterator[tuple[str, list[int], str, int, str]]:
    """Name, shape, type, bytes and visibility of every field of a record."""
    if is_record(record):
        seen = visibility(type(record))
        for name, value in tensors(record):
            yield *_of_tensor(name, value), seen[name].value
        return
    for name, value in record.items() if isinstance(record, Mapping) else ():
        if isinstance(value, Tensor):
            yield *_of_tensor(name, value), SUM_ONLY if name == SUMS else PER_SITE
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


def _masked_fields(record: object) -> Iterator[tuple[str, list[int], str, int, str]]:
    """The same of a reply whose averaged fields are masked."""
    layout = layout_of(record) if is_record(record) else ()
    for one in layout:
        yield one.name, [1, *one.shape], f"fixed{8 * one.width}", one.size * one.width, SUM_ONLY
    if layout:
        yield "weight", [1], "fixed64", 8, SUM_ONLY
    hidden = {one.name for one in layout}
    yield from (sent for sent in _fields(record) if sent[0] not in hidden)


def _of_tensor(name: str, value: Tensor) -> tuple[str, list[int], str, int]:
    dtype = str(value.dtype).removeprefix("torch.")
    return name, list(value.shape), dtype, value.numel() * value.element_size()


def _shape(value: object) -> list[int]:
    if not isinstance(value, list):
        return []
    return [len(value), *(_shape(value[0]) if value else [])]


def read_audit(folder: Path, run: str | None = None) -> list[AuditEntry]:
    """The entries of a log, or of one run in it; a last line that was cut off is left out."""
    path = folder / AUDIT_FILE
    if not path.is_file():
        raise MissingData(f"{path} does not exist: nothing has left this site, or this is not the folder of a site")
    found = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            entry = AuditEntry(**json.loads(line)) if line else None
        except (ValueError, TypeError):
            if number >= len(lines) - 1:
                continue
            raise BadInput(f"{path}, line {number}", line[:60], "is damaged; keep the file and examine it") from None
        if entry is not None and run in (None, entry.run):
            found.append(entry)
    return found

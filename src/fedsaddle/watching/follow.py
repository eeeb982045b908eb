"""Reads files that grow, a bounded piece at a time: they may be huge, cut off in the middle of a line, or replaced."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsaddle.shown import shortened, visible
from fedsaddle.stored import Record

PIECE = 8 << 20  # bytes of one reading
LONGEST = 16 << 20  # bytes of a line; a longer one is passed over
GLIMPSE = 256 << 10  # bytes at the end of a file, for a run that is listed only
KEPT = 2000  # records that are kept; of more, every second one is dropped
TAIL, TAIL_LINES, TAIL_WIDTH = 64 << 10, 60, 400  # of a log
LARGEST_OBJECT = 16 << 20  # bytes of a JSON file


@dataclass
class Records:
    """The records of a metrics.jsonl, followed as the file grows."""

    path: Path
    kept: list[Record] = field(default_factory=list)
    last: Record | None = None  # the newest one, whole; those that are kept have no figures of single clients
    version: int = 0  # grows with every change
    behind: bool = False  # whether the file has more than was read
    _at: int = 0
    _file: tuple[int, int] = (0, 0)
    _rest: bytes = b""
    _passing: bool = False  # in a line that is too long
    _every: int = 1  # so many records are one that is kept
    _seen: int = 0

    def read(self) -> None:
        """Read what is new, up to a limit. A file that is another one or shorter than before is read from its start."""
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                if (found.st_dev, found.st_ino) != self._file or found.st_size < self._at:
                    self._begin((found.st_dev, found.st_ino))
                file.seek(self._at)
                piece = file.read(PIECE)
        except OSError:
            if self._file != (0, 0):
                self._begin((0, 0))
            return
        self._at += len(piece)
        self.behind = self._at < found.st_size
        *lines, rest = (self._rest + piece).split(b"\n")
        if self._passing and lines:
            lines, self._passing = lines[1:], False
        for line in lines:
            self._take(line)
        self._rest = b"" if self._passing else rest
        if len(self._rest) > LONGEST:
            self._rest, self._passing = b"", True

    def _begin(self, file: tuple[int, int]) -> None:
        self.kept, self.last, self._at, self._file = [], None, 0, file
        self._rest, self._passing, self._every, self._seen = b"", False, 1, 0
        self.version += 1

    def _take(self, line: bytes) -> None:
        record = record_of(line)
        if record is None or (self.last is not None and record["round"] <= self.last["round"]):
            return
        self.last = record
        self.version += 1
        if self._seen % self._every == 0:
            self.kept.append({key: value for key, value in record.items() if key != "clients"})
        self._seen += 1
        if len(self.kept) >= KEPT:
            self.kept, self._every = self.kept[::2], 2 * self._every

    @property
    def history(self) -> list[Record]:
        """The records that are kept, and the newest."""
        if self.last is None or (self.kept and self.kept[-1]["round"] == self.last["round"]):
            return self.kept
        return [*self.kept, {key: value for key, value in self.last.items() if key != "clients"}]


def last_record(path: Path) -> Record | None:
    """The newest record of a file, from its end alone."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - GLIMPSE))
            lines = file.read(GLIMPSE).split(b"\n")[:-1]
    except OSError:
        return None
    return next((found for line in reversed(lines[-5:]) if (found := record_of(line)) is not None), None)


def record_of(line: bytes) -> Record | None:
    """The record in a line, without figures that are no numbers; None if it is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    done = found.get("round")
    return found if isinstance(done, int) and not isinstance(done, bool) and 0 <= done < 1 << 53 else None


def read_small(path: Path) -> Record:
    """The JSON object in a file; empty where there is none, while it is being replaced, or if it is damaged or huge."""
    try:
        if path.stat().st_size > LARGEST_OBJECT:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def tail(path: Path) -> list[str]:
    """The last lines of a log, fit to be shown."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL))
            content = file.read(TAIL)
    except OSError:
        return []
    lines = content.decode("utf-8", "replace").splitlines()[1 if size > TAIL else 0 :]
    return [shortened(visible(line), TAIL_WIDTH) for line in lines[-TAIL_LINES:]]


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None

"""A site's notes of the questions that it answered behind masks, on its disk: masks are opened once, over restarts."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsaddle.atomic import write_atomically
from fedsaddle.errors import CannotWrite, Refused
from fedsaddle.runs.lock import lock_file
from fedsaddle.secure.masking import InMemoryBook, Noted, Question

PATIENCE = 10.0  # seconds for another process of the site that writes a note
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass
class DiskBook:
    """Notes, one line each, only ever appended to.

    A site may have several processes, or a server may make it have some: who looks into the notes or writes to them
    holds the lock of the file, and reads first what others have appended.
    """

    path: Path
    _read: InMemoryBook = field(default_factory=InMemoryBook, repr=False)
    _end: int = 0  # of what was read
    _file: int | None = None  # while it is locked
    _thread: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def new(cls, path: Path) -> DiskBook:
        """A book without notes; that of a run is made together with its keys, and is needed as long as they are."""
        write_atomically(path, b"", 0o600)
        return cls(path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the notes, and read what is new."""
        with self._thread:
            self._file = self._open()
            try:
                until = time.monotonic() + PATIENCE
                while not lock_file(self._file):
                    if time.monotonic() > until:
                        raise Refused("another process of this site holds its notes of opened masks")
                    time.sleep(0.01)
                self._catch_up(self._file)
                yield
            finally:
                os.close(self._file)
                self._file = None

    def _open(self) -> int:
        try:
            return os.open(self.path, _FLAGS)
        except FileNotFoundError:
            raise Refused("this site's notes of the masks that it opened are gone; begin a new run") from None
        except OSError as reason:
            raise CannotWrite(self.path, reason) from None

    def get(self, nonce: str) -> Noted | None:
        """The note of a question."""
        return self._read.get(nonce)

    def opened_at(self, when: tuple[int, int]) -> Noted | None:
        """The note of the question whose masks were opened in that round and exchange."""
        return self._read.opened_at(when)

    def put(self, nonce: str, noted: Noted) -> None:
        """Note it on the disk, before anything leaves; within `alone`."""
        assert self._file is not None
        line = json.dumps(_to_dict(nonce, noted), separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._file, line)
            os.fsync(self._file)
        except OSError as reason:
            raise CannotWrite(self.path, reason) from None
        if written != len(line):  # the line stays cut, and is read as none
            raise CannotWrite(self.path, OSError(0, "the disk is full"))
        self._end += written
        self._read.put(nonce, noted)

    def _catch_up(self, number: int) -> None:
        """Read the lines that were appended since; end a line that was cut off: what it notes has not left."""
        size = os.fstat(number).st_size
        if size < self._end:
            raise Refused("this site's notes of the masks that it opened were cut; begin a new run")
        os.lseek(number, self._end, os.SEEK_SET)
        content = b""
        while len(content) < size - self._end and (part := os.read(number, size - self._end - len(content))):
            content += part
        if content and not content.endswith(b"\n"):
            os.write(number, b"\n")
            content += b"\n"
        for line in filter(None, content.split(b"\n")):
            try:
                nonce, noted = _from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            self._read.put(nonce, noted)
        self._end += len(content)


def _to_dict(nonce: str, noted: Noted) -> dict[str, Any]:
    asked = noted.question
    return {
        "nonce": nonce, "digest": asked.digest.hex(), "cohort": asked.cohort, "shares": asked.shares,
        "when": asked.when, "reply": noted.reply, "opened": noted.opened,
    }  # fmt: skip


def _from_dict(told: dict[str, Any]) -> tuple[str, Noted]:
    round, exchange = told["when"]
    cohort, shares = tuple(told["cohort"]), tuple(told["shares"])
    question = Question(bytes.fromhex(told["digest"]), cohort, shares, (round, exchange))
    return told["nonce"], Noted(question, told["reply"], None if told["opened"] is None else tuple(told["opened"]))

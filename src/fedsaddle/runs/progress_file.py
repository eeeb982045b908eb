"""progress.json: where a run is between two evaluations, for those who watch it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedsaddle.stored import Record

FILE = "progress.json"
SECONDS = 1.0  # between two writings


@dataclass
class ProgressFile:
    """Writes the rounds that are done, at most once a second. A file that cannot be written is left as it is."""

    path: Path
    rounds: int
    after: int = 0  # rounds of earlier processes
    resumed: bool = False
    sites: Callable[[], Mapping[str, str]] | None = None  # of a deployed run: which are up
    began: float = field(default_factory=time.time)
    next: float = 0.0

    def __call__(self, done: int, seconds: float, now: bool = False) -> None:
        """So many rounds are done, in so many seconds; `now` writes in any case."""
        clock = time.monotonic()
        if not now and clock < self.next:
            return
        self.next = clock + SECONDS
        content: Record = {
            "round": done,
            "rounds": self.rounds,
            "seconds": round(seconds, 3),
            "began": self.began,  # this process, as a time of the clock
            "after": self.after,
            "resumed": self.resumed,
            "updated": time.time(),
        }
        write_progress(self.path, content if self.sites is None else {**content, "sites": dict(self.sites())})


def seconds_per_round(content: Mapping[str, object]) -> float | None:
    """The pace of the process that wrote the file; None before its first round has ended."""
    known = [content.get(key) for key in ("round", "after", "began", "updated")]
    done, after, began, updated = (float(v) if isinstance(v, int | float) else None for v in known)
    if done is None or after is None or began is None or updated is None:
        return None
    return (updated - began) / (done - after) if done > after and updated > began else None


def write_progress(path: Path, content: Record) -> None:
    """Write the file whole, but without waiting for the disk: after a power cut it may be missing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    try:
        with open(os.open(draft, flags, 0o666), "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            os.unlink(draft)

"""What a run is doing, as its folder tells."""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsaddle.files import Record
from fedsaddle.runs.folder import seconds_per_round
from fedsaddle.runs.lock import is_held
from fedsaddle.text import shortened, visible

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


LIVE = ("running", "resumed")
QUIET = 60.0  # seconds without a sign after which a run of another machine is not taken for a running one
ENDS = {  # what the summary says -> the state and what to say of it
    "finished": ("finished", "All rounds are done."),
    "target": ("finished", "It reached its target."),
    "patience": ("finished", "It ended early, because evaluations no longer became better."),
    "interrupted": ("interrupted", "It was interrupted, and can be resumed."),
    "diverged": ("diverged", "Its figures went to infinity; a smaller step may help."),
}
KILLED = "Its process ended without a word (killed, out of memory, or a power cut). It can be resumed."


@dataclass(frozen=True)
class State:
    """The state of a run, and a sentence about it."""

    word: str  # waiting, running, resumed, interrupted, killed, finished, diverged or lost
    words: str

    @property
    def live(self) -> bool:
        """Whether a process is at it."""
        return self.word in LIVE


@dataclass
class Watched:
    """A run's folder, followed as its files grow. Nothing is written."""

    folder: Path
    name: str
    records: Records = field(init=False)
    baseline: Records = field(init=False)
    config: Record = field(default_factory=dict)
    split: Record = field(default_factory=dict)
    agreed: Record = field(default_factory=dict)
    summary: Record = field(default_factory=dict)
    progress: Record = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    glimpse: Record | None = None
    state: State = State("waiting", "No run is there yet.")
    version: int = 0  # of the files that hardly ever change
    _stamps: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.records = Records(self.folder / "metrics.jsonl")
        self.baseline = Records(self.folder / "fedavg" / "metrics.jsonl")

    def read(self, whole: bool = True) -> None:
        """Read what has changed; of a run that is listed only, not `whole`, the newest record will do."""
        if whole:
            self.records.read()
            self.baseline.read()
        elif self._changed("metrics.jsonl"):
            self.glimpse = last_record(self.records.path)
        for name in ("config", "split", "agreed", "summary", "progress"):
            if self._changed(f"{name}.json"):
                setattr(self, name, read_small(self.folder / f"{name}.json"))
                self.version += name != "progress"
        if self._changed("log.txt"):
            self.log = tail(self.folder / "log.txt")
        self.state = self._state()

    def _changed(self, name: str) -> bool:
        try:
            found = (self.folder / name).stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            stamp = (0, 0, 0)
        before, self._stamps[name] = self._stamps.get(name, (0, 0, 0)), stamp
        return stamp != before

    def _state(self) -> State:
        held, resumed = is_held(self.folder), self.progress.get("resumed") is True
        if held is None and time.time() - (number(self.progress.get("updated")) or 0.0) < QUIET:
            held = True
        if held:
            after = number(self.progress.get("after")) or 0
            words = f"It was resumed after round {after:,.0f}." if resumed else "A process writes to its folder."
            return State("resumed" if resumed else "running", words)
        if held is None and not self.summary:
            return State("lost", "Another machine ran it, and there was no sign from there for a minute.")
        if not self.records.path.exists() and not self.config:
            return State("waiting", "No run is there yet.")
        stopped, ended = self.summary.get("stopped"), number(self.summary.get("rounds"))
        if isinstance(stopped, str) and stopped in ENDS and (ended is None or self.done <= ended):
            return State(*ENDS[stopped])
        return State("killed", KILLED)

    @property
    def last(self) -> Record | None:
        """The newest record."""
        return self.records.last or self.glimpse

    @property
    def done(self) -> int:
        """The rounds that are done, as far as the files tell."""
        known = [number(self.progress.get("round")), number((self.last or {}).get("round"))]
        return int(max((n for n in known if n is not None), default=0))

    @property
    def rounds(self) -> int | None:
        """The rounds that the run is to have."""
        section = self.config.get("run")
        known = number(self.progress.get("rounds"))
        if known is None and isinstance(section, dict):
            known = number(section.get("rounds"))
        return None if known is None or known < 1 else int(known)

    @property
    def seconds_left(self) -> float | None:
        """How long the other rounds take, if they take as long as those of this process did."""
        if not self.state.live or self.rounds is None:
            return None
        pace = seconds_per_round({**self.progress, "round": self.done})
        return None if pace is None else (self.rounds - self.done) * pace


def time_words(seconds: float | None) -> str:
    """A time for people.

    Examples:
        >>> time_words(0.4), time_words(75), time_words(7300), time_words(None)
        ('0.4 s', '1 min 15 s', '2 h 1 min', '–')
    """
    if seconds is None:
        return "–"
    whole = round(max(seconds, 0))
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400:,} days"


DEEPEST = 5  # folders below the one that is named
MOST = 500  # runs
MOST_FOLDERS = 20_000  # that are looked at
SIGNS = ("metrics.jsonl", "deployment.json")
PASSED_OVER = frozenset({"checkpoints", "tensorboard", "wandb"})  # folders in that of a run
BASELINE = "fedavg"  # in the folder of a run: shown with it


@dataclass
class Found:
    """The runs of some folders; those that begin later are found later."""

    folders: Sequence[Path]
    runs: dict[str, Watched] = field(default_factory=dict)  # by key
    more: bool = False  # whether there are more than are followed

    def look(self) -> None:
        """Find runs that are new. A folder without any stands for itself, and is waited for."""
        before, self.runs, self.more = self.runs, {}, False
        for folder in self.folders:
            below = [*_below(folder)]
            for path in below or [folder]:
                if len(self.runs) >= MOST:
                    self.more = True
                    return
                key = key_of(path)
                self.runs[key] = before.get(key) or Watched(path, _name(path, folder))


def key_of(path: Path) -> str:
    """A short name for a folder that can stand in an address."""
    return "r" + hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:12]


def _name(path: Path, folder: Path) -> str:
    above = Path(os.path.abspath(folder))
    said = above.name if path == folder else str(Path(above.name) / path.relative_to(folder))
    return shortened(visible(said or str(above)), 200)


def _below(folder: Path) -> Iterator[Path]:
    """The runs in a folder, by name; links are not followed."""
    left, waiting = MOST_FOLDERS, [(folder, 0)]
    while waiting and left > 0:
        path, depth = waiting.pop()
        left -= 1
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        if is_run := any(entry.name in SIGNS for entry in entries):
            yield path
        passed_over = {*PASSED_OVER, *([BASELINE] if is_run else [])}
        if depth < DEEPEST:
            waiting += [
                (path / entry.name, depth + 1)
                for entry in entries
                if not entry.name.startswith(".") and entry.name not in passed_over and _is_folder(entry)
            ]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False

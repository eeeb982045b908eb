"""What a run is doing, read from its folder as the files grow."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from fedsaddle.documents.files import BASELINE, CHECKPOINTS, SIGNS, RunFiles
from fedsaddle.documents.stored import Agreed, Round, SplitCounts, StoredProgress, read_document
from fedsaddle.documents.summary import AnySummary, DivergedSummary, OtherVersion, Settings
from fedsaddle.files import read_object
from fedsaddle.runs.folder import is_held, seconds_per_round
from fedsaddle.text import shortened, visible

PIECE = 8 << 20  # bytes of one reading
LONGEST = 16 << 20  # bytes of a line; a longer one is skipped
END = 256 << 10  # bytes at the end of a file, for a run that is listed only
MOST_RECORDS = 2000  # in memory; of more, every second one is dropped
TAIL, TAIL_LINES, TAIL_WIDTH = 64 << 10, 60, 400  # of a log
LARGEST_OBJECT = 16 << 20  # bytes of a JSON file
T = TypeVar("T")


@dataclass
class Records:
    """The records of a metrics.jsonl, followed as the file grows.

    Args:
        path: The file.
        thinned: Records for curves, without the figures of single clients.
        last: The newest record, whole.
        damaged: Number of lines that are no records.
        version: Grows with every change.
        behind: Whether the file has more than was read.
    """

    path: Path
    thinned: list[Round] = field(default_factory=list)
    last: Round | None = None
    damaged: int = 0
    version: int = 0
    behind: bool = False
    _at: int = 0
    _file: tuple[int, int] = (0, 0)
    _rest: bytes = b""
    _passing: bool = False  # in a line that is too long
    _every: int = 1  # one record in so many is stored
    _seen: int = 0

    def read(self) -> None:
        """Read what is new, up to a limit. A file that was replaced or truncated is read from its start."""
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
        self.thinned, self.last, self.damaged, self._at, self._file = [], None, 0, 0, file
        self._rest, self._passing, self._every, self._seen = b"", False, 1, 0
        self.version += 1

    def _take(self, line: bytes) -> None:
        record = record_of(line)
        before = self.last
        if record is None or (before is not None and len(record.mixture) != len(before.mixture)):
            self.damaged += 1
            return
        if before is not None and record.round <= before.round:
            return
        self.last = record
        self.version += 1
        if self._seen % self._every == 0:
            self.thinned.append(record.model_copy(update={"clients": {}}))
        self._seen += 1
        if len(self.thinned) >= MOST_RECORDS:
            self.thinned, self._every = self.thinned[::2], 2 * self._every

    @property
    def history(self) -> list[Round]:
        """The records for curves, and the newest."""
        if self.last is None or (self.thinned and self.thinned[-1].round == self.last.round):
            return self.thinned
        return [*self.thinned, self.last.model_copy(update={"clients": {}})]


def last_record(path: Path) -> Round | None:
    """The newest record of a file, from its end alone.

    Args:
        path: A metrics.jsonl.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - END))
            lines = file.read(END).split(b"\n")[:-1]
    except OSError:
        return None
    return next((found for line in reversed(lines[-5:]) if (found := record_of(line)) is not None), None)


def record_of(line: bytes) -> Round | None:
    """The record in a line; None if it is damaged.

    Args:
        line: Of a metrics.jsonl.
    """
    try:
        record = Round.model_validate_json(line)
    except ValidationError:
        return None
    return record if 0 <= record.round < 1 << 53 else None


def read_small(path: Path, read: Callable[[Path], T]) -> T | None:
    """Read a JSON file; None if there is none.

    Args:
        path: The file.
        read: What reads it.

    Raises:
        ValueError: if it is damaged or huge; says why.
        OtherVersion: if another version wrote it.
    """
    try:
        size = path.stat().st_size
    except OSError:
        return None
    if size > LARGEST_OBJECT:
        raise ValueError("the file is too large")
    return read(path)


def tail(path: Path) -> list[str]:
    """The last lines of a log, with control characters escaped.

    Args:
        path: The log.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - TAIL))
            content = file.read(TAIL)
    except OSError:
        return []
    lines = content.decode("utf-8", "replace").splitlines()[1 if size > TAIL else 0 :]
    return [shortened(visible(line), TAIL_WIDTH) for line in lines[-TAIL_LINES:]]


LIVE = ("running", "resumed")
QUIET = 60.0  # seconds without an update after which a run of another machine is lost
ENDS = {  # what the summary says -> the state and what to say of it
    "finished": ("finished", "All rounds are done."),
    "target": ("finished", "It reached its target."),
    "patience": ("finished", "It stopped early, as evaluations no longer improved."),
    "interrupted": ("interrupted", "It was interrupted, and can be resumed."),
    "diverged": ("diverged", "Its loss became infinite; a smaller step may help."),
}
KILLED = "Its process was killed, ran out of memory, or lost power. It can be resumed."


@dataclass(frozen=True)
class State:
    """The state of a run.

    Args:
        word: waiting, running, resumed, interrupted, killed, finished, diverged or lost.
        words: A sentence about it.
    """

    word: str
    words: str

    @property
    def live(self) -> bool:
        """Whether a process is at it."""
        return self.word in LIVE


@dataclass
class Watched:
    """A run's folder, followed as its files grow. Nothing is written.

    Args:
        folder: Its path.
        name: Shown on the page.
    """

    folder: Path
    name: str
    records: Records = field(init=False)
    baseline: Records = field(init=False)
    config: Settings = field(default_factory=dict)
    split: SplitCounts | None = None
    agreed: Agreed | None = None
    summary: AnySummary | None = None
    progress: StoredProgress | None = None
    log: list[str] = field(default_factory=list)
    newest: Round | None = None
    state: State = State("waiting", "No run is there yet.")
    version: int = 0  # of the files that hardly ever change
    _damage: dict[str, str] = field(default_factory=dict)  # by file
    _stamps: dict[Path, tuple[int, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files = RunFiles(self.folder)
        self.records = Records(self.files.metrics)
        self.baseline = Records(self.files.baseline.metrics)

    def read(self, whole: bool = True) -> None:
        """Read what has changed.

        Args:
            whole: Read all records; False: only the newest, for a run that is only listed.
        """
        files = self.files
        if whole:
            self.records.read()
            self.baseline.read()
        elif self._changed(files.metrics):
            self.newest = last_record(self.records.path)
        if self._changed(files.config):
            self.config = self._read(files.config, read_object) or {}
        if self._changed(files.split):
            self.split = self._read(files.split, lambda path: read_document(SplitCounts, path))
        if self._changed(files.agreed):
            self.agreed = self._read(files.agreed, lambda path: read_document(Agreed, path))
        if self._changed(files.summary):
            self.summary = self._read(files.summary, lambda path: files.stored_summary())
        if self._changed(files.progress):
            self.progress = self._read(files.progress, lambda path: read_document(StoredProgress, path))
        if self._changed(files.log):
            self.log = tail(files.log)
        self.state = self._state()

    def _read(self, path: Path, read: Callable[[Path], T]) -> T | None:
        self.version += path != self.files.progress
        self._damage.pop(path.name, None)
        try:
            return read_small(path, read)
        except ValueError as reason:
            self._damage[path.name] = f"{path.name} is damaged ({reason})"
        except OtherVersion as reason:
            self._damage[path.name] = str(reason)
        return None

    @property
    def damage(self) -> list[str]:
        """A line about each damaged file."""
        lines = list(self._damage.values())
        if self.records.damaged:
            lines.append(f"{self.files.metrics.name} has damaged lines ({self.records.damaged:,})")
        return lines

    def _changed(self, path: Path) -> bool:
        try:
            found = path.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        except OSError:
            stamp = (0, 0, 0)
        before, self._stamps[path] = self._stamps.get(path, (0, 0, 0)), stamp
        return stamp != before

    def _state(self) -> State:
        held, progress, summary = is_held(self.folder), self.progress, self.summary
        if held is None and progress is not None and time.time() - (progress.updated or 0.0) < QUIET:
            held = True
        if held:
            if progress is not None and progress.resumed:
                return State("resumed", f"It was resumed after round {progress.after:,}.")
            return State("running", "A process writes to its folder.")
        if held is None and summary is None:
            return State("lost", "It ran on another machine, which has sent no update for a minute.")
        if not self.records.path.exists() and not self.config:
            return State("waiting", "No run is there yet.")
        further = summary is not None and not isinstance(summary, DivergedSummary) and self.done > summary.rounds
        if summary is not None and not further:
            return State(*ENDS[summary.stopped])
        return State("killed", KILLED)

    @property
    def last(self) -> Round | None:
        """The newest record."""
        return self.records.last or self.newest

    @property
    def done(self) -> int:
        """The number of rounds that are done, as far as the files show."""
        return max(self.progress.round if self.progress else 0, self.last.round if self.last else 0)

    @property
    def rounds(self) -> int | None:
        """The number of rounds that the run will have."""
        section = self.config.get("run")
        planned = section.get("rounds") if isinstance(section, dict) else None
        if self.progress is not None and self.progress.rounds is not None:
            planned = self.progress.rounds
        return planned if isinstance(planned, int) and planned >= 1 else None

    @property
    def seconds_left(self) -> float | None:
        """The time that the other rounds take at the pace of this process."""
        if not self.state.live or self.rounds is None or self.progress is None:
            return None
        pace = seconds_per_round({**self.progress.to_dict(), "round": self.done})
        return None if pace is None else (self.rounds - self.done) * pace


def time_words(seconds: float | None) -> str:
    """A time in words.

    Args:
        seconds: The time; None: not known.

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
PASSED_OVER = frozenset({CHECKPOINTS, "tensorboard", "wandb"})  # folders in that of a run


@dataclass
class Found:
    """The runs of some folders; those that begin later are found later.

    Args:
        folders: Where to look.
        runs: By key.
        more: Whether there are more than are followed.
    """

    folders: Sequence[Path]
    runs: dict[str, Watched] = field(default_factory=dict)
    more: bool = False

    def look(self) -> None:
        """Find new runs. A folder without any is shown itself, until a run begins in it."""
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
    """A short name for a folder that can be part of an address.

    Args:
        path: The folder.
    """
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

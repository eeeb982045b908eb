"""What a run is doing, as its folder tells."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from fedsaddle.runs.lock import is_held
from fedsaddle.runs.progress_file import seconds_per_round
from fedsaddle.stored import Record
from fedsaddle.watching.follow import Records, last_record, number, read_small, tail

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

"""The rounds, the worst client and the remaining time: a bar on terminals, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedsaddle.metrics.selection import main_part
from fedsaddle.report.tables import real_terminal
from fedsaddle.text import visible

SECONDS_BETWEEN = 30.0  # lines about progress, where there is no bar


def has_bar(console: Console) -> bool:
    """Whether a bar can be drawn: on a real terminal, also if FORCE_COLOR says that a file is one."""
    return real_terminal(console) and not console.is_dumb_terminal


def duration(seconds: float) -> str:
    """A time in words.

    Examples:
        >>> duration(45), duration(600), duration(9000)
        ('45 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass
class PlainLines:
    """A line about what is done and the time left, at most every so many seconds; for logs."""

    say: Callable[[str], None]
    total: int
    unit: str = "round"
    every: float = SECONDS_BETWEEN
    began: float = field(default_factory=time.monotonic)
    first: int | None = None  # done when it began, in a run that was resumed
    said: float = field(default_factory=time.monotonic)
    pace: Callable[[], float | None] | None = None  # seconds a unit, where whoever does the work knows it

    def __call__(self, done: int, more: str = "") -> None:
        """So many are done."""
        now = time.monotonic()
        if self.first is None:
            self.first = max(done - 1, 0)
        if now - self.said < self.every:
            return
        self.said = now
        own = (now - self.began) / max(done - self.first, 1)
        pace = own if self.pace is None else self.pace()
        left = "" if pace is None else f", about {duration(pace * max(self.total - done, 0))} left"
        self.say(f"{self.unit} {done} of {self.total}{f', {more}' if more else ''}{left}")


class Progress:
    """What a run calls after each round; use it as a context manager. `quiet` leaves out all but warnings."""

    def __init__(
        self,
        console: Console,
        rounds: int,
        title: str,
        quiet: bool = False,
        pace: Callable[[], float | None] | None = None,
    ) -> None:
        self.console, self.quiet, self.worst = console, quiet, ""
        bar = has_bar(console)
        self.lines = None if bar or quiet else PlainLines(self._named(title), rounds, pace=pace)
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[worst]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not bar,
        )
        self.task = self.bar.add_task(escape(visible(title)), total=rounds, worst="")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, done: int, record: dict[str, Any] | None) -> None:
        """Advance to `done` rounds, and show the worst client of an evaluation's record."""
        if record is not None:
            part = main_part(record)
            measure = "accuracy" if "accuracy" in part else "loss"
            self.worst = f"worst {measure} {part[measure]['worst']:.3f}"
        if self.lines is not None:
            self.lines(done, self.worst)
        else:
            self.bar.update(self.task, completed=done, worst=self.worst)

    def _named(self, title: str) -> Callable[[str], None]:
        return lambda line: self.say(f"{visible(title)}: {line}")

    def say(self, message: str) -> None:
        """Print a message above the bar."""
        if self.quiet:
            return
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """Print a warning above the bar."""
        self.console.print(f"warning: {visible(message)}", highlight=False, markup=False, soft_wrap=True)

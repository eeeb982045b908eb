"""The progress of a run, of many runs and of a search: a bar on terminals, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from fedsaddle.commands.output import output
from fedsaddle.files import Record
from fedsaddle.metrics.selection import main_part
from fedsaddle.report.tables import real_terminal
from fedsaddle.report.words import duration
from fedsaddle.text import visible

if TYPE_CHECKING:
    from fedsaddle.studies.trial import Trial

SECONDS_BETWEEN = 30.0  # lines about progress, where there is no bar


def has_bar(console: Console) -> bool:
    """Whether a bar can be drawn: on a real terminal, even if FORCE_COLOR claims that a file is one."""
    return real_terminal(console) and not console.is_dumb_terminal


class _Left(ProgressColumn):
    """The time left, by the clock and not only when something is reported: a round may take minutes."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self.display = display

    def render(self, task: Task) -> Text:
        """The text of now."""
        return Text(self.display.left())


class Display:
    """A bar with its title, what is done and a remark on the time left; use it as a context manager.

    Args:
        title: at the left of the bar.
        console: where it is shown; None: standard error.
        quiet: whether nothing but warnings is shown; None: as `--quiet` says.
    """

    def __init__(self, title: str, console: Console | None = None, quiet: bool | None = None) -> None:
        self.title = title
        self.console = output.errors() if console is None else console
        self.quiet = output.quiet if quiet is None else quiet
        self.silent = self.quiet or has_bar(self.console)  # no lines
        self.began = self.said = time.monotonic()
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            _Left(self),
            console=self.console,
            transient=True,
            disable=self.quiet or not has_bar(self.console),
        )
        self.task = self.bar.add_task(_plain(title), total=1, count="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.bar.stop()

    def left(self) -> str:
        """A remark on the time left, by the clock of now; subclasses know it."""
        return ""

    def show(self, title: str, done: float, total: float, count: str = "") -> None:
        """Move the bar."""
        self.bar.update(self.task, description=_plain(title), completed=done, total=total, count=count)

    def line(self, *parts: str) -> None:
        """A line with the time left now and then, where there is no bar to see."""
        if not self.silent and time.monotonic() - self.said >= SECONDS_BETWEEN:
            self.said = time.monotonic()
            self.say(", ".join(part for part in (*parts, self.left()) if part))

    def say(self, text: str) -> None:
        """Print a note, which may have several lines, above the bar, unless `quiet`."""
        for line in () if self.quiet else text.split("\n"):
            self._print(line)

    def warn(self, text: str) -> None:
        """Print a warning above the bar."""
        self._print(f"warning: {text}")

    def _print(self, text: str) -> None:
        self.console.print(visible(text), highlight=False, markup=False, soft_wrap=True)


class RoundProgress(Display):
    """The progress of one run, called after each round: the worst client of the last evaluation and the time left.

    Args:
        rounds: of the whole run.
        title: at the left of the bar, such as the algorithm.
        console: where it is shown; None: standard error.
        quiet: whether nothing but warnings is shown; None: as `--quiet` says.
        pace: seconds a round, where whoever computes the rounds knows it; None: by the clock of this process.
    """

    def __init__(
        self,
        rounds: int,
        title: str,
        console: Console | None = None,
        quiet: bool | None = None,
        pace: Callable[[], float | None] | None = None,
    ) -> None:
        super().__init__(title, console, quiet)
        self.rounds, self.pace = rounds, pace
        self.worst, self.done = "", 0
        self.first: int | None = None  # rounds that were done before, in a run that was resumed
        self.show(title, 0, rounds, f"0/{rounds}")

    def __call__(self, done: int, record: Record | None) -> None:
        """Advance to `done` rounds, and show the worst client of an evaluation's record."""
        if self.first is None:
            self.first = max(done - 1, 0)
        if record is not None:
            part = main_part(record)
            measure = "accuracy" if "accuracy" in part else "loss"
            self.worst = f"worst {measure} {part[measure]['worst']:.3f}"
        self.done = done
        self.show(self.title, done, self.rounds, f"{done}/{self.rounds} {self.worst}".rstrip())
        self.line(f"{self.title}: round {done} of {self.rounds}", self.worst)

    def left(self) -> str:
        """Of all rounds; nothing before the first has ended."""
        if self.first is None:
            return ""
        own = (time.monotonic() - self.began) / max(self.done - self.first, 1)
        pace = own if self.pace is None else self.pace()
        return "" if pace is None else f"about {duration(pace * max(self.rounds - self.done, 0))} left"


class ModelsProgress(Display):
    """The progress of models that are trained one after the other, called with those that are done and their number."""

    done, total = 0, 0

    def __call__(self, done: int, total: int) -> None:
        """Advance to `done` models."""
        self.done, self.total = done, total
        self.show(self.title, done, total, f"{done}/{total}")
        self.line(f"{self.title}: {done} of {total}")

    def left(self) -> str:
        """Of all models; nothing before the first is done."""
        if not self.done:
            return ""
        return f"about {duration((time.monotonic() - self.began) / self.done * (self.total - self.done))} left"


@dataclass
class Pace:
    """How fast runs end, by their weights. Stored ones take no time and do not count."""

    total: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    done: float = 0.0
    runs: int = 0
    ran: float = 0.0  # of what is done, not from a store

    def __post_init__(self) -> None:
        self.began = self.clock()

    def count(self, weight: float, stored: bool) -> None:
        """A run has ended, or was stored."""
        self.runs, self.done = self.runs + 1, min(self.done + weight, self.total)
        self.ran += 0.0 if stored else weight

    @property
    def left(self) -> float | None:
        """Seconds; None before the first run has ended."""
        return (self.clock() - self.began) / self.ran * (self.total - self.done) if self.ran else None


class RunsProgress(Display):
    """The progress of runs of known weights, such as those of a sweep or of a figure.

    An interruption is reported, and that the runs which have ended are kept.
    """

    def __init__(self, title: str, weights: Sequence[float]) -> None:
        super().__init__(title)
        self.count, self.pace = len(weights), Pace(sum(weights))
        self.parts: dict[str, float] = {}  # of the runs that are under way: the weight that is done
        self.show(title, 0, self.pace.total, f"0 of {self.count} runs")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        super().__exit__(kind, error, at)
        if isinstance(error, KeyboardInterrupt):
            kept = f"{self.pace.runs} of {self.count} runs have ended and are kept"
            self.say(f"{self.title}: interrupted; {kept}. The same command continues")

    def left(self) -> str:
        """Of all runs; nothing before the first has ended."""
        return "" if self.pace.left is None else f"about {duration(self.pace.left)} left"

    def part(self, run: str, done: float) -> None:
        """A run that is under way has done so much of its weight."""
        self.parts[run] = done
        self._move()

    def ended(self, weight: float = 1.0, stored: bool = False, run: str = "") -> None:
        """A run has ended, or was stored."""
        self.parts.pop(run, None)
        self.pace.count(weight, stored)
        self._move()
        self.line(f"{self.title}: run {self.pace.runs} of {self.count}")

    def _move(self) -> None:
        done = self.pace.done + sum(self.parts.values())
        self.show(self.title, done, self.pace.total, f"{self.pace.runs} of {self.count} runs")


class SearchProgress(Display):
    """The progress of a search: candidate, round, the best figure so far and its budget.

    Args:
        budget: seconds after which no other trial begins; None: no limit.
        used: seconds that earlier processes used of it.
        console: where it is shown; None: standard error.
        quiet: whether nothing but warnings is shown; None: as `--quiet` says.
    """

    def __init__(
        self,
        budget: float | None,
        used: float = 0.0,
        console: Console | None = None,
        quiet: bool | None = None,
    ) -> None:
        super().__init__("search", console, quiet)
        self.budget, self.best = budget, float("-inf")
        self.began -= used
        self.paces: dict[str, tuple[float, int]] = {}  # of each trial: when it was first seen, and in which round
        self.trial: Trial | None = None  # that reported last, and its rounds
        self.done = 0

    def __call__(self, trial: Trial, done: int, best: float | None) -> None:
        """Show a trial after `done` rounds."""
        if best is not None:
            self.best = max(self.best, best)
        self.trial, self.done = trial, done
        self.paces.setdefault(f"{trial.name} {trial.rounds}", (time.monotonic(), done))
        title = f"{trial.candidate.name}, step {trial.step:g}"
        figure = "" if self.best == float("-inf") else f"best validation AUROC {self.best:.4f}"
        self.show(title, done, trial.rounds, f"round {done}/{trial.rounds} {figure}".rstrip())
        self.line(f"{title}: round {done} of {trial.rounds}", figure)

    def left(self) -> str:
        """What is left of the budget and, once it is used up, of the trial that runs: those that began continue."""
        if self.budget is None or self.trial is None:
            return ""
        now = time.monotonic()
        if (rest := self.budget - (now - self.began)) > 0:
            return f"{duration(rest)} of the budget left"
        first, at = self.paces[f"{self.trial.name} {self.trial.rounds}"]
        if self.done == at or self.done == self.trial.rounds:
            return "budget used up, last trials"
        more = (now - first) / (self.done - at) * (self.trial.rounds - self.done)
        return f"budget used up, last trials: this one takes about {duration(more)} more"

    def step(self, text: str, done: int, total: int) -> None:
        """Show another part of the work."""
        self.trial = None
        self.show(text, done, total, f"{done}/{total}")
        self.line(f"{text}: {done} of {total}")


def _plain(text: str) -> str:
    """Text in which nothing is markup."""
    return escape(visible(text))

"""The progress of a search: candidate, round, best figure so far and its budget; a bar on terminals, else lines."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from fedsaddle.report.progress import SECONDS_BETWEEN, duration, has_bar
from fedsaddle.studies.trial import Trial
from fedsaddle.text import visible


class _Left(ProgressColumn):
    """The time left, by the clock and not only when a trial reports: a round may take minutes."""

    def __init__(self, progress: SearchProgress) -> None:
        super().__init__()
        self.progress = progress

    def render(self, task: Task) -> Text:
        """The text of now."""
        return Text(self.progress.left())


class SearchProgress:
    """What a search calls while its trials run; use it as a context manager."""

    def __init__(self, console: Console, budget: float | None, quiet: bool = False, used: float = 0.0) -> None:
        self.console, self.silent = console, quiet or has_bar(console)
        self.said = time.monotonic()
        self.budget, self.began, self.best = budget, time.monotonic() - used, float("-inf")
        self.paces: dict[str, tuple[float, int]] = {}  # of each trial: when it was first seen, and in which round
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[best]}"),
            TimeElapsedColumn(),
            _Left(self),
            console=console,
            transient=True,
            disable=quiet or not has_bar(console),
        )
        self.trial: Trial | None = None  # that reported last, and its rounds
        self.done = 0
        self.task = self.bar.add_task("search", total=1, best="")

    def __enter__(self) -> SearchProgress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, trial: Trial, done: int, best: float | None) -> None:
        """Show a trial after `done` rounds."""
        if best is not None:
            self.best = max(self.best, best)
        self.trial, self.done = trial, done
        self.paces.setdefault(f"{trial.name} {trial.rounds}", (time.monotonic(), done))
        title = f"{trial.candidate.name}, step {trial.step:g}"
        figure = "" if self.best == float("-inf") else f"best validation AUROC {self.best:.4f}"
        self.bar.update(self.task, description=title, completed=done, total=trial.rounds, best=figure)
        self._line(f"{title}: round {done} of {trial.rounds}", figure, self.left())

    def left(self) -> str:
        """What is left of the budget and, once it is used up, of the trial that runs: those that began go on."""
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

    def _line(self, *parts: str) -> None:
        """A line now and then, where there is no bar to see."""
        if not self.silent and time.monotonic() - self.said >= SECONDS_BETWEEN:
            self.said = time.monotonic()
            self.console.print(", ".join(p for p in parts if p), highlight=False, markup=False, soft_wrap=True)

    def say_step(self, text: str, done: int, total: int) -> None:
        """Show another part of the work."""
        self.bar.update(self.task, description=escape(visible(text)), completed=done, total=total, best="")
        self.trial = None
        self._line(f"{visible(text)}: {done} of {total}")

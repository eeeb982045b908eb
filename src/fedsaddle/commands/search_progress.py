"""The progress of a search: candidate, round, best figure so far and the time left; a bar on terminals, else lines."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from fedsaddle.report.progress import SECONDS_BETWEEN, has_bar
from fedsaddle.shown import visible
from fedsaddle.trials.trial import Trial


class SearchProgress:
    """What a search calls while its trials run; use it as a context manager."""

    def __init__(self, console: Console, budget: float | None, quiet: bool = False) -> None:
        self.console, self.silent = console, quiet or has_bar(console)
        self.said = time.monotonic()
        self.budget, self.began, self.best = budget, time.monotonic(), float("-inf")
        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("round {task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[best]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            disable=quiet or not has_bar(console),
        )
        self.task = self.bar.add_task("search", total=1, best="", left="")

    def __enter__(self) -> SearchProgress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, trial: Trial, done: int, best: float | None) -> None:
        """Show a trial after `done` rounds."""
        if best is not None:
            self.best = max(self.best, best)
        left = "" if self.budget is None else max(0.0, self.budget - (time.monotonic() - self.began))
        title = f"{trial.candidate.name}, step {trial.step:g}"
        figure = "" if self.best == float("-inf") else f"best validation AUROC {self.best:.4f}"
        remaining = "" if left == "" else f"at most {left:.0f} s left" if left else "last trials"
        self.bar.update(self.task, description=title, completed=done, total=trial.rounds, best=figure, left=remaining)
        self._line(f"{title}: round {done} of {trial.rounds}", figure, remaining)

    def _line(self, *parts: str) -> None:
        """A line now and then, where there is no bar to see."""
        if not self.silent and time.monotonic() - self.said >= SECONDS_BETWEEN:
            self.said = time.monotonic()
            self.console.print(", ".join(p for p in parts if p), highlight=False, markup=False, soft_wrap=True)

    def say_step(self, text: str, done: int, total: int) -> None:
        """Show another part of the work."""
        self.bar.update(self.task, description=escape(visible(text)), completed=done, total=total, best="", left="")
        self._line(f"{visible(text)}: {done} of {total}")

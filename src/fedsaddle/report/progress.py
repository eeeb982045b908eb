"""A progress bar with the rounds, the worst client and the remaining time, shown on terminals only."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedsaddle.metrics.target import main_part
from fedsaddle.shown import visible


class Progress:
    """A progress bar that a run calls after each round; use it as a context manager."""

    def __init__(self, console: Console, rounds: int, title: str) -> None:
        self.console = console
        self.bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[worst]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(escape(visible(title)), total=rounds, worst="")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, done: int, record: dict[str, Any] | None) -> None:
        """Advance to `done` rounds, and show the worst client of an evaluation's record."""
        self.bar.update(self.task, completed=done)
        if record is not None:
            part = main_part(record)
            measure = "accuracy" if "accuracy" in part else "loss"
            self.bar.update(self.task, worst=f"worst {measure} {part[measure]['worst']:.3f}")

    def say(self, message: str) -> None:
        """Print a message above the bar."""
        self.console.print(message, highlight=False, markup=False, soft_wrap=True)

    def warn(self, message: str) -> None:
        """Print a warning above the bar."""
        self.console.print(f"warning: {visible(message)}", highlight=False, markup=False, soft_wrap=True)

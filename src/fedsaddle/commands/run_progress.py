"""Progress of many runs: a bar with the time left, elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedsaddle.commands.output import output, say
from fedsaddle.text import visible


@dataclass
class Pace:
    """How fast runs end, by their weights. Those that are taken from the store take no time, and tell nothing of it."""

    total: float
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)
    done: float = 0.0
    runs: int = 0
    ran: float = 0.0  # of what is done, not from the store

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


@contextmanager
def runs_in_progress(title: str, weights: Sequence[float]) -> Iterator[Callable[[float, bool], None]]:
    """Show how far the runs are; gives what to call with a run's weight when it has ended, or was stored.

    An interruption is told, and that the runs which have ended are kept.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from fedsaddle.report.progress import SECONDS_BETWEEN, duration, has_bar

    errors, pace = output.errors(), Pace(sum(weights))
    bars, said = has_bar(errors), pace.began
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[runs]}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=output.quiet or not bars) as bar:
        task = bar.add_task(visible(title), total=pace.total, runs=f"0 of {len(weights)} runs")

        def finished(weight: float, stored: bool) -> None:
            nonlocal said
            pace.count(weight, stored)
            left = "" if pace.left is None else f", about {duration(pace.left)} left"
            bar.update(task, completed=pace.done, runs=f"{pace.runs} of {len(weights)} runs{left}")
            if not bars and pace.clock() - said >= SECONDS_BETWEEN:
                said = pace.clock()
                say(f"{title}: run {pace.runs} of {len(weights)}{left}")

        try:
            yield finished
        except KeyboardInterrupt:
            kept = f"{pace.runs} of {len(weights)} runs have ended and are kept"
            say(f"{title}: interrupted; {kept}. The same command goes on")
            raise

"""Tells callbacks of a run, and leaves out those that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from fedsaddle.errors import BadInput
from fedsaddle.shown import shortened, visible
from fedsaddle.stored import Record
from fedsaddle.tracking.callbacks import Beginning, Begins, Callback

REMEDY = "must be a list of objects with on_record(record) and on_end(summary), such as fs.trackers.TensorBoard()"


@dataclass
class Told:
    """The callbacks of a run. An exception of one is a warning, and it is told nothing more."""

    callbacks: Sequence[Callback]
    warn: Callable[[str], None]
    left_out: set[int] = field(default_factory=set)

    def begin(self, beginning: Beginning) -> None:
        """The run begins or continues."""
        self._each("on_begin", lambda one: one.on_begin(beginning) if isinstance(one, Begins) else None)

    def record(self, record: Record) -> None:
        """An evaluation; each callback has a copy of its own."""
        self._each("on_record", lambda one: one.on_record(deepcopy(record)))

    def end(self, summary: Record) -> None:
        """The end."""
        self._each("on_end", lambda one: one.on_end(deepcopy(summary)))

    def _each(self, method: str, tell: Callable[[Callback], None]) -> None:
        for number, one in enumerate(self.callbacks):
            if number in self.left_out:
                continue
            try:
                tell(one)
            except Exception as reason:  # of others: a server that is down, a full disk, a bug
                self.left_out.add(number)
                said = shortened(f"{type(reason).__name__}: {visible(reason)}", 300)
                name = type(one.callback if isinstance(one, Postponed) else one).__name__
                self.warn(f"{name}.{method} failed ({said}); it is left out, and the run goes on")


@dataclass
class Postponed:
    """A callback whose end is told later, when the pictures of the run are there as well."""

    callback: Callback
    summary: Record | None = None

    def on_begin(self, beginning: Beginning) -> None:
        """The run begins or continues."""
        if isinstance(self.callback, Begins):
            self.callback.on_begin(beginning)

    def on_record(self, record: Record) -> None:
        """An evaluation."""
        self.callback.on_record(record)

    def on_end(self, summary: Record) -> None:
        """Remember the end."""
        self.summary = summary


def checked_callbacks(given: object) -> tuple[Callback, ...]:
    """The callbacks that a user gave; raise `BadInput` for anything else."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadInput("callbacks", type(given).__name__, REMEDY)
    for one in given:
        if isinstance(one, type) or not isinstance(one, Callback):
            raise BadInput("callbacks", one.__name__ if isinstance(one, type) else type(one).__name__, REMEDY)
    return tuple(given)

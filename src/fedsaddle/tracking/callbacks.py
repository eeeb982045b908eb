"""What a run tells others: how it begins, each evaluation, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fedsaddle.stored import Record


@dataclass(frozen=True)
class Beginning:
    """How a run begins, or continues after `done` rounds."""

    name: str  # of the algorithm
    rounds: int
    done: int = 0  # rounds of earlier processes
    resumed: bool = False  # whether an earlier process began the run
    folder: Path | None = None  # where the run writes, if anywhere
    clients: tuple[str, ...] = ()  # names, in the order of a record's figures
    parameters: Mapping[str, Any] = field(default_factory=dict)  # the algorithm's fields and the run's settings


@runtime_checkable
class Callback(Protocol):
    """Someone who is told of a run: of each evaluation, and of its end.

    A callback that raises an exception is warned of once and left out; the run goes on. One that also has the method of
    `fs.Begins` is told how the run begins.
    """

    def on_record(self, record: Record) -> None:
        """An evaluation: a line of metrics.jsonl."""

    def on_end(self, summary: Record) -> None:
        """The end, whatever it is: `summary["stopped"]` is "finished", "target", "patience", "interrupted", "diverged"
        or "failed"."""


@runtime_checkable
class Begins(Protocol):
    """A callback that is also told how the run begins, before its first round."""

    def on_begin(self, beginning: Beginning) -> None:
        """The run begins or continues."""

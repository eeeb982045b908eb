"""A wrapper that makes an engine bound and aggregate its replies robustly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import ClientsState, Ints, R, Task
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.robust.reduction import Guard
from fedsaddle.robust.settings import Robust


@dataclass
class Guarded(Wrapper):
    """The same clients, whose replies are bounded and aggregated as `robust` says."""

    robust: Robust

    def __post_init__(self) -> None:
        if not hasattr(self.inner, "reduce"):
            name, remedy = type(self.inner).__name__, "reduces replies by itself; robust works on our own engines"
            raise BadInput("engine", name, f"{remedy}, or on one with an attribute `reduce` that it uses")
        self.guard = Guard(self.robust, self.inner.sizes)
        self.inner.reduce = self.guard

    def begin(self, round: int) -> None:
        """Begin a round."""
        self.guard.begin()
        super().begin(round)

    def commit(self) -> None:
        """End the round."""
        super().commit()
        self.guard.commit()

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Ask the clients; the engine reduces their replies by the guard."""
        return self.inner.ask(cohort, task, sent, weights=weights)

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint, with the running scales."""
        inner = self.inner.state()
        return ClientsState(inner.records, {**inner.notes, "robust": self.guard.state()})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Restore the clients and the running scales from a checkpoint."""
        super().restore(records, notes, algorithm)
        if "robust" in notes:
            self.guard.restore(notes["robust"])

    def report(self) -> dict[str, Any]:
        """Entries about the clients for the summary, with the setting and what was bounded."""
        return {**self.inner.report(), "robust": {**self.robust.to_dict(), **self.guard.report()}}

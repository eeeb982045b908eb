"""Measures beside those of the problem, taken at every evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput
from fedsaddle.metrics.measures import Measure, Position, Taken


@dataclass
class Measures:
    """Those of one run."""

    asked: tuple[Measure, ...]
    warn: Callable[[str], None]
    warned: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """Of their figures."""
        return [measure.name for measure in self.asked]

    def check(self, at: Position) -> None:
        """Take them once, so that what cannot be measured is refused before anything is written."""
        if self.asked and not isinstance(at.train, Stacked):
            raise BadInput("measures", self.names[0], "needs all rows in memory; leave it out for lazy rows")
        for measure in self.asked:
            taken(measure, at)

    def record(self, pooled: dict[str, float], at: Position, done: int) -> dict[str, Any]:
        """`pooled` with the figures, and under `not_reached` those whose inner solve ended before its tolerance."""
        found = {measure.name: taken(measure, at) for measure in self.asked}
        rough = [name for name, figure in found.items() if not figure.reached]
        for name in rough:
            if name not in self.warned:
                self.warn(
                    f"round {done}: the inner solve of {name} did not reach its tolerance, so that its figures are "
                    "rough; raise most_steps or tolerance"
                )
        self.warned |= set(rough)
        figures = pooled | {name: figure.value for name, figure in found.items()}
        return ({"pooled": figures} if figures else {}) | ({"not_reached": rough} if rough else {})


def taken(measure: Measure, at: Position) -> Taken:
    """What it found; a plain number is exact."""
    found = measure(at)
    return found if isinstance(found, Taken) else Taken(float(found))

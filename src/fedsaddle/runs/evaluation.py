"""How a run is measured: an evaluator over rows in this process; a deployed run has one that asks the sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.errors import BadInput
from fedsaddle.metrics.evaluation import Measured, evaluate
from fedsaddle.metrics.measures import Measure, Position, Taken
from fedsaddle.problems.protocols import PoolsMeasures, Problem


class Solution(NamedTuple):
    """What is measured: the model after some rounds, and the dual that goes with it."""

    model: Tensor
    dual: Tensor | None
    rounds: int


class Evaluator(Protocol):
    """Whoever can measure a solution. `part` is "test" or "train"."""

    @property
    def parts(self) -> Sequence[str]:
        """The parts that there are, the one that counts first."""
        ...

    def check(self, at: Solution) -> None:
        """Refuse, before anything is written, what cannot be measured."""
        ...

    def row_measures(self, at: Solution) -> list[str]:
        """The names of what is measured at each client."""
        ...

    def pooled_measures(self, at: Solution) -> list[str]:
        """The names of what is measured over all clients together."""
        ...

    def measure(self, part: str, at: Solution) -> Measured:
        """Each client's mean of every measure."""
        ...

    def pool(self, at: Solution) -> dict[str, Any]:
        """`{"pooled": {name: figure}}`, and under `not_reached` the names of rough figures; empty without any."""
        ...


@dataclass
class LocalEvaluator:
    """Measures on rows in this process."""

    problem: Problem
    train: Stacked | Lazy
    test: Stacked | None
    measures: tuple[Measure, ...] = ()  # beside those of the problem
    warn: Callable[[str], None] = lambda text: None
    _warned: set[str] = field(default_factory=set)

    @property
    def parts(self) -> Sequence[str]:
        """Test rows, where there are any, and training rows."""
        return ("train",) if self.test is None else ("test", "train")

    def check(self, at: Solution) -> None:
        """Take every measure once."""
        if self.measures and not isinstance(self.train, Stacked):
            raise BadInput("measures", self.measures[0].name, "needs all rows in memory; leave it out for lazy rows")
        for measure in self.measures:
            evaluate_measure(measure, self._position(at))

    def row_measures(self, at: Solution) -> list[str]:
        """As measured at the first row."""
        x, y = self.train.client(0)
        with torch.no_grad():
            return list(self.problem.row_measures(at.model, x[:1], y[:1], at.dual))

    def pooled_measures(self, at: Solution) -> list[str]:
        """Those of the problem, and those that were asked for."""
        return [*self._problems_own(at), *(measure.name for measure in self.measures)]

    def measure(self, part: str, at: Solution) -> Measured:
        """On the test or the training rows."""
        rows = self.test if part == "test" and self.test is not None else self.train
        return evaluate(self.problem, at.model, rows, at.dual)

    def pool(self, at: Solution) -> dict[str, Any]:
        """The problem's own pooled measures and those that were asked for."""
        figures = self._problems_own(at)
        found = {measure.name: evaluate_measure(measure, self._position(at)) for measure in self.measures}
        rough = [name for name, figure in found.items() if not figure.reached]
        for name in set(rough) - self._warned:
            self.warn(
                f"round {at.rounds}: the inner solve of {name} did not reach its tolerance, so that its figures are "
                "rough; raise most_steps or tolerance"
            )
        self._warned |= set(rough)
        figures |= {name: figure.value for name, figure in found.items()}
        return ({"pooled": figures} if figures else {}) | ({"not_reached": rough} if rough else {})

    def _problems_own(self, at: Solution) -> dict[str, float]:
        rows = self.train if self.test is None else self.test
        if not isinstance(self.problem, PoolsMeasures) or not isinstance(rows, Stacked):
            return {}
        return dict(self.problem.pooled_measures(at.model, at.dual, rows))

    def _position(self, at: Solution) -> Position:
        return Position(self.problem, at.model, at.dual, self.train, self.test)


def evaluate_measure(measure: Measure, at: Position) -> Taken:
    """What a measure found; a plain number is exact."""
    found = measure(at)
    return found if isinstance(found, Taken) else Taken(float(found))

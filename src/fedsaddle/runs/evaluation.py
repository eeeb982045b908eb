"""Evaluation of a run on rows in this process; `deployment.evaluation` evaluates at the sites."""

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
    """The model and the dual after some rounds."""

    model: Tensor
    dual: Tensor | None
    rounds: int


class Evaluator(Protocol):
    """The interface of evaluators. `part` is "test" or "train"."""

    @property
    def parts(self) -> Sequence[str]:
        """The available parts; the first is the main one."""
        ...

    def check(self, at: Solution) -> None:
        """Raise `BadInput` if something cannot be measured; called before anything is written."""
        ...

    def row_measures(self, at: Solution) -> list[str]:
        """The names of the measures per client."""
        ...

    def pooled_measures(self, at: Solution) -> list[str]:
        """The names of the measures over all clients together."""
        ...

    def measure(self, part: str, at: Solution) -> Measured:
        """Each client's mean of every measure."""
        ...

    def pool(self, at: Solution) -> dict[str, Any]:
        """`{"pooled": {name: figure}}`, and the names of inexact figures under `not_reached`; may be empty."""
        ...


@dataclass
class LocalEvaluator:
    """Evaluates on rows in this process."""

    problem: Problem
    train: Stacked | Lazy
    test: Stacked | None
    measures: tuple[Measure, ...] = ()  # in addition to those of the problem
    warn: Callable[[str], None] = lambda text: None
    _warned: set[str] = field(default_factory=set)

    @property
    def parts(self) -> Sequence[str]:
        """Test rows, if there are any, and training rows."""
        return ("train",) if self.test is None else ("test", "train")

    def check(self, at: Solution) -> None:
        """Evaluate every measure once."""
        if self.measures and not isinstance(self.train, Stacked):
            raise BadInput("measures", self.measures[0].name, "needs all rows in memory; leave it out if rows are lazy")
        for measure in self.measures:
            evaluate_measure(measure, self._position(at))

    def row_measures(self, at: Solution) -> list[str]:
        """The measures of the problem, evaluated on one row."""
        x, y = self.train.client(0)
        with torch.no_grad():
            return list(self.problem.row_measures(at.model, x[:1], y[:1], at.dual))

    def pooled_measures(self, at: Solution) -> list[str]:
        """The pooled measures of the problem, and the additional ones."""
        return [*self._problem_figures(at), *(measure.name for measure in self.measures)]

    def measure(self, part: str, at: Solution) -> Measured:
        """Evaluate on the test or the training rows."""
        rows = self.test if part == "test" and self.test is not None else self.train
        return evaluate(self.problem, at.model, rows, at.dual)

    def pool(self, at: Solution) -> dict[str, Any]:
        """The pooled measures of the problem, and the additional ones."""
        figures = self._problem_figures(at)
        found = {measure.name: evaluate_measure(measure, self._position(at)) for measure in self.measures}
        inexact = [name for name, figure in found.items() if not figure.reached]
        for name in set(inexact) - self._warned:
            self.warn(
                f"round {at.rounds}: the inner solve of {name} did not reach its tolerance, so its figures are "
                "inexact; raise most_steps or tolerance"
            )
        self._warned |= set(inexact)
        figures |= {name: figure.value for name, figure in found.items()}
        return ({"pooled": figures} if figures else {}) | ({"not_reached": inexact} if inexact else {})

    def _problem_figures(self, at: Solution) -> dict[str, float]:
        rows = self.train if self.test is None else self.test
        if not isinstance(self.problem, PoolsMeasures) or not isinstance(rows, Stacked):
            return {}
        return dict(self.problem.pooled_measures(at.model, at.dual, rows))

    def _position(self, at: Solution) -> Position:
        return Position(self.problem, at.model, at.dual, self.train, self.test)


def evaluate_measure(measure: Measure, at: Position) -> Taken:
    """Evaluate a measure; a plain number counts as exact."""
    found = measure(at)
    return found if isinstance(found, Taken) else Taken(float(found))

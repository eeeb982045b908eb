"""Evaluation of a run on rows in this process, and its best round; `deployment.evaluation` evaluates at the sites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.algorithms.protocols import OwnLayers
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.engines.device import CPU, fits
from fedsaddle.errors import BadInput
from fedsaddle.files import JsonObject, Record
from fedsaddle.metrics.evaluation import Measured, evaluate, evaluate_each, personal_pooled
from fedsaddle.metrics.measures import Measure, MeasureResult, Position
from fedsaddle.metrics.selection import Selection
from fedsaddle.problems.protocols import HasModel, PoolsMeasures, Problem
from fedsaddle.runs.checkpoints import Checkpoint

ROWS_SCORED = 1000  # training rows, about, on which the spread of a model's scores is checked


class Solution(NamedTuple):
    """The model and the dual after some rounds."""

    model: Tensor
    dual: Tensor | None
    rounds: int
    own: OwnLayers | None = None  # layers that clients keep to themselves


class Evaluator(Protocol):
    """The interface of evaluators. A part is "validation", "test" or "train"."""

    @property
    def parts(self) -> Sequence[str]:
        """The available parts, in this order; the first is the one that a run watches."""
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

    def start_loss(self, at: Solution) -> dict[str, float] | None:
        """Statistics over clients of the training loss where the run began, in no more than one evaluation.

        None if it is not finite, or not known.
        """
        ...

    def scores_vary(self, at: Solution) -> bool:
        """Whether the scores of the model differ between rows; True if that is not known."""
        ...

    def pool(self, part: str, at: Solution) -> Record:
        """`{"pooled": {name: figure}}`, and the names of inexact figures under `not_reached`; may be empty.

        The figures of validation rows stand under "pooled_validation".
        """
        ...


@dataclass
class LocalEvaluator:
    """Evaluates on rows in this process."""

    problem: Problem
    train: Stacked | Lazy
    test: Stacked | None
    measures: tuple[Measure, ...] = ()  # in addition to those of the problem
    warn: Callable[[str], None] = lambda text: None
    validation: Stacked | None = None
    device: torch.device = CPU  # where the problem's measures are evaluated
    _there: dict[str, Stacked] = field(default_factory=dict)  # part -> its rows on that device
    _warned: set[str] = field(default_factory=set)
    # part -> clients whose loss was not finite in the last evaluation
    _not_finite: dict[str, NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def parts(self) -> Sequence[str]:
        """Validation rows and test rows, if there are any, and training rows."""
        return parts_of(self.validation is not None, self.test is not None)

    def check(self, at: Solution) -> None:
        """Evaluate every measure once."""
        if self.measures and at.own is not None:
            raise BadInput("measures", self.measures[0].name, "is of one model; leave it out where layers are local")
        if self.measures and not isinstance(self.train, Stacked):
            raise BadInput("measures", self.measures[0].name, "needs all rows in memory; leave it out if rows are lazy")
        for measure in self.measures:
            evaluate_measure(measure, self._position(self.parts[0], at))

    def row_measures(self, at: Solution) -> list[str]:
        """The measures of the problem, evaluated on one row."""
        x, y = self.train.client(0)
        with torch.no_grad():
            return list(self.problem.row_measures(at.model, x[:1], y[:1], at.dual))

    def pooled_measures(self, at: Solution) -> list[str]:
        """The pooled measures of the problem, and the additional ones."""
        return [*self._problem_figures(self.parts[0], at), *(measure.name for measure in self.measures)]

    def measure(self, part: str, at: Solution) -> Measured:
        """Evaluate on the rows of that part; a client whose loss is not finite counts as one without rows.

        If no client's loss is finite, they stand as they are.
        """
        found = _evaluated(self.problem, *self._moved(part, at))
        wrong = ~np.isfinite(found.values["loss"]) & (found.sizes > 0)
        if not wrong.any() or (wrong == (found.sizes > 0)).all():
            self._not_finite.pop(part, None)
            return found
        self._not_finite[part] = wrong
        for i in np.flatnonzero(wrong).tolist():
            if (key := f"loss of client {i}") not in self._warned:
                self._warned.add(key)
                self.warn(f"round {at.rounds}: client {i} is left out of the {part} figures: its loss is not finite")
        values = {name: np.where(wrong, np.nan, v) for name, v in found.values.items()}
        return Measured(np.where(wrong, 0, found.sizes), values)

    def start_loss(self, at: Solution) -> dict[str, float] | None:
        """Of the training rows."""
        found = _evaluated(self.problem, *self._moved("train", at))
        there = (found.sizes > 0) & np.isfinite(found.values["loss"])
        if not there.any():
            return None
        return Measured(found.sizes[there], {"loss": found.values["loss"][there]}).spread()["loss"]

    def scores_vary(self, at: Solution) -> bool:
        """Whether some training rows have other outputs of the network than the others."""
        problem = self.problem
        if not isinstance(problem, HasModel) or problem.model is None or not isinstance(self.train, Stacked):
            return True
        some = slice(None, None, max(1, len(self.train.x) // ROWS_SCORED))
        x, y = self.train.x[some], self.train.y[some]
        if at.own is not None or bool((x == x[:1]).all()) or bool((y == y[:1]).all()):
            return True
        with torch.no_grad():
            scores = problem.module(at.model).eval()(x)
        if not isinstance(scores, Tensor) or not scores.is_floating_point() or len(scores) != len(x):
            return True
        return float((scores.amax(0) - scores.amin(0)).max()) > 1e-6 * float(scores.abs().max())

    def pool(self, part: str, at: Solution) -> Record:
        """The pooled measures of the problem, and the additional ones."""
        figures, position = self._problem_figures(part, at), self._position(part, at)
        found = {measure.name: evaluate_measure(measure, position) for measure in self.measures}
        inexact = [name for name, figure in found.items() if not figure.reached]
        for name in set(inexact) - self._warned:
            self.warn(
                f"round {at.rounds}: the inner solve of {name} did not reach its tolerance, so its figures are "
                "inexact; raise most_steps or tolerance"
            )
        self._warned |= set(inexact)
        figures |= {name: figure.value for name, figure in found.items()}
        return ({pooled_key(part): figures} if figures else {}) | ({"not_reached": inexact} if inexact else {})

    def _rows(self, part: str) -> Stacked | Lazy:
        held = {"validation": self.validation, "test": self.test}.get(part)
        return self.train if held is None else held

    def _problem_figures(self, part: str, at: Solution) -> dict[str, float]:
        rows = self._rows(part)
        if not isinstance(self.problem, PoolsMeasures) or not isinstance(rows, Stacked):
            return {}
        if part in self._not_finite:
            rows = _without(rows, self._not_finite[part])
        else:
            at, rows = self._moved(part, at)
        assert isinstance(rows, Stacked)
        if at.own is not None:
            return personal_pooled(self.problem, _models(at, rows), at.dual, rows)
        return dict(self.problem.pooled_measures(at.model, at.dual, rows))

    def _moved(self, part: str, at: Solution) -> tuple[Solution, Stacked | Lazy]:
        """Solution and rows on the device; the rows are sent there once, if they fit."""
        rows = self._rows(part)
        if self.device.type == "cpu" or not isinstance(rows, Stacked):
            return at, rows
        if part not in self._there:
            if not fits(rows, self.device):
                return at, rows
            self._there[part] = replace(rows, x=rows.x.to(self.device), y=rows.y.to(self.device))
        dual = None if at.dual is None else at.dual.to(self.device)
        model = at.model.to(self.device) if at.own is None else at.model  # clients' own follow one by one
        return at._replace(model=model, dual=dual), self._there[part]

    def _position(self, part: str, at: Solution) -> Position:
        held = self.validation if part == "validation" else self.test
        train = cast(Stacked, self.train)  # only measures of a user's own see rows that are loaded lazily
        return Position(self.problem, at.model, at.dual, train, held)


def _evaluated(problem: Problem, at: Solution, rows: Stacked | Lazy) -> Measured:
    """One model at every client, or each client's own."""
    if at.own is None:
        return evaluate(problem, at.model, rows, at.dual)
    return evaluate_each(problem, _models(at, rows), rows, at.dual)


def _models(at: Solution, rows: Stacked | Lazy) -> Callable[[int], Tensor]:
    """The model of each client, where the rows are."""
    assert at.own is not None
    model_of, device = partial(at.own.model_of, model=at.model), rows.x.device if isinstance(rows, Stacked) else CPU
    return lambda client: model_of(client).to(device)


def _without(rows: Stacked, left_out: NDArray[np.bool_]) -> Stacked:
    """The rows of the other clients."""
    each = [np.arange(a, b) for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)]
    parts = [own[:0] if left_out[i] else own for i, own in enumerate(each)]
    return Stacked.of(rows.x, rows.y, parts, allow_empty=True)


def parts_of(validation: bool, test: bool) -> tuple[str, ...]:
    """The parts that there are, the one to watch first."""
    return (*(("validation",) if validation else ()), *(("test",) if test else ()), "train")


def pooled_key(part: str) -> str:
    """Where the pooled figures of a part stand in a record."""
    return "pooled_validation" if part == "validation" else "pooled"


def evaluate_measure(measure: Measure, at: Position) -> MeasureResult:
    """Evaluate a measure; a plain number counts as exact."""
    found = measure(at)
    return found if isinstance(found, MeasureResult) else MeasureResult(float(found))


@dataclass(frozen=True)
class KeptRound:
    """A round's solution and its figure."""

    figure: float
    at: Solution


@dataclass
class BestRound:
    """The best of the evaluated rounds; of equal ones the earliest.

    A run that is continued for more rounds must choose as if it had never ended. Its former last round may have been
    evaluated for no other reason than that it was the last, so that the best of the `regular` ones is kept beside it.
    """

    selection: Selection
    best: KeptRound | None = None
    regular: KeptRound | None = None

    def offer(self, record: Record, at: Solution, regular: bool) -> None:
        """Keep the solution if its record is better than all before."""
        figure = self.selection.figure(record)
        if figure is None:
            return
        kept = KeptRound(figure, at._replace(model=at.model.clone(), dual=None if at.dual is None else at.dual.clone()))
        self.best = self._better(kept, self.best)
        if regular:
            self.regular = self._better(kept, self.regular)

    def _better(self, new: KeptRound, old: KeptRound | None) -> KeptRound:
        return new if old is None or self.selection.better(new.figure, old.figure) else old

    def worse_since(self, history: Sequence[Record]) -> int:
        """How many evaluations have not been better than the best."""
        after = 0 if self.best is None else self.best.at.rounds
        return sum(record["round"] > after for record in history)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint stores beside `notes`."""
        found: dict[str, Tensor] = {}
        for kept in (self.best, self.regular):
            if kept is not None:
                found[f"{kept.at.rounds}.model"] = kept.at.model
                if kept.at.dual is not None:
                    found[f"{kept.at.rounds}.dual"] = kept.at.dual
                if kept.at.own is not None:
                    found[f"{kept.at.rounds}.local"] = kept.at.own.local
                    found |= {f"{kept.at.rounds}.own.{i}": v for i, v in kept.at.own.layers.items()}
        return found

    def notes(self) -> JsonObject:
        """The measure, the rounds and their figures."""
        both = {"best": self.best, "regular": self.regular}
        rounds = {name: None if kept is None else [kept.at.rounds, kept.figure] for name, kept in both.items()}
        return {"measure": str(self.selection), **rounds}

    def restore(self, checkpoint: Checkpoint, due: Callable[[int], bool]) -> None:
        """Continue from a checkpoint; `due` is whether a round is evaluated now."""
        notes, tensors = checkpoint.notes["selected"], checkpoint.selected
        self.regular = _kept(notes["regular"], tensors)
        best = _kept(notes["best"], tensors)
        self.best = best if best is not None and due(best.at.rounds) else self.regular


def require_same_selection(best: BestRound | None, checkpoint: Checkpoint) -> None:
    """Refuse to continue a run by another measure: the models of its earlier rounds are gone."""
    before = (checkpoint.notes.get("selected") or {}).get("measure")
    now = None if best is None else str(best.selection)
    if before != now:
        raise BadInput("select", now, f"the run started with {before}; resume with the same")


def _kept(noted: Sequence[float] | None, tensors: dict[str, Tensor]) -> KeptRound | None:
    if noted is None:
        return None
    rounds, figure = noted
    own, local, mine = None, tensors.get(f"{rounds}.local"), f"{rounds}.own."
    if local is not None:
        layers = {int(name.removeprefix(mine)): v for name, v in tensors.items() if name.startswith(mine)}
        own = OwnLayers(local, layers)
    return KeptRound(
        float(figure), Solution(tensors[f"{rounds}.model"], tensors.get(f"{rounds}.dual"), int(rounds), own)
    )

"""Optional measures of a run: one figure each, under `pooled` in the history.

A measure has a `name` and is called with a `Position`. Those of the objective use the training rows, each client
counting once, as in the algorithms, and solve inner problems to a tolerance; those of accuracy use the test rows where
there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import did_you_mean, number, optional, vector, whole
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput, within
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.modules import running_statistics
from fedsaddle.numerics.roc import auroc
from fedsaddle.numerics.solvers import MOST_STEPS, Solved, ascend, tolerance_of
from fedsaddle.own_code import find_plugin, is_code, load_code, user_code_errors
from fedsaddle.problems.losses import CrossEntropy, HasLoss
from fedsaddle.problems.protocols import (
    HasBestDual,
    HasBestResponse,
    HasModel,
    MinimaxProblem,
    Pair,
    Problem,
    Ranks,
    splits_by_row,
)
from fedsaddle.problems.robust import RobustTraining, check_attack
from fedsaddle.problems.scored import unclipped


@dataclass(frozen=True)
class SolverLimits:
    """When an inner solve stops.

    Args:
        tolerance: Residual that counts as converged; None (default): `tolerance_of` the dtype.
        most_steps: Largest number of steps.
    """

    tolerance: float | None = None
    most_steps: int = 1000

    def of(self, like: Tensor) -> tuple[float, int]:
        """The tolerance and the number of steps."""
        return tolerance_of(like.dtype) if self.tolerance is None else self.tolerance, self.most_steps


@dataclass(frozen=True)
class Objective:
    """`f(x, y) = (1/N) Σ_i f_i(x, y)`, each client counting once, computed in blocks of rows.

    Where f_i is not a mean over rows, the blocks are the clients.

    Args:
        problem: What is solved.
        rows: Rows of all clients.
        block: Number of rows evaluated at a time, which bounds the memory.
    """

    problem: MinimaxProblem
    rows: Stacked
    block: int = 4096

    @cached_property
    def everyone(self) -> Batch:
        """All rows with what each counts, `1 / (N n_i)`."""
        each = np.repeat(1 / (self.rows.sizes * self.rows.count), self.rows.sizes)
        return Batch(self.rows.x, self.rows.y, torch.from_numpy(each))

    def value(self, x: Tensor, y: Tensor) -> float:
        """f(x, y)."""
        with torch.no_grad():
            return sum(share * float(self.problem.value(x[None], y[None], part)) for share, part in self._parts(x))

    def gradients(self, x: Tensor, y: Tensor) -> Pair:
        """∇_x f and ∇_y f."""
        gx, gy = torch.zeros_like(x), torch.zeros_like(y)
        for share, part in self._parts(x):
            one = self.problem.gradients(x[None], y[None], part)
            gx.add_(one.x[0], alpha=share)
            gy.add_(one.y[0], alpha=share)
        return gx, gy

    def best_response(self, x: Tensor, y: Tensor, limits: SolverLimits) -> Solved:
        """`argmax_y f(x, y)`: the problem's closed form, or projected ascent from `y`."""
        response = self._closed_response(x)
        if response is None:
            return ascend(lambda v: self.gradients(x, v)[1], y, self.problem.project_y, *limits.of(y))
        if response.shape != y.shape:
            raise BadInput("best_response", tuple(response.shape), f"must give y of shape {tuple(y.shape)}")
        return Solved(response, 0.0, 0, True)

    @torch.no_grad()
    def _closed_response(self, x: Tensor) -> Tensor | None:
        """The problem's closed form over all rows; None: it has none."""
        closed = self.problem.best_response if isinstance(self.problem, HasBestResponse) else None
        if closed is None or splits_by_row(self.problem):
            return None if closed is None else closed(x, self._weighed(x))
        if not isinstance(self.problem, HasBestDual):
            return None
        each = [share * self.problem.best_dual(x[None], part)[0] for share, part in self._parts(x)]
        return self.problem.project_y(torch.stack(each).sum(0))

    def best_reply(self, x: Tensor, y: Tensor, limits: SolverLimits) -> Solved:
        """`argmin_x f(x, y)`, by projected descent from `x`."""
        return ascend(lambda v: -self.gradients(v, y)[0], x, self.problem.project_x, *limits.of(x))

    def proximal_point(self, x: Tensor, y: Tensor, smoothing: float, limits: SolverLimits) -> Solved:
        """`argmin_z max_y f(z, y) + |z - x|² / (2 smoothing)`.

        By ascent in y on `min_z`, which is smooth in y even where the maximum over y is not smooth in z; each minimum
        over z is found by descent, ten times as accurately, from the one before.
        """
        tolerance, most_steps = limits.of(x)
        near = Solved(x, 0.0, 0, True)

        def slope_at(v: Tensor) -> Tensor:
            nonlocal near
            near = ascend(
                lambda z: (x - z) / smoothing - self.gradients(z, v)[0],
                near.point,
                self.problem.project_x,
                tolerance / 10,
                most_steps,
            )
            return self.gradients(near.point, v)[1]

        best = ascend(slope_at, y, self.problem.project_y, tolerance, most_steps)
        slope_at(best.point)
        return near._replace(residual=best.residual, steps=best.steps, reached=best.reached and near.reached)

    def _weighed(self, like: Tensor) -> Batch:
        weight = self.everyone.weight
        assert weight is not None
        return self.everyone._replace(weight=weight.to(like.dtype))

    def _parts(self, like: Tensor) -> Iterator[tuple[float, Batch]]:
        """Blocks of rows as one client, and what each block counts."""
        if not splits_by_row(self.problem):
            for i in range(self.rows.count):
                x, y = self.rows.client(i)
                if len(y):
                    yield 1 / self.rows.count, Batch(x[None], y[None])
            return
        rows = self.everyone
        assert rows.weight is not None
        for a in range(0, len(rows.x), self.block):
            at = slice(a, a + self.block)
            weight = rows.weight[at]
            yield float(weight.sum()), Batch(rows.x[None, at], rows.y[None, at], weight[None].to(like.dtype))


class MeasureResult(NamedTuple):
    """A figure, and whether its inner solve converged.

    Args:
        value: The figure.
        reached: Whether the inner solve reached its tolerance; True (default) without an inner solve.
    """

    value: float
    reached: bool = True


@dataclass(frozen=True)
class Position:
    """The current iterate of a run, and the rows to measure it on.

    Args:
        problem: What is solved.
        x: The model's parameters.
        y: The adversary's variables; None for a minimisation problem.
        train: Training rows of all clients.
        test: Test rows of all clients; None (default): there are none.
    """

    problem: Problem
    x: Tensor
    y: Tensor | None
    train: Stacked
    test: Stacked | None = None

    @property
    def pair(self) -> tuple[Tensor, Tensor]:
        """(x, y)."""
        if self.y is None or not isinstance(self.problem, MinimaxProblem):
            raise BadInput("measures", type(self.problem).__name__, "is no min-max problem; leave this measure out")
        model = self.problem.model if isinstance(self.problem, HasModel) else None
        if model is not None and running_statistics(model):
            raise BadInput("measures", "BatchNorm", "the objective is not a function of x alone; use nn.GroupNorm")
        return self.x, self.y

    @property
    def objective(self) -> Objective:
        """The objective over all training rows."""
        assert isinstance(self.problem, MinimaxProblem)  # `pair` has refused others
        return Objective(unclipped(self.problem), self.train)


@runtime_checkable
class Measure(Protocol):
    """One figure of a position."""

    @property
    def name(self) -> str:
        """Name in the history, in targets and in plots."""
        ...

    def __call__(self, at: Position) -> MeasureResult | float:
        """Compute the figure."""
        ...


@dataclass(frozen=True)
class _Inner:
    """Parameters of measures with an inner solve.

    Args:
        tolerance: Residual at which the inner solve stops; None (default): 3e-4 in single, 1e-8 in double precision.
        most_steps: Largest number of its steps; a solve that needs more is marked as not converged.
    """

    tolerance: float | None = None  # None: 3e-4 in single, 1e-8 in double precision
    most_steps: int = 1000

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            number("tolerance", self.tolerance, above=0)
        whole("most_steps", self.most_steps, most=MOST_STEPS)

    @property
    def limits(self) -> SolverLimits:
        """For the solvers."""
        return SolverLimits(self.tolerance, self.most_steps)


@dataclass(frozen=True)
class GradientOfPhi(_Inner):
    """`|∇Φ(x)|²` of `Φ(x) = max_y f(x, y)`: ∇_x f at the best response to x (Danskin), where that is unique.

    Args:
        tolerance: Residual at which the inner solve stops; None (default): 3e-4 in single, 1e-8 in double precision.
        most_steps: Largest number of its steps; a solve that needs more is marked as not converged.
    """

    name: ClassVar[str] = "squared_gradient_of_phi"

    def __call__(self, at: Position) -> MeasureResult:
        """In closed form where the problem has a best response, else by inner ascent."""
        x, y = at.pair
        best = at.objective.best_response(x, y, self.limits)
        g, _ = at.objective.gradients(x, best.point)
        return MeasureResult(float(g.square().sum()), best.reached)


@dataclass(frozen=True, kw_only=True)
class GradientOfEnvelope(_Inner):
    """`|x - prox(x)| / λ`, the gradient norm of Φ's Moreau envelope, `prox(x) = argmin_z Φ(z) + |z - x|² / 2λ`.

    For f concave in y; λ must be below 1 / L, L the smoothness of f, to make the inner problem convex in z.

    Args:
        tolerance: Residual at which the inner solve stops; None (default): 3e-4 in single, 1e-8 in double precision.
        most_steps: Largest number of its steps; a solve that needs more is marked as not converged.
        smoothing: λ.
    """

    smoothing: float  # λ
    name: ClassVar[str] = "gradient_of_envelope"

    def __post_init__(self) -> None:
        super().__post_init__()
        number("smoothing", self.smoothing, above=0)

    def __call__(self, at: Position) -> MeasureResult:
        """By inner ascent in y over inner descent in z."""
        x, y = at.pair
        proximal = at.objective.proximal_point(x, y, self.smoothing, self.limits)
        return MeasureResult(float((x - proximal.point).norm()) / self.smoothing, proximal.reached)


@dataclass(frozen=True)
class DualityGap(_Inner):
    """`max_y' f(x, y') - min_x' f(x', y)` over the players' sets, for f convex in x and concave in y.

    Args:
        tolerance: Residual at which the inner solves stop; None (default): 3e-4 in single, 1e-8 in double precision.
        most_steps: Largest number of steps of each; a solve that needs more is marked as not converged.
    """

    name: ClassVar[str] = "duality_gap"

    def __call__(self, at: Position) -> MeasureResult:
        """By inner ascent and descent, or the closed form of the best response."""
        x, y = at.pair
        f = at.objective
        up, down = f.best_response(x, y, self.limits), f.best_reply(x, y, self.limits)
        gap = f.value(x, up.point) - f.value(down.point, y)
        return MeasureResult(max(0.0, gap), up.reached and down.reached)  # below 0 it is rounding


@dataclass(frozen=True)
class DistanceToSaddle:
    """`|(x, y) - (x*, y*)|` for a known saddle point; without y*, `|x - x*|`.

    Args:
        x: x*.
        y: y*; None (default): only x is compared.
    """

    x: Tensor = field(repr=False)
    y: Tensor | None = field(default=None, repr=False)
    name: ClassVar[str] = "distance_to_saddle"

    def __post_init__(self) -> None:
        vector("x", self.x)
        optional(vector, "y", self.y)

    def __call__(self, at: Position) -> float:
        """Euclidean."""
        pairs = [("x", at.x, self.x), *([("y", at.pair[1], self.y)] if self.y is not None else [])]
        for key, here, there in pairs:
            if here.shape != there.shape:
                got, want = tuple(there.shape), tuple(here.shape)
                raise BadInput("measures", f"distance_to_saddle, {key} of shape {got}", f"give one of shape {want}")
        return float(torch.cat([here - there for _, here, there in pairs]).norm())


@dataclass(frozen=True)
class WorstClassAccuracy:
    """The smallest accuracy of a class, over all clients' rows together, for any problem that measures accuracy."""

    name: ClassVar[str] = "worst_class_accuracy"

    def __call__(self, at: Position) -> float:
        """Classes without rows do not count."""
        rows = classified(self.name, at)
        with torch.no_grad():
            parts = zip(torch.split(rows.x, 4096), torch.split(rows.y, 4096), strict=True)
            measured = [at.problem.row_measures(at.x, x, y, at.y) for x, y in parts]
        right = torch.cat([m["accuracy"] for m in measured]).double()
        total = torch.bincount(rows.y)
        return float((torch.bincount(rows.y, weights=right)[total > 0] / total[total > 0]).min())


@dataclass(frozen=True)
class WorstClientAuroc:
    """The lowest AUROC of a client, over those with at least `least` rows of either class; for two classes.

    Args:
        least: Smallest number of positives, and of negatives, of a client that counts; 5 by default, since the AUROC of
            fewer rows is mostly noise.
    """

    least: int = 5
    name: ClassVar[str] = "worst_client_auroc"

    def __post_init__(self) -> None:
        whole("least", self.least)

    def __call__(self, at: Position) -> float:
        """0.5 where no client has enough rows of both classes."""
        rows = at.train if at.test is None else at.test
        with torch.no_grad():
            scores = at.problem.ranking(at.x, rows.x) if isinstance(at.problem, Ranks) and rows.y.ndim == 1 else None
        if scores is None:
            raise BadInput("measures", self.name, "this problem does not rank rows of two classes; leave it out")
        areas = [0.5]
        for begin, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
            own, positives = rows.y[begin:end], int(rows.y[begin:end].sum())
            if self.least <= positives <= len(own) - self.least:
                areas.append(auroc(scores[begin:end].cpu().numpy(), own.cpu().numpy()) or 0.0)
        return min(areas[1:], default=0.5)


@dataclass(frozen=True, kw_only=True)
class RobustAccuracy:
    """Accuracy under a universal adversarial perturbation, one for all rows, found by gradient ascent.

    Args:
        radius: Of the ball around 0 that the perturbation lies in.
        norm: Of that ball: "l2" (default) or "linf".
        attack_steps: Number of ascent steps.
    """

    radius: float
    norm: str = "l2"  # or "linf"
    attack_steps: int = 10
    name: ClassVar[str] = "robust_accuracy"

    def __post_init__(self) -> None:
        check_attack(self.radius, self.norm, self.attack_steps)

    def __call__(self, at: Position) -> float:
        """As `RobustTraining` measures it, with the problem's own loss where it has one."""
        rows = classified(self.name, at)
        assert isinstance(at.problem, HasModel)  # `classified` has refused others
        assert at.problem.model is not None
        attacked = RobustTraining(
            model=at.problem.model,
            shape=tuple(rows.x.shape[1:]),
            radius=self.radius,
            norm=self.norm,
            loss=at.problem.loss if isinstance(at.problem, HasLoss) else CrossEntropy(),
            attack_steps=self.attack_steps,
        )
        return attacked.pooled_measures(at.x, at.x, rows)["robust_accuracy"]


def classified(name: str, at: Position) -> Stacked:
    """The rows that accuracy is measured on: test rows, or training rows where there are none.

    Args:
        name: Of the measure, for the error.
        at: The position; its problem must be a classifier with a model.
    """
    rows = at.train if at.test is None else at.test
    with torch.no_grad():
        measured = at.problem.row_measures(at.x, rows.x[:1], rows.y[:1], at.y)
    has_model = isinstance(at.problem, HasModel) and at.problem.model is not None
    if "accuracy" not in measured or not has_model or rows.y.ndim > 1:
        raise BadInput("measures", name, "this problem does not sort rows into classes; leave it out")
    return rows


BY_NAME: dict[str, Callable[..., Measure]] = {
    kind.name: kind
    for kind in (
        GradientOfPhi,
        GradientOfEnvelope,
        DualityGap,
        WorstClassAccuracy,
        WorstClientAuroc,
        RobustAccuracy,
    )
}
MeasureSpec = str | Mapping[str, object] | Measure


def measures_of(given: Sequence[MeasureSpec]) -> tuple[Measure, ...]:
    """The measures of a run, each name once.

    Args:
        given: Measures, their names, or dictionaries with a name and arguments.

    Raises:
        BadInput: for an unknown name, an invalid argument, or a name that is listed twice.
    """
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise BadInput("measures", given, f"give a list of measures: {', '.join(BY_NAME)}")
    measures = tuple(map(_measure, given))
    names = [measure.name for measure in measures]
    for name in names:
        if names.count(name) > 1:
            raise BadInput("measures", name, "is listed twice; keep one")
    return measures


def _measure(given: MeasureSpec) -> Measure:
    if not isinstance(given, str | Mapping):
        if isinstance(given, type) or not isinstance(given, Measure) or not callable(given):
            raise BadInput("measures", given, "your own measure needs a name and __call__(position)")
        return given
    options = {"name": given} if isinstance(given, str) else dict(given)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise BadInput("measures", given, f"write a name, or a table with a name; names are {', '.join(BY_NAME)}")
    if name not in BY_NAME:
        return _own_measure(name, options)
    with within(f"measures.{name}"):
        parameters = signature(BY_NAME[name]).parameters
        for key, value in options.items():
            if key not in parameters:
                hint = did_you_mean(key, parameters)
                raise BadInput(key, value, f"unknown key; {hint}known keys: {', '.join(parameters) or 'none'}")
        for key, parameter in parameters.items():
            if parameter.default is parameter.empty and key not in options:
                raise BadInput(key, None, "is required")
        return BY_NAME[name](**options)


def _own_measure(name: str, options: Mapping[str, object]) -> Measure:
    """A measure of somebody else's code: `module:name`, or a name that an installed package provides."""
    plugin = None if is_code(name) else find_plugin("measures", "measures", name)
    if plugin is None and not is_code(name):
        raise BadInput("measures", name, f"{did_you_mean(name, BY_NAME)}choose one of {', '.join(BY_NAME)}")
    _, make = load_code("measures", name if plugin is None else plugin.target)
    if not callable(make):
        raise BadInput("measures", name, "your own measure needs a name and __call__(position)")
    with user_code_errors("measures", name, name):
        return _measure(make(**options))

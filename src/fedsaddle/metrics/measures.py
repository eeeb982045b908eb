"""Measures that a run takes only where they are asked for: one figure each, under `pooled` in the history.

A measure has a `name` and is called with a `Position`. Those of the objective look at the training rows, each client
counting once, as the algorithms do; those of accuracy look at the test rows where there are any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedsaddle.arguments import number, optional, vector, whole
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput
from fedsaddle.metrics.objective import Limits, Objective
from fedsaddle.numerics.module_kinds import running_statistics
from fedsaddle.numerics.roc import auroc
from fedsaddle.numerics.solvers import MOST_STEPS
from fedsaddle.problems.losses import CrossEntropy, HasLoss
from fedsaddle.problems.protocols import HasModel, MinimaxProblem, Problem, Ranks
from fedsaddle.problems.robust import RobustTraining, check_attack
from fedsaddle.problems.scored import unclipped


class Taken(NamedTuple):
    """A figure, and whether its inner solve reached the tolerance."""

    value: float
    reached: bool = True


@dataclass(frozen=True)
class Position:
    """Where a run stands."""

    problem: Problem
    x: Tensor
    y: Tensor | None
    train: Any  # Stacked
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
        """Over all training rows."""
        assert isinstance(self.problem, MinimaxProblem)  # `pair` has refused others
        return Objective(unclipped(self.problem), self.train)


@runtime_checkable
class Measure(Protocol):
    """One figure of a position."""

    @property
    def name(self) -> str:
        """Its name in the history, in targets and in plots."""
        ...

    def __call__(self, at: Position) -> Taken | float:
        """Take it."""
        ...


@dataclass(frozen=True)
class _Inner:
    """What measures with an inner solve share."""

    tolerance: float | None = None  # None: 3e-4 in single, 1e-8 in double precision
    most_steps: int = 1000

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            number("tolerance", self.tolerance, above=0)
        whole("most_steps", self.most_steps, most=MOST_STEPS)

    @property
    def limits(self) -> Limits:
        """For the solvers."""
        return Limits(self.tolerance, self.most_steps)


@dataclass(frozen=True)
class GradientOfPhi(_Inner):
    """`|∇Φ(x)|²` of `Φ(x) = max_y f(x, y)`: ∇_x f at the best response to x (Danskin), where that is unique."""

    name: ClassVar[str] = "squared_gradient_of_phi"

    def __call__(self, at: Position) -> Taken:
        """In closed form where the problem has a best response, else by inner ascent."""
        x, y = at.pair
        best = at.objective.best_response(x, y, self.limits)
        g, _ = at.objective.gradients(x, best.point)
        return Taken(float(g.square().sum()), best.reached)


@dataclass(frozen=True, kw_only=True)
class GradientOfEnvelope(_Inner):
    """`|x - prox(x)| / λ`, the gradient norm of Φ's Moreau envelope, `prox(x) = argmin_z Φ(z) + |z - x|² / 2λ`.

    For f concave in y; λ must be below 1 / L, L the smoothness of f, to make the inner problem convex in z.
    """

    smoothing: float  # λ
    name: ClassVar[str] = "gradient_of_envelope"

    def __post_init__(self) -> None:
        super().__post_init__()
        number("smoothing", self.smoothing, above=0)

    def __call__(self, at: Position) -> Taken:
        """By inner ascent in y over inner descent in z."""
        x, y = at.pair
        found = at.objective.proximal_point(x, y, self.smoothing, self.limits)
        return Taken(float((x - found.point).norm()) / self.smoothing, found.reached)


@dataclass(frozen=True)
class DualityGap(_Inner):
    """`max_y' f(x, y') - min_x' f(x', y)` over the players' sets, for f convex in x and concave in y."""

    name: ClassVar[str] = "duality_gap"

    def __call__(self, at: Position) -> Taken:
        """By inner ascent and descent, or the closed form of the best response."""
        x, y = at.pair
        f = at.objective
        up, down = f.best_response(x, y, self.limits), f.best_reply(x, y, self.limits)
        gap = f.value(x, up.point) - f.value(down.point, y)
        return Taken(max(0.0, gap), up.reached and down.reached)  # below 0 it is rounding


@dataclass(frozen=True)
class DistanceToSaddle:
    """`|(x, y) - (x*, y*)|` for a saddle that is known; without y*, of x alone."""

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
    """The least AUROC of a client, over those with at least `least` rows of either class; for two classes."""

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
        found = [0.5]
        for begin, end in zip(rows.offsets[:-1], rows.offsets[1:], strict=True):
            own, positives = rows.y[begin:end], int(rows.y[begin:end].sum())
            if self.least <= positives <= len(own) - self.least:
                found.append(auroc(scores[begin:end].cpu().numpy(), own.cpu().numpy()) or 0.0)
        return min(found[1:], default=0.5)


@dataclass(frozen=True, kw_only=True)
class RobustAccuracy:
    """Accuracy under the one perturbation of all rows, in a ball, that ascent finds; for any classifier."""

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
    """The rows that accuracy is measured on, for a problem that sorts rows of features into classes with a model."""
    rows = at.train if at.test is None else at.test
    with torch.no_grad():
        measured = at.problem.row_measures(at.x, rows.x[:1], rows.y[:1], at.y)
    has_model = isinstance(at.problem, HasModel) and at.problem.model is not None
    if "accuracy" not in measured or not has_model or rows.y.ndim > 1:
        raise BadInput("measures", name, "this problem does not sort rows into classes; leave it out")
    return rows

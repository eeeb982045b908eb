"""What min-max problems over a model share: x is the model's flat vector, perhaps with a few numbers behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.flat import FlatModel, ShapedModel, flat_model
from fedsaddle.numerics.projections import Everywhere, Projection, check_projection
from fedsaddle.numerics.roc import ranking_measures
from fedsaddle.numerics.tensors import shrink_
from fedsaddle.problems.protocols import DualGradient, Gradients, MinimaxProblem
from fedsaddle.processes import in_parallel

Kind = TypeVar("Kind")


@dataclass(frozen=True, kw_only=True)
class OverModel:
    """A problem whose x holds the parameters of `model`.

    `l2` adds `(l2 / 2) |w|²` of the parameters to every client's loss, without biases if `l2_biases` is False; a
    client's gradient in the parameters whose norm exceeds `clip` is clipped to it.
    """

    allows_statistics: ClassVar[bool] = True  # whether the gradients run the model in training mode

    model: nn.Module
    project_x: Projection = field(default_factory=Everywhere)
    l2: float = 0.0
    l2_biases: bool = True  # whether the penalty is on biases too
    clip: float | None = None  # the largest norm of a gradient in the parameters; None: any
    flat: FlatModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        flat = flat_model(self.model, self.allows_statistics, self.l2, self.l2_biases, self.clip)
        object.__setattr__(self, "flat", flat)
        if self.flat.tail and not isinstance(self.project_x, Everywhere):
            name = type(self.project_x).__name__
            raise BadInput("project_x", name, "would project BatchNorm's statistics too; use nn.GroupNorm")
        check_projection("project_x", self.project_x, self.flat.initial())

    @property
    def tail(self) -> int:
        """How many of the model's last entries are BatchNorm's running statistics."""
        return self.flat.tail

    def write_statistics_(self, x: Tensor, statistics: Tensor | None) -> Tensor:
        """Write BatchNorm's statistics into x, after a step."""
        return self.flat.write_statistics_(x, statistics)

    def weights(self, x: Tensor) -> Tensor:
        """The model's part of x."""
        return x[..., : self.flat.dimension]

    def penalised(self, values: Tensor, x: Tensor) -> Tensor:
        """Each client's values, (C,), with the penalty on its parameters."""
        return values + self.flat.penalty(x) if self.l2 and isinstance(self.flat, ShapedModel) else values

    def scores(self, x: Tensor, rows: Tensor, block: int = 1024) -> Tensor:
        """The scores of rows under one x, (n, k)."""
        w = self.weights(x)[None]
        return in_blocks(lambda part: self.flat.scores(w, part[None])[0], rows, block)

    def module(self, x: Tensor) -> nn.Module:
        """A copy of the model that carries the parameters."""
        return self.flat.module_with(self.weights(x))


class Slopes(NamedTuple):
    """The gradient of each client's mean in its scores, in y, and in the numbers behind the model in x."""

    scores: Tensor  # (C, B, k)
    y: Tensor  # (C, q)
    rest: Tensor | None = None  # (C, r)


@dataclass(frozen=True, kw_only=True)
class ByScores(OverModel, MinimaxProblem):
    """A problem that sees the model through its scores alone, and knows its slopes in closed form."""

    def slopes(self, scores: Tensor, x: Tensor, y: Tensor, batch: Batch) -> Slopes:
        """At the pair (x, y), given the scores."""
        raise NotImplementedError

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """Through the scores."""
        scores, pull, statistics = self.flat.pullback(self.weights(x), batch.x, batch.keys, batch.sizes)
        at = self.slopes(scores, x, y, batch)
        gw = pull(at.scores)
        return Gradients(gw if at.rest is None else torch.cat([gw, at.rest], 1), at.y, statistics)

    def descend_(self, x: Tensor, y: Tensor, batch: Batch, step: float, keep: float = 1.0) -> DualGradient:
        """`x ← keep x - step ∇_x`, without a gradient in between; gives ∇_y where x was before."""
        slopes: list[Slopes] = []

        def slope_of(scores: Tensor) -> Tensor:
            slopes.append(self.slopes(scores, x, y, batch))
            return slopes[0].scores

        statistics = self.flat.descend_(self.weights(x), batch.x, slope_of, step, keep, batch.keys, batch.sizes)
        if slopes[0].rest is not None:
            shrink_(x[:, self.flat.dimension :], keep).sub_(slopes[0].rest, alpha=step)
        return DualGradient(slopes[0].y, statistics)


def unclipped(problem: Kind) -> Kind:
    """The same problem with gradients as they are, for measures of them."""
    if isinstance(problem, OverModel) and problem.clip is not None:
        return replace(problem, clip=None)
    return problem


def in_blocks(score: Callable[[Tensor], Tensor], rows: Tensor, block: int = 1024) -> Tensor:
    """`score` of all rows, some at a time."""
    return torch.cat([*in_parallel(torch.no_grad()(score), torch.split(rows, block))])


def pooled_auroc(ranking: Tensor | None, labels: Tensor) -> dict[str, float]:
    """AUROC and its kin of all clients' rows together, never a mean of local ones; nothing without two classes."""
    return {} if ranking is None or labels.ndim > 1 else ranking_measures(ranking.cpu(), labels.cpu())

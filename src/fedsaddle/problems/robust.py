"""Robust training: one perturbation of the features, shared by all rows, chosen by an adversary."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from fedsaddle.arguments import choice, number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.flat import ShapedModel
from fedsaddle.numerics.projections import Ball, Box, Projection
from fedsaddle.problems.losses import CrossEntropy, Loss, as_loss
from fedsaddle.problems.protocols import AllRows, DataFacts, Gradients, MinimaxProblem, ModelMaker, PrimalGradient
from fedsaddle.problems.scored import OverModel
from fedsaddle.problems.supervised import loss_shares

BLOCK = 1000  # rows of the attack at a time
MOST_STEPS = 1_000_000  # of the attack
MOST_FEATURES = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class RobustTraining(OverModel, MinimaxProblem):
    """`min_x max_{|y| <= radius} mean loss(h_x(a + y), b)`, y of the shape of one row, in the l2 or l∞ ball.

    Args:
        model: the network, any `nn.Module`.
        project_x: projection of the model's parameters, of `fs.projections`; none by default.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        l2_biases: whether the penalty applies to biases, too.
        clip: largest norm of a gradient in the parameters; longer ones are scaled down to it; None does not clip.
        shape: shape of one row.
        radius: radius of the ball of y.
        norm: "l2" or "linf".
        loss: loss of a row, of `fs.losses`; cross-entropy by default.
        attack_steps: ascent steps of the robust measures.
        attack_step: length of such a step, as a share of the radius.
        attack_rows: rows of the ascent, spread over all; None is all, which is slow.

    Examples:
        >>> import fedsaddle as fs
        >>> robust = fs.RobustTraining(model=fs.models.logistic_regression(64, 10), shape=(64,), radius=0.5)
        >>> len(robust.initial()[1])
        64
    """

    allows_statistics: ClassVar[bool] = False

    shape: tuple[int, ...]
    radius: float = 1.0
    norm: str = "l2"
    loss: Loss = field(default_factory=CrossEntropy)
    attack_steps: int = 10
    attack_step: float = 0.5
    attack_rows: int | None = None
    project_y: Projection = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_shape(self.shape)
        check_attack(self.radius, self.norm, self.attack_steps)
        object.__setattr__(self, "loss", as_loss("loss", self.loss))
        number("attack_step", self.attack_step, above=0)
        if self.attack_rows is not None:
            whole("attack_rows", self.attack_rows)
        ball: Projection = Ball(self.radius) if self.norm == "l2" else Box(-self.radius, self.radius)
        object.__setattr__(self, "project_y", ball)

    @classmethod
    def from_data(
        cls,
        facts: DataFacts,
        model_for: ModelMaker,
        *,
        radius: float = 1.0,
        norm: str = "l2",
        attack_steps: int = 10,
        attack_step: float = 0.5,
        attack_rows: int | None = None,
        l2: float = 0.0,
        l2_biases: bool = True,
        clip: float | None = None,
    ) -> RobustTraining:
        """The problem for data with classes."""
        facts.need_classes("robust")
        return cls(
            model=model_for(len(facts.classes)),
            shape=facts.shape,
            radius=radius,
            norm=norm,
            attack_steps=attack_steps,
            attack_step=attack_step,
            attack_rows=attack_rows,
            l2=l2,
            l2_biases=l2_biases,
            clip=clip,
        )

    def initial(self) -> tuple[Tensor, Tensor]:
        """The model's parameters and no perturbation."""
        x = self.flat.initial()
        return x, x.new_zeros(int(torch.Size(self.shape).numel()))

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's perturbed rows."""
        rows = self.loss.value(self.flat.scores(x, self._perturbed(batch.x, y)), batch.y)
        return self.penalised((rows * loss_shares(self.loss, rows, batch)).sum(1), x)

    def _trained(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The sum of the clients' means, with dropout where the batch has keys."""
        scores = self.flat.trained_scores(x, self._perturbed(batch.x, y), batch.keys)
        rows = self.loss.value(scores, batch.y)
        return self.penalised((rows * loss_shares(self.loss, rows, batch)).sum(1), x).sum()

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """By automatic differentiation through the model and its input."""
        at_x, at_y = x.detach().requires_grad_(), y.detach().requires_grad_()
        with torch.enable_grad():
            total = self._trained(at_x, at_y, batch)
        gx, gy = torch.autograd.grad(total, (at_x, at_y))
        return Gradients(self.flat.bound_(gx) if isinstance(self.flat, ShapedModel) else gx, gy)

    def gradient_x(self, x: Tensor, y: Tensor, batch: Batch) -> PrimalGradient:
        """∇_x alone, through the slope of the loss in the scores."""
        scores, pull, statistics = self.flat.pullback(x, self._perturbed(batch.x, y), batch.keys)
        slope = self.loss.slope(scores, batch.y)
        share = loss_shares(self.loss, slope, batch)
        rows = share.view(*share.shape, *(1,) * (slope.ndim - 2)) if isinstance(share, Tensor) else share
        return PrimalGradient(pull(slope * rows), statistics)

    def gradient_y(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """∇_y alone: no gradient of the weights is formed."""
        at_y = y.detach().requires_grad_()
        with torch.enable_grad():
            total = self._trained(x.detach(), at_y, batch)
        return torch.autograd.grad(total, at_y)[0]

    def known_classes(self, rows: Tensor) -> int | None:
        """How many classes labels may name; None where they are no classes."""
        if tuple(rows.shape[1:]) != tuple(self.shape):
            raise BadInput("shape", tuple(self.shape), f"the rows are of shape {tuple(rows.shape[1:])}; give that")
        return self.loss.classes(self.scores(self.flat.initial(), rows))

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """Loss and accuracy of each row without perturbation."""
        return self._measures(x, rows, labels)

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """Loss and accuracy of all rows under the one perturbation that ascent from zero finds."""
        apart = 1 if self.attack_rows is None else -(-len(rows.y) // self.attack_rows)
        y = self.attack(x, rows.x[::apart], rows.y[::apart])
        measures = self._measures(x, rows.x + y.view(self.shape), rows.y)
        return {f"robust_{name}": float(values.mean()) for name, values in measures.items()}

    def attack(self, x: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
        """`attack_steps` normalised ascent steps on the mean loss over these rows."""
        y = x.new_zeros(int(torch.Size(self.shape).numel()))
        for _ in range(self.attack_steps):
            blocks = zip(torch.split(rows, BLOCK), torch.split(labels, BLOCK), strict=True)
            parts = (len(b) * self.gradient_y(x[None], y[None], Batch(a[None], b[None]))[0] for a, b in blocks)
            g = torch.stack([*parts]).sum(0)
            g = g.sign() if self.norm == "linf" else g / g.norm().clamp(min=1e-12)
            y = self.project_y(y + self.attack_step * self.radius * g)
        return y

    def _perturbed(self, rows: Tensor, y: Tensor) -> Tensor:
        return rows + y.view(len(y), 1, *self.shape)

    def _measures(self, x: Tensor, rows: Tensor, labels: Tensor) -> dict[str, Tensor]:
        scores, targets = self.scores(x, rows)[None], labels[None]
        correct = self.loss.correct(scores, targets)
        measures = {"loss": self.loss.value(scores, targets)[0]}
        return measures if correct is None else {**measures, "accuracy": correct[0]}


def check_attack(radius: object, norm: object, attack_steps: object) -> None:
    """Validate the ball and the length of an attack."""
    number("radius", radius, above=0)
    choice("norm", norm, ("l2", "linf"))
    whole("attack_steps", attack_steps, least=0, most=MOST_STEPS)


def _check_shape(shape: object) -> None:
    """The shape of a row: a tuple of whole numbers."""
    if not isinstance(shape, tuple | list):
        raise BadInput("shape", shape, "must be the shape of one row, such as (3, 32, 32) or tuple(rows.shape[1:])")
    if prod(whole("shape", side) for side in shape) > MOST_FEATURES:
        raise BadInput("shape", shape, f"has more than {MOST_FEATURES:,} numbers")

"""Losses on scores: `value` per row and its `slope` in the scores, with the clients' axis in front.

Scores are `(C, B, ..., k)`, targets `(C, B, ...)`; axes between the rows and the classes (the characters of a text)
are averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedsaddle.arguments import function
from fedsaddle.errors import BadInput
from fedsaddle.numerics.tensors import Constant


@runtime_checkable
class Loss(Protocol):
    """A loss of scores and targets. Inherit from it: what concerns classes then says that there are none."""

    name: ClassVar[str] = "own"  # as configs write it

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of each row, (C, B)."""
        ...

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """The derivative of each row's loss in its scores, of the scores' shape."""
        ...

    def correct(self, scores: Tensor, y: Tensor) -> Tensor | None:
        """The share that is right in each row, (C, B); None for regression."""
        return None

    def scores(self, classes: int) -> int | None:
        """How many scores a row it takes for so many classes; None: targets are no classes."""
        return None

    def classes(self, scores: Tensor) -> int | None:
        """How many classes labels may name, given scores `(..., k)`; None where targets are no classes, or unknown."""
        return None

    def ranking(self, scores: Tensor) -> Tensor | None:
        """One number a row, higher for the second of two classes; None where there are not two classes."""
        return None


@runtime_checkable
class HasLoss(Protocol):
    """A problem with a loss of scores and targets."""

    @property
    def loss(self) -> Loss:
        """It."""
        ...


@runtime_checkable
class HasCurvature(Loss, Protocol):
    """A loss that is a negative log-likelihood with a second derivative in closed form, as Newton's method needs."""

    estimates_variance: ClassVar[bool] = False  # whether rows have a variance that is estimated, as normal ones

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """The second derivative of each row's loss in its scores, (C, B, k, k)."""
        ...


_MINUS_ONE = Constant(torch.full((), -1.0, device="cpu"))


def _rows(values: Tensor) -> Tensor:
    return values.flatten(2).mean(2) if values.ndim > 2 else values


@dataclass(frozen=True)
class CrossEntropy(HasCurvature):
    """`-log softmax(scores)[y]`, for classes 0 .. k-1."""

    name: ClassVar[str] = "cross-entropy"

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of each row."""
        picked = scores.gather(-1, y.unsqueeze(-1)).squeeze(-1)
        return _rows(scores.mT.logsumexp(-2) - picked)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`softmax(scores) - onehot(y)`."""
        d = scores.mT.softmax(-2).mT  # along the rows in memory: ten times quicker for few classes
        at = y.unsqueeze(-1)
        d.scatter_add_(-1, at, _MINUS_ONE.to(d.device, d.dtype).expand(at.shape))
        between = d.shape[2:-1].numel()
        return d / between if between > 1 else d

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """`diag(p) - p p^T` with p the softmax."""
        p = scores.softmax(-1)
        return torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)

    def correct(self, scores: Tensor, y: Tensor) -> Tensor:
        """Whether the largest score is the target's."""
        return _rows((scores.argmax(-1) == y).to(scores.dtype))

    def scores(self, classes: int) -> int:
        """One a class."""
        return classes

    def classes(self, scores: Tensor) -> int:
        """As many as scores."""
        return scores.shape[-1]

    def ranking(self, scores: Tensor) -> Tensor | None:
        """The difference of two scores."""
        return scores[..., 1] - scores[..., 0] if scores.shape[-1] == 2 else None


@dataclass(frozen=True)
class Logistic(HasCurvature):
    """`log(1 + exp(-s))` for y = 1 and `log(1 + exp(s))` for y = 0, on a single score s."""

    name: ClassVar[str] = "logistic"

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """Logistic loss of each row."""
        s = scores.squeeze(-1)
        return _rows(torch.nn.functional.softplus(s) - y * s)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`sigmoid(s) - y`."""
        d = (scores.squeeze(-1).sigmoid() - y).unsqueeze(-1)
        between = d.shape[2:-1].numel()
        return d / between if between > 1 else d

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """`p (1 - p)` with p the sigmoid."""
        return (scores.sigmoid() * (-scores).sigmoid()).unsqueeze(-1)

    def correct(self, scores: Tensor, y: Tensor) -> Tensor:
        """Whether the score is on the target's side of 0."""
        return _rows(((scores.squeeze(-1) > 0) == (y > 0)).to(scores.dtype))

    def scores(self, classes: int) -> int:
        """One."""
        return 1

    def classes(self, scores: Tensor) -> int:
        """Two."""
        return 2

    def ranking(self, scores: Tensor) -> Tensor:
        """The score itself."""
        return scores[..., 0]


@dataclass(frozen=True)
class Square(HasCurvature):
    """`(s - y)^2 / 2`, on a single score s."""

    name: ClassVar[str] = "square"
    estimates_variance: ClassVar[bool] = True

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """Half the squared error of each row."""
        return _rows((scores.squeeze(-1) - y).square() / 2)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`s - y`."""
        d = (scores.squeeze(-1) - y).unsqueeze(-1)
        between = d.shape[2:-1].numel()
        return d / between if between > 1 else d

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """1."""
        return torch.ones_like(scores).unsqueeze(-1)


@dataclass(frozen=True)
class Poisson(HasCurvature):
    """`m - y log m + log y!` with `m = e exp(s)`, for a count y and an exposure e, on a single score s.

    A target is a count, or two numbers: the count and its exposure, such as person-years. The exposure's logarithm is
    the offset of the score.

    Raises:
        BadInput: if a count is negative, or an exposure is not positive.
    """

    name: ClassVar[str] = "poisson"

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The negative log-likelihood of each row."""
        count, offset = self._targets(scores, y)
        s = scores.squeeze(-1) + offset
        return s.exp() - count * s + torch.lgamma(count + 1)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`m - y`."""
        count, offset = self._targets(scores, y)
        return ((scores.squeeze(-1) + offset).exp() - count).unsqueeze(-1)

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """`m`."""
        _, offset = self._targets(scores, y)
        return (scores + offset.unsqueeze(-1)).exp().unsqueeze(-1)

    def _targets(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Counts and offsets, (C, B)."""
        y = y.to(scores.dtype)
        count, exposure = (y[..., 0], y[..., 1]) if y.ndim == scores.ndim else (y, torch.ones_like(y))
        if bool((count < 0).any()):
            raise BadInput("count", float(count.min()), "must be 0 or more for the Poisson loss")
        if bool((exposure <= 0).any()):
            raise BadInput("exposure", float(exposure.min()), "must be positive; leave out rows without any exposure")
        return count, exposure.log()


@dataclass(frozen=True)
class Custom(Loss):
    """A user's own loss: `function(scores, y)` gives each row's loss; its slope is found by autograd.

    Args:
        function: `function(scores, y)`, the loss of each row, differentiable by autograd.
    """

    function: Callable[[Tensor, Tensor], Tensor]

    def __post_init__(self) -> None:
        function("function", self.function, takes=2)

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of each row."""
        rows = self.function(scores, y)
        if rows.shape != scores.shape[:2]:
            want = tuple(scores.shape[:2])
            raise BadInput(
                "loss", tuple(rows.shape), f"must give the loss of each row, of shape {want}, not their mean"
            )
        return rows

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """By automatic differentiation."""
        at = scores.detach().requires_grad_()
        with torch.enable_grad():
            total = self.value(at, y).sum()
        return torch.autograd.grad(total, at)[0].contiguous()

"""Losses for rare classes: focal, class-balanced, and cross-entropy with adjusted scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedsaddle.arguments import number
from fedsaddle.errors import BadInput
from fedsaddle.problems.losses import CrossEntropy, Loss, TorchLoss


@runtime_checkable
class FromCounts(Protocol):
    """A loss that is not complete without the number of rows of each class, over all clients."""

    def with_counts(self, counts: Sequence[int]) -> Loss:
        """The complete loss."""
        ...


@dataclass(frozen=True)
class Focal(CrossEntropy):
    """`-(1 - p_y)^γ log p_y` with p the softmax of the scores (Lin et al. 2017): easy rows count less.

    Args:
        focus: γ, how much easy rows are discounted; 0 is cross-entropy.

    Examples:
        >>> import torch
        >>> Focal(focus=0.0).value(torch.zeros(1, 1, 2), torch.zeros(1, 1, dtype=torch.int64))
        tensor([[0.6931]])
    """

    name: ClassVar[str] = "focal"

    focus: float = 2.0  # γ

    def __post_init__(self) -> None:
        number("focus", self.focus, least=0)

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of each row."""
        log, p = self._of_target(scores, y)
        values = -((1 - p) ** self.focus) * log
        return values.flatten(2).mean(2) if values.ndim > 2 else values

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`(γ (1-p)^(γ-1) p log p - (1-p)^γ) (onehot(y) - softmax(scores))`."""
        log, p = self._of_target(scores, y)
        miss = 1 - p
        less = self.focus * miss.clamp_min(torch.finfo(p.dtype).tiny) ** (self.focus - 1) * p * log
        d: Tensor = super().slope(scores, y) * (miss**self.focus - less).unsqueeze(-1)
        return d

    def _of_target(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """log p_y and p_y of each target."""
        log = scores.log_softmax(-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)
        return log, log.exp()


@dataclass(frozen=True)
class LogitAdjusted(CrossEntropy):
    """Cross-entropy of `scores + τ log π`, π the shares of the classes over all clients (Menon et al. 2021).

    Scores without the shift then rank as if classes were equally frequent; measures take them so.

    Args:
        strength: τ, weight of the shift; 0 is cross-entropy.
        shares: π, shares of the classes over all clients; a config takes them from the data.

    Examples:
        >>> LogitAdjusted(shares=(0.9, 0.1)).strength
        1.0
    """

    name: ClassVar[str] = "logit-adjusted"

    strength: float = 1.0  # τ
    shares: tuple[float, ...] = ()  # π

    def __post_init__(self) -> None:
        number("strength", self.strength, least=0)
        if not isinstance(self.shares, list | tuple):
            raise BadInput("shares", self.shares, "give one share for each class, such as (0.9, 0.1)")
        for share in self.shares:
            number("shares", share, above=0, most=1)

    def with_counts(self, counts: Sequence[int]) -> LogitAdjusted:
        """With the shares of the classes."""
        if self.shares:
            return self
        if not counts or min(counts) < 1:
            raise BadInput("problem.loss", self.name, "needs rows of every class; use cross-entropy")
        return LogitAdjusted(self.strength, tuple(n / sum(counts) for n in counts))

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of each row."""
        return super().value(self._shifted(scores), y)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """That of cross-entropy at the shifted scores."""
        return super().slope(self._shifted(scores), y)

    def _shifted(self, scores: Tensor) -> Tensor:
        if len(self.shares) != scores.shape[-1]:
            remedy = f"give one share for each of the {scores.shape[-1]} classes"
            raise BadInput("shares", list(self.shares), remedy)
        return scores + self.strength * torch.tensor(self.shares, dtype=scores.dtype, device=scores.device).log()


@dataclass(frozen=True)
class ClassBalanced(Loss):
    """Cross-entropy with the weight `(1 - β) / (1 - β^n_c)` of each class (Cui et al. 2019), n_c its rows everywhere.

    The weights are scaled to sum to the number of classes; a mean divides by the weights of its rows, as torch's does.

    Args:
        beta: β; 0 weights classes equally, towards 1 by inverse frequency.

    Examples:
        >>> ClassBalanced(beta=0.0).with_counts([90, 10]).function.weight
        tensor([1., 1.])
    """

    name: ClassVar[str] = "class-balanced"

    beta: float = 0.999  # β

    def __post_init__(self) -> None:
        number("beta", self.beta, least=0, below=1)

    def scores(self, classes: int) -> int:
        """One a class."""
        return classes

    def with_counts(self, counts: Sequence[int]) -> Loss:
        """A weighted cross-entropy."""
        if not counts or min(counts) < 1:
            raise BadInput("problem.loss", self.name, "needs rows of every class; use cross-entropy")
        weights = torch.tensor([(1 - self.beta) / (1 - self.beta**n) for n in counts])
        return TorchLoss(nn.CrossEntropyLoss(weights * len(counts) / weights.sum()), self.name)

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """Only with counts."""
        raise BadInput("loss", self.name, "needs the rows of each class; give ClassBalanced().with_counts([900, 100])")

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """Only with counts."""
        return self.value(scores, y)

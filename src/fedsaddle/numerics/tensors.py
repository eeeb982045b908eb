"""Small tools for tensors: norms, clipping factors, constants, running means; and the types of a model's pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

MARGIN = 64  # units of rounding by which a clipped row stays below the limit, so that rounding never lifts it above


def norms(g: Tensor) -> Tensor:
    """The norm of each client's `g (C, d)`, (C, 1), in double precision.

    That of single precision is taken as it is, which is several times quicker, unless a square is too large for it.
    """
    if g.dtype == torch.float32:
        lengths: Tensor = torch.linalg.vector_norm(g, dim=1, keepdim=True)
        if torch.isfinite(lengths).all():
            return lengths.double()
    return torch.linalg.vector_norm(g, dim=1, keepdim=True, dtype=torch.float64)  # type: ignore[no-any-return]


def clip_factors(squares: Tensor, limit: float, weight: Tensor | None = None) -> Tensor:
    """`weight · min(1, limit / norm)` of each row, from the squares of the rows' norms.

    A row whose norm is not finite has factor 0. With weights of at most 1, `factor · norm` is at most `limit`.
    """
    norms = squares.sqrt()
    room = limit * (1 - MARGIN * torch.finfo(squares.dtype).eps)
    factors = (room / norms).nan_to_num_(nan=0.0, posinf=1.0).clamp_max_(1.0)  # of infinite norms 0, of 0 it is 1
    return factors if weight is None else factors.mul_(weight)


def clipped_sum(rows: Tensor, limit: float, weight: Tensor | None = None) -> Tensor:
    """The sum over rows of `rows (..., B, d)`, each clipped to norm `limit` and weighted, `(..., d)`."""
    factors = clip_factors(rows.square().sum(-1), limit, weight)
    finite = torch.nan_to_num(rows, nan=0.0, posinf=0.0, neginf=0.0)
    return (finite * factors.unsqueeze(-1)).sum(-2)


class Constant:
    """A tensor and its copies on other devices and in other types, each made once."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {(value.device, value.dtype): value}

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """The tensor on that device, in that type or its own."""
        key = device, self.value.dtype if dtype is None else dtype
        if key not in self._copies:
            self._copies[key] = self.value.to(*key)
        return self._copies[key]


class Running:
    """The mean of the vectors added so far."""

    def __init__(self) -> None:
        self.count = 0
        self._sum: Tensor | None = None

    def add(self, v: Tensor) -> None:
        """Take one more vector."""
        self._sum = v.clone() if self._sum is None else self._sum.add_(v)
        self.count += 1

    @property
    def mean(self) -> Tensor:
        """Their mean."""
        if self._sum is None:
            raise ValueError("the mean of nothing")
        return self._sum / self.count

    @staticmethod
    def over(mean: Tensor | None, new: Tensor | None, before: int) -> Tensor | None:
        """The mean of `before + 1` vectors, from the mean of the first `before` and the new one."""
        if new is None:
            return mean
        return new if mean is None else mean + (new - mean) / (before + 1)


SlopeMap = Callable[[Tensor], Tensor]
Keys = Callable[[], Tensor]  # one key a client, (C,) int64; called only if the model draws
Write = Callable[[Tensor, Tensor, float, float], None]  # slope, into, keep, gain


class Forward(NamedTuple):
    """A pass in training mode."""

    scores: Tensor  # (C, B, k)
    pull: SlopeMap  # a slope in the scores -> the gradient in w
    statistics: Tensor | None  # BatchNorm's new running statistics, (C, tail); None: the model keeps none


class InPlace(NamedTuple):
    """A pass in training mode whose gradient is written, not formed.

    `write_(slope, into, keep, gain)` is `into ← keep into + gain gradient`, from a slope in the scores; `into` may be
    `w`. With `keep` 0 it may hold anything, also NaN.
    """

    scores: Tensor  # (C, B, k)
    write_: Write
    statistics: Tensor | None


@runtime_checkable
class ScoresCohorts(Protocol):
    """A module with a pass of its own for several clients at once."""

    def cohort(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """The outputs `(C, B, ...)` for parameters `(C, ...)` by name and rows `(C, B, ...)`."""
        ...


def shrink_(w: Tensor, keep: float) -> Tensor:
    """`w ← keep w`; no pass over it if nothing changes. With keep 0, w may hold anything before."""
    if keep == 1:
        return w
    return w.mul_(keep) if keep else w.zero_()

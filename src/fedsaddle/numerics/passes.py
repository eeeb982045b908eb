"""What a pass of a model gives, and small things that passes share."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

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
    `w`. With `keep` 0 it may hold anything, also what is no number.
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

"""The guard of FedX: where gradients explode, all clients take shorter steps, and the round counts less.

Clipping each client's gradient moves the stationary point: at the optimum of unlike clients single gradients are long,
and only their mean vanishes. The guard treats all clients alike, so that it does not. Clients report the root mean
square of the norms of their gradients, of which the server sees the mean over clients, ρ_r; ρ is that of the very first
step. The clients of the next round multiply their steps by

    s_{r+1} = min(1, κ ρ / ρ_r), but at least s_r / 2 and at most 2^{1/8} s_r,

and of this round's mean change of the model the server takes the share `t_r = min(1, κ ρ / (ρ_r s_r))²`; where that is
less than a half, the buffers keep the scores that they have. Where ρ_r never exceeds κ ρ, s and t are 1: FedX as boxed.
κ = inf is the box as well, and reports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedsaddle.numerics.tensors import norms

SHRINK, GROW = 0.5, 2 ** (1 / 8)  # the least and the most that the pace changes by in a round
HALF = 0.5  # the share t of a round below which its scores are not passed on
FIRST_MOST = 1e6  # root mean square of a client in the first round, whose ρ nobody knows yet
MOST = 1e30  # of a sum of squares, so that every reply is finite


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The guard's part of the server's state.

    Args:
        pace: s_r, which multiplies the step of all clients.
        reference: ρ, mean norm of the clients' gradients at the first step; 0 before it.
    """

    pace: float = 1.0  # s
    reference: float = 0.0  # ρ


class Lengths(NamedTuple):
    """Norms of a client's gradients in a round: of the first step, and the root of their mean square."""

    first: Tensor
    length: Tensor


class HasLengths(Protocol):
    """A reply with them; none without a guard."""

    @property
    def first(self) -> Tensor | None: ...  # noqa: D102
    @property
    def length(self) -> Tensor | None: ...  # noqa: D102


class Watch:
    """The gradients of each client in a round.

    A client stops where its own gradients suffice for `ρ_r > κ ρ`, so that its reply is finite.

    Args:
        κ: the guard.
        reference: ρ.
        steps: K.
        cohort: m.
        like: the models, (C, d).
    """

    def __init__(self, κ: float, reference: float, steps: int, cohort: int, like: Tensor) -> None:
        self.steps = steps
        longest = cohort * κ * reference if reference else FIRST_MOST
        self.most = min(MOST / 2, steps * longest**2)
        self.sum = torch.zeros(len(like), 1, dtype=torch.float64, device=like.device)
        self.first: Tensor | None = None

    def stopped_(self, g: Tensor) -> Tensor:
        """Take the gradients of a step, and set those of clients that stop, or have stopped, to zero, in place."""
        square = norms(g).square().nan_to_num_(nan=MOST, posinf=MOST).clamp_max_(MOST)
        self.first = square if self.first is None else self.first
        self.sum = (self.sum + square).clamp_max_(MOST)
        over = self.sum > self.most
        wait = over.device.type != "cpu"  # there it is cheaper to write than to ask
        return g.masked_fill_(over, 0.0) if wait or bool(over.any()) else g

    def lengths(self, dtype: torch.dtype) -> Lengths:
        """What the server is sent."""
        assert self.first is not None  # there is a step in every round
        mean = (self.sum / self.steps).clamp_max(4 * self.most / self.steps)
        return Lengths(self.first.squeeze(1).sqrt().to(dtype), mean.squeeze(1).sqrt().to(dtype))


def paced(κ: float, before: Pace, reply: HasLengths) -> tuple[Pace, float]:
    """The pace after a round, and t, the share of the clients' mean change that the server takes."""
    if reply.first is None or reply.length is None:  # without a guard
        return before, 1.0
    ρ, ρ_r, s = before.reference or float(reply.first), float(reply.length), before.pace
    most = κ * ρ / ρ_r if ρ and ρ_r else 1.0
    after = min(1.0, max(SHRINK * s, min(GROW * s, most)))
    return Pace(pace=after, reference=ρ), min(1.0, most / s) ** 2


def moved(before: Tensor, after: Tensor, t: float) -> Tensor:
    """`before + t (after - before)`."""
    return after if t == 1 else torch.lerp(before, after, t)

"""Optimisers in place of plain steps: at the clients, and at the server.

A local optimiser is a pure function of its state and a gradient; tensors have the clients' axis in front, so that every
client has moments of its own. The state is fresh at the start of each exchange and never leaves the client.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedsaddle.arguments import flag, number
from fedsaddle.errors import BadInput
from fedsaddle.numerics.schedules import Step, at, check_step


class Moments(NamedTuple):
    """What an optimiser remembers of earlier gradients; blank before the first one.

    Args:
        first: first moment, or the momentum.
        second: second moment.
        steps: steps taken so far.
    """

    first: Tensor | None = None
    second: Tensor | None = None
    steps: int = 0


BLANK = Moments()


@runtime_checkable
class LocalOptimiser(Protocol):
    """Turns gradients into directions: a step is `w ← w - η direction`."""

    def direction(self, state: Moments, gradient: Tensor, w: Tensor | None = None) -> tuple[Moments, Tensor]:
        """The new state and the direction, (C, d); `w` is where the gradient was taken, None for a dual."""
        ...


@dataclass(frozen=True)
class Momentum:
    """`b ← momentum b + g`, direction b, or with `nesterov` `g + momentum b`, as torch.optim.SGD; b starts as g.

    Args:
        momentum: decay rate of b.
        nesterov: whether the direction is Nesterov's.

    Examples:
        >>> Momentum(0.9, nesterov=True)
        Momentum(momentum=0.9, nesterov=True)
    """

    momentum: float = 0.9
    nesterov: bool = False

    def __post_init__(self) -> None:
        number("momentum", self.momentum, least=0, below=1)
        flag("nesterov", self.nesterov)

    def direction(self, state: Moments, gradient: Tensor, w: Tensor | None = None) -> tuple[Moments, Tensor]:
        """The new state and the direction."""
        β, g = self.momentum, gradient
        b = g if state.first is None else torch.add(g, state.first, alpha=β)
        return Moments(b), torch.add(g, b, alpha=β) if self.nesterov else b


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma, Ba 2015), as torch.optim.Adam; with `weight_decay` AdamW (Loshchilov, Hutter 2019).

    `m ← β1 m + (1 - β1) g`, `v ← β2 v + (1 - β2) g²`, and the direction is
    `m / (1 - β1^t) / (sqrt(v / (1 - β2^t)) + epsilon)`, plus `weight_decay w`.

    Args:
        beta1: β1, decay rate of the first moment.
        beta2: β2, decay rate of the second moment.
        epsilon: added to the root, so that it is not 0.
        weight_decay: weight decay, decoupled from the gradient; the dual has none.

    Examples:
        >>> Adam(beta2=0.99).epsilon
        1e-08
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        number("beta1", self.beta1, least=0, below=1)
        number("beta2", self.beta2, least=0, below=1)
        number("epsilon", self.epsilon, above=0)
        number("weight_decay", self.weight_decay, least=0)

    def direction(self, state: Moments, gradient: Tensor, w: Tensor | None = None) -> tuple[Moments, Tensor]:
        """The new state and the direction."""
        g, t = gradient, state.steps + 1
        m, v = (1 - self.beta1) * g, torch.mul(g, g).mul_(1 - self.beta2)
        if state.first is not None and state.second is not None:
            m.add_(state.first, alpha=self.beta1)
            v.add_(state.second, alpha=self.beta2)
        scale = v.sqrt().div_(sqrt(1 - self.beta2**t)).add_(self.epsilon)
        d = torch.div(m, scale).div_(1 - self.beta1**t)
        if self.weight_decay and w is not None:
            d.add_(w, alpha=self.weight_decay)
        return Moments(m, v, t), d


def adamw(beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, weight_decay: float = 0.01) -> Adam:
    """AdamW: Adam with a weight decay of 0.01 unless it is given.

    Args:
        beta1: β1, decay rate of the first moment.
        beta2: β2, decay rate of the second moment.
        epsilon: added to the root, so that it is not 0.
        weight_decay: weight decay, decoupled from the gradient; the dual has none.

    Examples:
        >>> adamw().weight_decay
        0.01
    """
    return Adam(beta1, beta2, epsilon, weight_decay)


def check_local_optimiser(value: object) -> None:
    """Validate the optimiser of local steps: an object, or None for plain steps.

    Args:
        value: an optimiser of `fs.optimisers`, or None.
    """
    if value is not None and (isinstance(value, type) or not isinstance(value, LocalOptimiser)):
        shown = value.__name__ if isinstance(value, type) else value
        raise BadInput("local_optimiser", shown, "give one such as fs.optimisers.Adam(), or None for plain steps")


def own_optimiser(value: LocalOptimiser | None) -> LocalOptimiser | None:
    """The optimiser if it differs from plain steps: momentum 0 is none, to the bit.

    Args:
        value: an optimiser of `fs.optimisers`, or None.
    """
    return None if isinstance(value, Momentum) and value.momentum == 0 else value


@runtime_checkable
class ServerOptimiser(Protocol):
    """Turns the mean change of the clients' models into the server's step."""

    def advance(self, t: int, change: Tensor, state: Moments) -> tuple[Moments, Tensor]:
        """The new state, and what to add to the model in round t."""
        ...


@dataclass(frozen=True)
class _Adaptive:
    """Reddi et al. 2021, Algorithm 2: `m ← β1 m + (1 - β1) Δ`, some v of Δ², `w ← w + η m / (sqrt(v) + τ)`."""

    step: Step = 0.01  # η, of the server
    beta1: float = 0.9  # β1
    beta2: float = 0.99  # β2
    adaptivity: float = 1e-3  # τ; v starts at τ²

    def __post_init__(self) -> None:
        check_step("step", self.step)
        number("beta1", self.beta1, least=0, below=1)
        number("beta2", self.beta2, least=0, below=1)
        number("adaptivity", self.adaptivity, above=0)

    def advance(self, t: int, change: Tensor, state: Moments) -> tuple[Moments, Tensor]:
        """The new state, and what to add to the model in round t."""
        Δ, β1, τ = change, self.beta1, self.adaptivity
        m = (1 - β1) * Δ if state.first is None else β1 * state.first + (1 - β1) * Δ  # line 11
        v = self._second(torch.full_like(Δ, τ * τ) if state.second is None else state.second, Δ * Δ)  # lines 12-14
        return Moments(m, v), at(self.step, t) * m / (v.sqrt() + τ)  # line 15

    def _second(self, v: Tensor, square: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class ServerAdam(_Adaptive):
    """FedAdam's: `v ← β2 v + (1 - β2) Δ²`.

    Args:
        step: η, learning rate of the server.
        beta1: β1, decay rate of the first moment.
        beta2: β2, decay rate of the second moment.
        adaptivity: τ, added to the root; v starts at τ².

    Examples:
        >>> ServerAdam(step=0.03).adaptivity
        0.001
    """

    def _second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square  # line 14


@dataclass(frozen=True)
class ServerYogi(_Adaptive):
    """FedYogi's: `v ← v - (1 - β2) Δ² sign(v - Δ²)`.

    Args:
        step: η, learning rate of the server.
        beta1: β1, decay rate of the first moment.
        beta2: β2, decay rate of the second moment.
        adaptivity: τ, added to the root; v starts at τ².

    Examples:
        >>> ServerYogi(step=0.03).beta2
        0.99
    """

    def _second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)  # line 13


@dataclass(frozen=True)
class ServerAdagrad(_Adaptive):
    """FedAdagrad's: `v ← v + Δ²`; β1 is 0 unless it is given, as in the paper's experiments, and β2 is not used.

    Args:
        step: η, learning rate of the server.
        beta1: β1, decay rate of the first moment; 0, as in the paper's experiments.
        beta2: not used.
        adaptivity: τ, added to the root; v starts at τ².

    Examples:
        >>> ServerAdagrad(step=0.03).beta1
        0.0
    """

    beta1: float = 0.0

    def _second(self, v: Tensor, square: Tensor) -> Tensor:
        return v + square  # line 12


def check_server_optimiser(value: object) -> None:
    """Validate the optimiser of the server: an object, or None for the plain mean.

    Args:
        value: a server's optimiser of `fs.optimisers`, or None.
    """
    if value is not None and (isinstance(value, type) or not isinstance(value, ServerOptimiser)):
        shown = value.__name__ if isinstance(value, type) else value
        raise BadInput("server_optimiser", shown, "give one such as fs.optimisers.ServerAdam(), or None for the mean")

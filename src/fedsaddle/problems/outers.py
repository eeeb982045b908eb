"""The outer function f of a compositional pairwise risk, and the form in which its inner mean u is stored.

`u (..., q)` estimates the mean of ℓ over the second set. Where ℓ is an exponential, `ℓ = exp(L / λ)` of the pair loss
L, what is kept is log u: with λ = 0.01 a loss of 10 would already be too large for any floating-point number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from fedsaddle.arguments import function, number
from fedsaddle.errors import BadInput


class RatioCaps(NamedTuple):
    """Log-caps on f(u) / mean f per sample and on ℓ / u per pair.

    With exact means the ratios are at most |S2| and |S1|; stale means would let a few pairs dominate.

    Args:
        sample: log of the largest f(u) / mean f of a sample.
        pair: log of the largest ℓ / u of a pair.
    """

    sample: float = 12.0
    pair: float = 12.0


NO_CAPS = RatioCaps()


@runtime_checkable
class Outer(Protocol):
    """f, and the domain in which u is stored. `L (C, A, B, q)` are pair losses, `weight (C, B)` sums to B."""

    @property
    def linear(self) -> bool:
        """Whether f is the identity, so that no u is stored."""
        ...

    @property
    def tracked(self) -> bool:
        """Whether the objective is the log of the mean of f, so that this mean is tracked as well."""
        ...

    def observed(self, L: Tensor, weight: Tensor) -> Tensor:
        """The weighted mean of ℓ over b, (C, A, q)."""
        ...

    def mixed(self, u: Tensor, new: Tensor, share: float) -> Tensor:
        """`(1 - share) u + share new`."""
        ...

    def value(self, u: Tensor) -> Tensor:
        """f(u), or its log where it is tracked; without the last axis."""
        ...

    def total(self, f: Tensor, weight: Tensor) -> Tensor:
        """The risk from the values and weights `(C, A)` of S1: their mean, or what is made of it."""
        ...

    def factors(self, u: Tensor, L: Tensor, scale: Tensor | None = None, caps: RatioCaps = NO_CAPS) -> Tensor:
        """`f'(u) · dℓ/dL` of every pair, of the shape of L, over `exp(scale)` where the mean is tracked."""
        ...


class Plain:
    """u is stored itself."""

    def observed(self, L: Tensor, weight: Tensor) -> Tensor:
        """The weighted mean over b."""
        return (L * weight[:, None, :, None]).mean(2)

    def mixed(self, u: Tensor, new: Tensor, share: float) -> Tensor:
        """Linear interpolation."""
        return torch.lerp(u, new, share)

    def total(self, f: Tensor, weight: Tensor) -> Tensor:
        """The weighted mean."""
        return (f * weight).mean(1)


@dataclass(frozen=True)
class Identity(Plain):
    """f(u) = u: the plain pairwise risk."""

    linear: bool = field(default=True, init=False)
    tracked: bool = field(default=False, init=False)

    def value(self, u: Tensor) -> Tensor:
        """u."""
        return u.squeeze(-1)

    def factors(self, u: Tensor, L: Tensor, scale: Tensor | None = None, caps: RatioCaps = NO_CAPS) -> Tensor:
        """One."""
        return torch.ones_like(L)


@dataclass(frozen=True)
class Ratio(Plain):
    """f(u) = -u₁ / u₂: minus the precision; with the pair loss `Precision`, minus the AUPRC.

    Args:
        floor: added to u₂, which is 0 where no pair is near.
    """

    floor: float = 1e-8
    linear: bool = field(default=False, init=False)
    tracked: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        number("floor", self.floor, least=0)

    def value(self, u: Tensor) -> Tensor:
        """Minus the ratio."""
        return -u[..., 0] / (u[..., 1] + self.floor)

    def factors(self, u: Tensor, L: Tensor, scale: Tensor | None = None, caps: RatioCaps = NO_CAPS) -> Tensor:
        """`(-1 / u₂, u₁ / u₂²)`; u₂, the mean of ℓ, is at least what this pair alone makes of it."""
        below = torch.maximum(u[..., None, 1] + self.floor, L[..., 1] * math.exp(-caps.pair))
        return torch.stack([-1 / below, u[..., None, 0] / below.square()], -1)


@dataclass(frozen=True)
class Smooth(Plain):
    """A user's own f: `function(u)` of `(..., q)` gives `(...)`; its gradient is found by autograd.

    Args:
        function: `function(u)` of `(..., q)`, giving `(...)`, differentiable by autograd.
    """

    function: Callable[[Tensor], Tensor]
    linear: bool = field(default=False, init=False)
    tracked: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        function("function", self.function, takes=1)

    def value(self, u: Tensor) -> Tensor:
        """f(u)."""
        return _one_each(self.function(u), u)

    def factors(self, u: Tensor, L: Tensor, scale: Tensor | None = None, caps: RatioCaps = NO_CAPS) -> Tensor:
        """∇f(u)."""
        return _gradient(self.value, u).unsqueeze(2).expand_as(L)


class Exponential:
    """ℓ = exp(L / λ), and log u is stored."""

    temperature: float

    def observed(self, L: Tensor, weight: Tensor) -> Tensor:
        """The log of the weighted mean of the exponentials."""
        logs = L / self.temperature + weight.clamp_min(1e-30).log()[:, None, :, None]
        return logs.logsumexp(2) - math.log(L.shape[2])

    def mixed(self, u: Tensor, new: Tensor, share: float) -> Tensor:
        """In the log domain."""
        if share >= 1:
            return new.clone()
        return torch.logaddexp(u + math.log1p(-share), new + math.log(share))

    def total(self, f: Tensor, weight: Tensor) -> Tensor:
        """The weighted mean."""
        return (f * weight).mean(1)

    def relative(self, u: Tensor, L: Tensor, caps: RatioCaps) -> Tensor:
        """ℓ / u of every pair."""
        return (L / self.temperature - u.unsqueeze(2)).clamp_max(caps.pair).exp()


@dataclass(frozen=True)
class Kl(Exponential):
    """f(u) = λ log u: KL-OPAUC, the one-way partial AUC. A small λ weights the hardest pairs, a large λ all equally.

    Args:
        temperature: λ, temperature; a small one weights the hardest pairs.
    """

    temperature: float = 1.0  # λ
    linear: bool = field(default=False, init=False)
    tracked: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        number("temperature", self.temperature, above=0)

    def value(self, u: Tensor) -> Tensor:
        """λ log u."""
        return self.temperature * u.squeeze(-1)

    def factors(self, u: Tensor, L: Tensor, scale: Tensor | None = None, caps: RatioCaps = NO_CAPS) -> Tensor:
        """`f'(u) ℓ / λ = ℓ / u`."""
        return self.relative(u, L, caps)


@dataclass(frozen=True)
class LogPower(Exponential):
    """f(u) = u^p under a log: `(λ / p) log mean_{S1} u^p`, which has the minimisers of `mean_{S1} u^p`.

    p = λ / λ' makes it the two-way KL partial AUC, `λ' log mean_{S1} (mean_{S2} exp(L / λ))^(λ / λ')`; λ = 1 with the
    loss `Difference` the log of p-norm push.

    Args:
        power: p, exponent of u.
        temperature: λ, temperature of the pair loss.
    """

    power: float = 1.0  # p
    temperature: float = 1.0  # λ
    linear: bool = field(default=False, init=False)
    tracked: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        number("temperature", self.temperature, above=0)
        number("power", self.power, above=0)

    def value(self, u: Tensor) -> Tensor:
        """`log u^p`."""
        return self.power * u.squeeze(-1)

    def total(self, f: Tensor, weight: Tensor) -> Tensor:
        """`(λ / p) log mean`."""
        return self.temperature / self.power * log_mean(f, weight)

    def factors(self, u: Tensor, L: Tensor, scale: Tensor | None = None, caps: RatioCaps = NO_CAPS) -> Tensor:
        """`u^p / mean · ℓ / u`."""
        at = self.value(u) - (0.0 if scale is None else scale)
        return self.relative(u, L, caps) * at.clamp_max(caps.sample).exp()[:, :, None, None]


@dataclass(frozen=True)
class SmoothLog(Exponential):
    """A user's own f for ℓ = exp(L / λ): `function(v)` of v = log u, `(..., q)`, gives `(...)`.

    Args:
        function: `function(v)` of v = log u, `(..., q)`, giving `(...)`.
        temperature: λ, temperature of the pair loss.
    """

    function: Callable[[Tensor], Tensor]
    temperature: float = 1.0  # λ
    linear: bool = field(default=False, init=False)
    tracked: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        function("function", self.function, takes=1)
        number("temperature", self.temperature, above=0)

    def value(self, u: Tensor) -> Tensor:
        """f."""
        return _one_each(self.function(u), u)

    def factors(self, u: Tensor, L: Tensor, scale: Tensor | None = None, caps: RatioCaps = NO_CAPS) -> Tensor:
        """`df/dv · ℓ / (λ u)`."""
        return self.relative(u, L, caps) * _gradient(self.value, u).unsqueeze(2) / self.temperature


def inner_parts(outer: Outer) -> int | None:
    """How many parts q of a pair loss f takes; None: as many as a user's own f does.

    Args:
        outer: f, of `fs.outers`.
    """
    if isinstance(outer, Ratio):
        return 2
    return 1 if outer.linear or isinstance(outer, Kl | LogPower) else None


def log_mean(logs: Tensor, weight: Tensor) -> Tensor:
    """The log of the weighted mean of exponentials along axis 1.

    Args:
        logs: logarithms, with rows along axis 1.
        weight: weights of the rows.
    """
    return (logs + weight.clamp_min(1e-30).log()).logsumexp(1) - math.log(logs.shape[1])


def _one_each(values: object, u: Tensor) -> Tensor:
    """Validate the result of a user's own f: a number for each u."""
    if not isinstance(values, Tensor) or values.shape != u.shape[:-1]:
        given = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise BadInput("outer", given, f"must give one number for each u, of shape {tuple(u.shape[:-1])}")
    return values


def _gradient(f: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
    at = u.detach().requires_grad_()
    with torch.enable_grad():
        total = f(at).sum()
    return torch.autograd.grad(total, at)[0]

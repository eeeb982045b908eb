"""Concave regularisers g of a mixture and their proximal maps on the simplex.

The map solves `argmax_{u in simplex} { c g(u) - |z - u|^2 / 2 }`. Everything here is in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import function, number, whole
from fedsaddle.errors import BadInput
from fedsaddle.numerics.projections import Simplex
from fedsaddle.numerics.solvers import MOST_STEPS, ascend

_project = Simplex()
LEAST_RATIO = 1e-3  # of u_i / pi_i in the gradient of KL


@runtime_checkable
class Regulariser(Protocol):
    """A concave function of the mixture."""

    def value(self, u: Tensor) -> Tensor:
        """g(u)."""
        ...

    def gradient(self, u: Tensor) -> Tensor:
        """The gradient of g at u."""
        ...

    def prox(self, z: Tensor, c: float) -> Tensor:
        """`argmax_{u in simplex} { c g(u) - |z - u|^2 / 2 }`."""
        ...


def _prior(prior: Tensor | None, like: Tensor) -> Tensor:
    if prior is None:
        return torch.full_like(like, 1 / len(like))
    if len(prior) != len(like):
        raise BadInput("prior", f"{len(prior)} entries", f"give one for each of the {len(like)} clients")
    return prior.to(like.dtype)


def _check_prior(prior: Tensor | None) -> None:
    """Refuse what is no mixture."""
    if prior is None:
        return
    if not isinstance(prior, Tensor) or prior.ndim != 1 or prior.layout != torch.strided or prior.is_complex():
        raise BadInput("prior", prior, "must be a flat tensor with one entry for each client")
    wrong = ~(prior >= 0)  # NaN too
    if wrong.any():
        raise BadInput("prior", float(prior[wrong][0]), "every entry must be at least 0")
    if abs(float(prior.double().sum()) - 1) > 1e-5:
        raise BadInput("prior", f"sum {float(prior.sum()):g}", "the entries must sum to 1; divide by their sum")


@dataclass(frozen=True)
class Quadratic:
    """`g(u) = -(mu / 2) |u - pi|^2`, with pi the prior (default uniform).

    Args:
        strength: mu, weight of the regulariser.
        prior: pi, prior mixture; None is uniform.
    """

    strength: float  # mu
    prior: Tensor | None = None  # pi

    def __post_init__(self) -> None:
        number("strength", self.strength, least=0)
        _check_prior(self.prior)

    def value(self, u: Tensor) -> Tensor:
        """g(u)."""
        return -self.strength / 2 * (u - _prior(self.prior, u)).square().sum()

    def gradient(self, u: Tensor) -> Tensor:
        """`-mu (u - pi)`."""
        return -self.strength * (u - _prior(self.prior, u))

    def prox(self, z: Tensor, c: float) -> Tensor:
        """The projection of `(z + c mu pi) / (1 + c mu)`."""
        a = c * self.strength
        return _project((z + a * _prior(self.prior, z)) / (1 + a))


@dataclass(frozen=True)
class KullbackLeibler:
    """`g(u) = -mu sum_i u_i log(u_i / pi_i)`, with pi the prior (default uniform).

    Its slope is infinite where a u_i is 0, as a projection may leave it, and one step of gradient ascent (DRFA-GA)
    would throw the mixture across the simplex. `gradient` therefore takes `u_i / pi_i` to be at least 1/1000 and, where
    pi_i is 0, 1000; `prox` is exact.

    Args:
        strength: mu, weight of the regulariser.
        prior: pi, prior mixture; None is uniform.
    """

    strength: float  # mu
    prior: Tensor | None = None  # pi

    def __post_init__(self) -> None:
        number("strength", self.strength, least=0)
        _check_prior(self.prior)

    def value(self, u: Tensor) -> Tensor:
        """g(u), with 0 log 0 = 0."""
        ratio = torch.where(u > 0, u / _prior(self.prior, u), torch.ones_like(u))
        g: Tensor = -self.strength * torch.special.xlogy(u, ratio).sum()
        return g

    def gradient(self, u: Tensor) -> Tensor:
        """`-mu (log(u / pi) + 1)`, finite also at the boundary."""
        prior = _prior(self.prior, u)
        ratio = torch.where(prior > 0, u / prior, 1 / LEAST_RATIO).clamp(min=LEAST_RATIO)
        g: Tensor = -self.strength * (ratio.log() + 1)
        return g

    def prox(self, z: Tensor, c: float) -> Tensor:
        """Lambert's W in each coordinate and a root in the multiplier nu.

        Stationarity, `u - z + a (log(u / pi) + 1) + nu = 0` with `a = c mu`, gives
        `u = a W(exp((z - nu) / a - 1) pi / a)`; Wright's omega is W(exp(.)) without overflow.
        """
        from scipy.optimize import brentq  # here, because it takes half as long to import as torch
        from scipy.special import wrightomega

        a = c * self.strength
        if a == 0:
            return _project(z)
        at = (z / a + _prior(self.prior, z).log() - 1 - np.log(a)).numpy()

        def mixture(nu: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
            return a * np.asarray(wrightomega(at - nu / a))

        low, high = float(z.min()) - 1.0, float(z.max()) + 1.0
        while mixture(low).sum() < 1:
            low -= 2 * (high - low)
        while mixture(high).sum() > 1:
            high += 2 * (high - low)
        u = mixture(brentq(lambda nu: mixture(nu).sum() - 1, low, high, xtol=1e-14, rtol=1e-14, maxiter=200))
        return torch.from_numpy(u / u.sum())


@dataclass(frozen=True)
class Concave:
    """Any concave g, given as a function of a float64 vector; its map is found by projected ascent.

    Args:
        function: g of a float64 vector, differentiable by autograd.
        tolerance: accuracy of its prox.
        most_steps: largest number of ascent steps.
    """

    function: Callable[[Tensor], Tensor]
    tolerance: float = 1e-10
    most_steps: int = 10_000

    def __post_init__(self) -> None:
        function("function", self.function, takes=1)
        number("tolerance", self.tolerance, above=0)
        whole("most_steps", self.most_steps, most=MOST_STEPS)

    def value(self, u: Tensor) -> Tensor:
        """g(u)."""
        return self.function(u)

    def gradient(self, u: Tensor) -> Tensor:
        """By automatic differentiation."""
        at = u.detach().requires_grad_()
        with torch.enable_grad():
            slope: object = self.function(at)
            if not isinstance(slope, Tensor) or slope.numel() != 1 or not slope.requires_grad:
                given = tuple(slope.shape) if isinstance(slope, Tensor) else type(slope).__name__
                raise BadInput("function", given, "must give one number, a tensor that torch made from the mixture")
            (g,) = torch.autograd.grad(slope.sum(), at)
        return g

    def prox(self, z: Tensor, c: float) -> Tensor:
        """Projected ascent from the inside of the simplex."""

        def slope_at(v: Tensor) -> Tensor:
            return c * self.gradient(v) + z - v

        inside = (_project(z) + 1 / len(z)) / 2
        return ascend(slope_at, inside, _project, self.tolerance, self.most_steps).point


def check_regulariser(regulariser: object) -> None:
    """Validate g.

    Args:
        regulariser: an object with value, gradient and prox, or None.

    Raises:
        BadInput: if it is anything else.
    """
    if regulariser is not None and (isinstance(regulariser, type) or not isinstance(regulariser, Regulariser)):
        name = regulariser.__name__ if isinstance(regulariser, type) else type(regulariser).__name__
        raise BadInput("regulariser", name, "give one such as fs.regularisers.KullbackLeibler(0.1)")

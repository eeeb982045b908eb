"""Exponential client DRO: the worst client weighs most, and no loss leaves a client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.drfa import Probe
from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort
from fedsaddle.arguments import number
from fedsaddle.array_types import Ints
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged, UpdateOf
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.protocols import MinimisationProblem

FIRST = 1  # the stream of the batch that starts u and M
HEAVY = 1.0  # the largest log of the clients' mean weight
FAR = 4.0  # losses that may differ by more than this many λ from their mean need more than it for the first c
WIDEST = 50.0  # the largest exponent while that is determined

NAMED = {
    "Exponential DRO": {
        "class": "ExponentialDro",
        "about": "the worst client, by averages alone",
        "source": "Yan, Huang 2026, Alg. 1; Gao et al. 2022",
        "kind": "minimisation",
    },
}


@dataclass(frozen=True)
class FirstLoss:
    """Client to server, before the first round: the loss of a minibatch and its square, seen as means."""

    loss: Averaged
    square: Averaged


@dataclass(frozen=True)
class Tilt:
    """Server to client, before the first round, where losses differ by much more than λ."""

    w: Tensor
    offset: float  # c
    temperature: float  # μ >= λ


@dataclass(frozen=True)
class FirstWeight:
    """Client to server: exp((u - c) / μ), seen as a mean."""

    weight: Averaged


@dataclass(frozen=True)
class Sent:
    """Server to client."""

    w: Tensor
    momentum: Tensor  # M; before the first round it counts for nothing
    offset: float  # c: exp((u - c) / λ) is what a client's gradient counts
    largest: float  # exponent: a client whose u has risen since c was determined counts no more
    mass: float  # of M
    began: bool
    step: float


@dataclass(frozen=True)
class Reply:
    """Client to server."""

    w: Annotated[Averaged, UpdateOf("w")]
    momentum: Averaged
    inner: Averaged  # u_k, seen as a mean
    weight: Averaged  # exp((u_k - c) / λ), seen as a mean
    mass: Averaged  # the mean weight of the gradients that M is made of


@dataclass(frozen=True)
class InnerLoss:
    """A client's memory."""

    u: Tensor  # (C,): the running loss
    began: Tensor  # (C,): 1 once it holds one


@dataclass(frozen=True)
class ExponentialDroState:
    """The server's state."""

    w: Tensor
    momentum: Tensor  # M, in units of exp(c / λ)
    offset: float = 0.0  # c
    mass: float = 0.0  # the mean weight of the gradients that M is made of
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class ExponentialDro:
    """Minimises `mean_k exp(F_k(w) / λ)`: the minimiser of KL-regularised worst-client risk, and of TERM with t = 1/λ.

    Client k keeps `u_k`, a running mean of its minibatch losses, and steps along `M`, a running mean of
    `exp((u_k - c) / λ) ∇F_k`; models, M, u and the weights are averaged. The common c is the mean of u, or more where
    the mean weight would exceed e, and changes the length of all steps alike. λ → ∞ is local SGD with momentum.

    Args:
        problem: the problem to solve.
        temperature: λ, temperature of the KL regulariser; a small λ weights the worst clients.
        inner_averaging: α, weight of the new loss in the moving average u.
        momentum_averaging: β, weight of the new gradient in the moving average M.
        sampled_clients: clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> problem = fs.Supervised(fs.models.logistic_regression(64, 10))
        >>> fs.ExponentialDro(problem=problem, temperature=0.5).inner_averaging
        0.2

    **Deviations from the paper**: the plain-step form of Algorithm 1 of Yan and Huang, with M itself in the place of
    its orthogonal factor; a cohort may be drawn; one batch gives both loss and gradient; c is ours. So are two limits,
    which matter where losses change by many λ in a round: a client counts at most e times as much as all together, and
    the gradients that M is made of count at most e on average, however much larger they were by an earlier c.
    """

    local_optimiser: ClassVar[None] = None
    asks_again: ClassVar[Mapping[str, int]] = {"first_weight": 30}  # while the first c is determined

    problem: MinimisationProblem
    temperature: float = 1.0  # λ
    inner_averaging: float = 0.2  # α
    momentum_averaging: float = 0.1  # β
    sampled_clients: int | None = None
    local_steps: int = 5  # τ
    batch_size: int = 20
    primal_step: Step = 0.1  # η
    projection: Projection | None = None  # Π_W

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        number("temperature", self.temperature, above=0)
        number("inner_averaging", self.inner_averaging, above=0, most=1)
        number("momentum_averaging", self.momentum_averaging, above=0, most=1)

    def start(self, clients: Clients) -> ExponentialDroState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        w = self.problem.initial()
        return ExponentialDroState(w, torch.zeros_like(w))

    def round(self, server: ExponentialDroState, clients: Clients, rng: np.random.Generator) -> ExponentialDroState:
        """τ iterations of Algorithm 1, and the means of line 10."""
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))
        r, c, λ = server.rounds, server.offset, self.temperature
        if r == 0:
            S, c = self._first_offset(server.w, clients, S)
        largest = HEAVY + math.log(len(S))  # what a single client can reach while c is up to date
        sent = Sent(server.w, server.momentum, c, largest, server.mass, r > 0, at(self.primal_step, r))
        _, local = clients.ask(S, self.weighted_steps, sent)  # lines 3-10
        offset = max(float(local.inner), c + λ * (_log(local.weight) - HEAVY))
        units = math.exp(min((c - offset) / λ, HEAVY - _log(local.mass)))  # of the old c in those of the new one
        return ExponentialDroState(local.w, local.momentum * units, offset, float(local.mass) * units, r + 1)

    def _first_offset(self, w: Tensor, clients: Clients, S: Ints) -> tuple[Ints, float]:
        """The first c, and the clients of the cohort that answered.

        Where losses differ by many λ, `exp((u - mean) / λ)` overflows. The mean and the mean square bound how far the
        largest loss is above the mean. A temperature μ at which that does not overflow gives a c near the largest loss,
        from which a lower μ does not overflow, and so on down to λ.
        """
        S, first = clients.ask(S, self.first_loss, Probe(w))
        mean, λ = float(first.loss), self.temperature
        above = math.sqrt(len(S) * max(0.0, float(first.square) - mean**2))
        if above <= λ * FAR:
            return S, mean
        c, μ = mean, max(λ, above / WIDEST)
        while True:
            S, tilted = clients.ask(S, self.first_weight, Tilt(w, c, μ))
            c += μ * _log(tilted.weight)
            if μ == λ:
                return S, max(mean, c - λ * HEAVY)
            μ = max(λ, μ * math.log(1 + len(S)) / WIDEST)

    def fresh(self, site: Site) -> InnerLoss:
        """Nothing seen yet."""
        zero = torch.zeros(len(site.clients), dtype=self.problem.initial().dtype, device=site.device)
        return InnerLoss(zero, zero)

    def first_loss(self, own: InnerLoss, sent: Probe, site: Site) -> tuple[InnerLoss, FirstLoss]:
        """The loss of a minibatch, which the first c is the mean of."""
        loss = self.problem.value(site.broadcast(sent.w), site.minibatch(0, self.batch_size, FIRST))
        return own, FirstLoss(loss, loss.square())

    def first_weight(self, own: InnerLoss, sent: Tilt, site: Site) -> tuple[InnerLoss, FirstWeight]:
        """What a client would count at a temperature; its first u is kept from here on."""
        loss = self.problem.value(site.broadcast(sent.w), site.minibatch(0, self.batch_size, FIRST))
        u = torch.where(own.began > 0, own.u, loss.to(own.u.dtype))
        weight = torch.exp(((u - sent.offset) / sent.temperature).clamp_max(WIDEST))
        return InnerLoss(u, torch.ones_like(u)), FirstWeight(weight)

    def weighted_steps(self, own: InnerLoss, sent: Sent, site: Site) -> tuple[InnerLoss, Reply]:
        """Lines 3-9: τ steps along M, each followed by a new u, Z and M."""
        α, β, w = self.inner_averaging, self.momentum_averaging, site.broadcast(sent.w)
        ξ = site.minibatch(0, self.batch_size, FIRST)  # line 1
        u = torch.where(own.began > 0, own.u, self.problem.value(w, ξ).to(own.u.dtype))
        M = site.broadcast(sent.momentum) if sent.began else self._weighted(w, u, ξ, sent)[0]  # line 1
        mass = torch.full_like(u, sent.mass) if sent.began else self._weight(u, sent)
        for t in range(self.local_steps):
            w = w - sent.step * M  # line 4
            w = w if self.projection is None else self.projection(w)
            ξ = site.minibatch(t, self.batch_size)  # line 5
            u = α * self.problem.value(w, ξ).to(u.dtype) + (1 - α) * u  # line 6
            Z, statistics = self._weighted(w, u, ξ, sent)  # line 7
            M = β * Z + (1 - β) * M  # line 8
            mass = β * self._weight(u, sent) + (1 - β) * mass
            w = self.problem.write_statistics_(w, statistics)
        return InnerLoss(u, torch.ones_like(u)), Reply(w, M, u, self._weight(u, sent), mass)  # line 10

    def _weighted(self, w: Tensor, u: Tensor, ξ: Batch, sent: Sent) -> tuple[Tensor, Tensor | None]:
        """`exp((u - c) / λ) ∇F_k(w; ξ)`."""
        g = self.problem.primal_gradient(w, ξ)
        return self._weight(u, sent)[:, None] * g.x, g.statistics

    def _weight(self, u: Tensor, sent: Sent) -> Tensor:
        """`exp((u - c) / λ)`, which does not overflow."""
        return torch.exp(((u - sent.offset) / self.temperature).clamp_max(sent.largest))

    def model(self, server: ExponentialDroState) -> Tensor:
        """The solution so far."""
        return server.w


def _log(weight: Tensor) -> float:
    """The log of a mean weight; of 0, where all weights underflow, that of a very small one."""
    return math.log(max(float(weight), 1e-30))

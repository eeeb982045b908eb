"""Exponential client DRO: the worst client weighs most, and no loss leaves a client."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.drfa import Probe
from fedsaddle.algorithms.hyperparameters import cohort_size, draw_cohort
from fedsaddle.algorithms.local_sgd import check
from fedsaddle.arguments import number
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged, From
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.protocols import MinimisationProblem

FIRST = 1  # the stream of the batch that starts u and M

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
    """Client to server, before the first round: the loss of a minibatch, seen as a mean."""

    loss: Averaged


@dataclass(frozen=True)
class Sent:
    """Server to client."""

    w: Tensor
    momentum: Tensor  # M; before the first round it counts for nothing
    offset: float  # c: exp((u - c) / λ) is what a client's gradient counts
    began: bool
    step: float


@dataclass(frozen=True)
class Reply:
    """Client to server."""

    w: Annotated[Averaged, From("w")]
    momentum: Averaged
    inner: Averaged  # u_k, seen as a mean


@dataclass(frozen=True)
class InnerLoss:
    """A client's memory."""

    u: Tensor  # (C,): the running loss
    began: Tensor  # (C,): 1 once it holds one


@dataclass(frozen=True)
class ExponentialDroState:
    """The server's memory."""

    w: Tensor
    momentum: Tensor  # M, in units of exp(c / λ)
    offset: float = 0.0  # c, the mean of u
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class ExponentialDro:
    """Minimises `mean_k exp(F_k(w) / λ)`: the minimiser of KL-regularised worst-client risk, and of TERM with t = 1/λ.

    Client k keeps `u_k`, a running mean of its minibatch losses, and steps along `M`, a running mean of
    `exp((u_k - c) / λ) ∇F_k`; models, M and u are averaged. The common c, the mean of u, keeps the weights within range
    and changes the length of all steps alike. λ → ∞ is local SGD with momentum.

    Raises:
        BadInput: for a hyper-parameter that cannot be, with its name.

    Example:
        >>> import fedsaddle as fs
        >>> problem = fs.Supervised(fs.models.logistic_regression(64, 10))
        >>> fs.ExponentialDro(problem=problem, temperature=0.5).inner_averaging
        0.2

    **Deviations from the paper**: the plain-step form of Algorithm 1 of Yan and Huang, with M itself in the place of
    its orthogonal factor; a cohort may be drawn; one batch gives both loss and gradient; c is ours.
    """

    local_optimiser: ClassVar[None] = None

    problem: MinimisationProblem
    temperature: float = 1.0  # λ
    inner_averaging: float = 0.2  # α, of u
    momentum_averaging: float = 0.1  # β, of M
    sampled_clients: int | None = None  # None: all
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
        r, c = server.rounds, server.offset
        if r == 0:
            S, at_first = clients.ask(S, self.first_loss, Probe(server.w))
            c = float(at_first.loss)
        sent = Sent(server.w, server.momentum, c, r > 0, at(self.primal_step, r))
        _, local = clients.ask(S, self.weighted_steps, sent)  # lines 3-10
        offset = float(local.inner)
        rescaled = local.momentum * math.exp((c - offset) / self.temperature)  # M in units of the new c
        return ExponentialDroState(local.w, rescaled, offset, r + 1)

    def fresh(self, site: Site) -> InnerLoss:
        """Nothing seen yet."""
        zero = torch.zeros(len(site.clients), dtype=self.problem.initial().dtype, device=site.device)
        return InnerLoss(zero, zero)

    def first_loss(self, own: InnerLoss, sent: Probe, site: Site) -> tuple[InnerLoss, FirstLoss]:
        """The loss of a minibatch, which the first c is the mean of."""
        return own, FirstLoss(self.problem.value(site.broadcast(sent.w), site.minibatch(0, self.batch_size, FIRST)))

    def weighted_steps(self, own: InnerLoss, sent: Sent, site: Site) -> tuple[InnerLoss, Reply]:
        """Lines 3-9: τ steps along M, each followed by a new u, Z and M."""
        α, β, w = self.inner_averaging, self.momentum_averaging, site.broadcast(sent.w)
        ξ = site.minibatch(0, self.batch_size, FIRST)  # line 1
        u = torch.where(own.began > 0, own.u, self.problem.value(w, ξ).to(own.u.dtype))
        M = site.broadcast(sent.momentum) if sent.began else self._weighted(w, u, ξ, sent.offset)[0]  # line 1
        for t in range(self.local_steps):
            w = w - sent.step * M  # line 4
            w = w if self.projection is None else self.projection(w)
            ξ = site.minibatch(t, self.batch_size)  # line 5
            u = α * self.problem.value(w, ξ).to(u.dtype) + (1 - α) * u  # line 6
            Z, statistics = self._weighted(w, u, ξ, sent.offset)  # line 7
            M = β * Z + (1 - β) * M  # line 8
            w = self.problem.settle_(w, statistics)
        return InnerLoss(u, torch.ones_like(u)), Reply(w, M, u)  # line 10

    def _weighted(self, w: Tensor, u: Tensor, ξ: Batch, c: float) -> tuple[Tensor, Tensor | None]:
        """`exp((u - c) / λ) ∇F_k(w; ξ)`."""
        g = self.problem.primal_gradient(w, ξ)
        return torch.exp((u - c) / self.temperature)[:, None] * g.x, g.statistics

    def model(self, server: ExponentialDroState) -> Tensor:
        """The solution so far."""
        return server.w

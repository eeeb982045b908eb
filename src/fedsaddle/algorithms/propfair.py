"""PropFair: proportional fairness, by steps that grow with the loss; the server sees averages alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedavg import LocalModel, Start
from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort
from fedsaddle.arguments import choice, number
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Step, at, if_scheduled
from fedsaddle.problems.protocols import MinimisationProblem

NAMED = {
    "PropFair": {
        "class": "PropFair",
        "about": "proportional fairness; no loss is seen",
        "source": "Zhang et al. 2023",
        "kind": "minimisation",
    },
}


@dataclass(frozen=True)
class PropFairState:
    """The server's state."""

    w: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class PropFair:
    """PropFair (G. Zhang, Malekmohammadi, Chen, Yu 2023), which minimises `-mean_i log(M - F_i(w))`.

    A local step goes along `∇l / (M - l)` of a minibatch's loss l, so that clients with a large loss move further;
    where `M - l < ε` along `∇l / M`. The server averages as FedAvg does, and sees no loss. M → ∞ with steps
    η M is FedAvg.

    Args:
        problem: the problem to solve.
        ceiling: M, which should exceed the losses.
        near: ε, distance from M below which the logarithm is extended.
        extended: whether the slope nearer than ε is 1/ε, as in the paper; else 1/M, as in public code.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        weighting: "size" weights clients by their rows, n_i / n; "uniform" weights them equally.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.PropFair(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), ceiling=3.0).near
        0.2

    **Deviations from the paper**: by default this is a public implementation of the client's step, not the paper: the
    slope falls from 1/ε to 1/M where the loss comes within ε of M or exceeds it, so that such clients count least.
    `extended=True` is the paper's Huberised logarithm, whose slope stays 1/ε there.
    """

    local_optimiser: ClassVar[None] = None  # the length of a step is the method

    problem: MinimisationProblem
    ceiling: float = 5.0  # M
    near: float = 0.2  # ε
    extended: bool = False
    sampled_clients: int | None = None  # m
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: Step = 0.1  # η
    weighting: str = "size"  # n_i / n
    projection: Projection | None = None  # Π_W

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        number("ceiling", self.ceiling, above=0)
        number("near", self.near, above=0, most=self.ceiling)
        choice("weighting", self.weighting, ("size", "uniform"))

    def start(self, clients: Clients) -> PropFairState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        return PropFairState(self.problem.initial())

    def round(self, server: PropFairState, clients: Clients, rng: np.random.Generator) -> PropFairState:
        """Lines 2-3 and 7 of the box."""
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))  # line 2
        n = clients.sizes[S] if self.weighting == "size" else None
        sent = Start(server.w, if_scheduled(self.primal_step, server.rounds))
        _, local = clients.ask(S, self.fair_sgd, sent, weights=n)  # lines 3, 7
        return PropFairState(local.final, server.rounds + 1)

    def fair_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, LocalModel]:
        """Lines 4-6: τ local steps on `-log(1 - l / M)`."""
        w = site.broadcast(sent.w).clone(memory_format=torch.contiguous_format)
        η = at(self.primal_step, 0) if sent.step is None else sent.step
        for t in range(self.local_steps):  # line 4
            ξ = site.minibatch(t, self.batch_size)
            room = self.ceiling - self.problem.value(w, ξ)  # line 5: M - l
            beyond = self.near if self.extended else self.ceiling  # line 5
            slope = 1 / torch.where(room < self.near, beyond, room)  # line 5
            g = self.problem.primal_gradient(w, ξ)
            w = self.problem.write_statistics_(w.addcmul_(g.x, slope[:, None], value=-η), g.statistics)  # line 6
            w = w if self.projection is None else self.projection(w)
        return None, LocalModel(w)

    def model(self, server: PropFairState) -> Tensor:
        """The solution so far."""
        return server.w

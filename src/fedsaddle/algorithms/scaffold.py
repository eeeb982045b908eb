"""SCAFFOLD: FedAvg with control variates against the drift of clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort
from fedsaddle.arguments import choice, number
from fedsaddle.array_types import Ints
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, UpdateOf
from fedsaddle.numerics.schedules import Step, divisor
from fedsaddle.problems.protocols import MinimisationProblem

NAMED = {
    "SCAFFOLD": {
        "class": "Scaffold",
        "about": "FedAvg with control variates",
        "source": "Karimireddy et al. 2020, Alg. 1",
        "kind": "minimisation",
    },
}


@dataclass(frozen=True)
class Variate:
    """A client's state: c_i."""

    c: Tensor


@dataclass(frozen=True)
class Start:
    """Server to client: the model, the mean c of the control variates, and the step."""

    x: Tensor
    c: Tensor
    step: float


@dataclass(frozen=True)
class Local:
    """Client to server: the model after K steps. The change of c_i follows from it."""

    y: Annotated[Averaged, UpdateOf("x")]


@dataclass(frozen=True)
class ScaffoldState:
    """The server's state."""

    x: Tensor
    c: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class Scaffold:
    """SCAFFOLD (Karimireddy et al. 2020, Algorithm 1 with option II), for `min_x (1/N) Σ_i f_i(x)`.

    Local steps are corrected by `c - c_i`, where c_i is the mean of the client's last gradients and c the mean of all
    c_i: `y_i ← y_i - η_l (∇f_i(y_i; ξ) - c_i + c)`. Clients keep c_i between rounds. The mean change of the c_i follows
    from that of the y_i, so that the server computes c itself: nothing is sent up but what FedAvg sends.

    Args:
        problem: the problem to solve.
        sampled_clients: |S|, clients sampled in each round; None samples all.
        local_steps: K, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η_l, learning rate of the local steps, a number or a schedule.
        global_step: η_g, learning rate of the server; 1 takes the mean.
        weighting: "uniform" weights clients by 1 / |S|, as in the box; "size" by n_i / n.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Scaffold(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), local_steps=20).global_step
        1.0

    **Deviations from the paper**: option I, a gradient of all rows at x, is not offered. Clients may count by their
    rows. Running statistics of BatchNorm are averaged, without a correction and without the server's step.
    """

    local_optimiser: ClassVar[None] = None  # the variates are means of gradients
    projection: ClassVar[None] = None

    problem: MinimisationProblem
    sampled_clients: int | None = None  # |S|
    local_steps: int = 10  # K
    batch_size: int = 50
    primal_step: Step = 0.1  # η_l
    global_step: float = 1.0  # η_g
    weighting: str = "uniform"  # 1 / |S|

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        number("global_step", self.global_step, above=0)
        choice("weighting", self.weighting, ("uniform", "size"))

    def start(self, clients: Clients) -> ScaffoldState:
        """Line 1: c = 0."""
        cohort_size(self.sampled_clients, clients)
        x = self.problem.initial()
        return ScaffoldState(x, torch.zeros_like(x))  # line 1

    def round(self, server: ScaffoldState, clients: Clients, rng: np.random.Generator) -> ScaffoldState:
        """Lines 3-4 and 16-17 of Algorithm 1."""
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))  # line 3
        η = divisor("primal_step", self.primal_step, server.rounds)  # the variates divide by it
        sent = Start(server.x, server.c, η)  # line 4
        n = clients.sizes[S] if self.weighting == "size" else None
        answered, local = clients.ask(S, self.local_sgd, sent, weights=n)  # lines 5-14
        Δc = self._change(sent, local.y)  # line 16: the mean of the Δc_i
        c = server.c + self._share(clients, answered) * Δc  # line 17: c + |S| / N Δc
        return ScaffoldState(self._moved(server.x, local.y), c, server.rounds + 1)  # lines 16-17

    def fresh(self, site: Site) -> Variate:
        """Line 1: c_i = 0."""
        x = self.problem.initial()
        return Variate(torch.zeros(len(site.clients), len(x), dtype=x.dtype, device=site.device))

    def local_sgd(self, own: Variate, sent: Start, site: Site) -> tuple[Variate, Local]:
        """Lines 7-14: K corrected steps, and the new c_i."""
        η = sent.step
        y = site.broadcast(sent.x).clone(memory_format=torch.contiguous_format)  # line 7
        pull = η * (own.c - sent.c)
        for k in range(self.local_steps):  # line 8
            ξ = site.minibatch(k, self.batch_size)  # line 9
            y = self.problem.descend_(y, ξ, η).add_(pull)  # line 10: y_i ← y_i - η_l (g_i(y_i) - c_i + c)
        return Variate(own.c + self._change(sent, y)), Local(y)  # lines 12-14

    def _change(self, sent: Start, y: Tensor) -> Tensor:
        """Line 12, option II: `-c + (x - y_i) / (K η_l)`, and 0 for the statistics of BatchNorm."""
        change = (sent.x - y) / (self.local_steps * sent.step) - sent.c
        if self.problem.tail:
            change[..., -self.problem.tail :] = 0
        return change

    def _share(self, clients: Clients, answered: Ints) -> float:
        """The share of those who answered in the whole."""
        if self.weighting == "uniform":
            return len(answered) / clients.count
        return float(clients.sizes[answered].sum() / clients.sizes.sum())

    def _moved(self, x: Tensor, y: Tensor) -> Tensor:
        """Lines 16-17: `x + η_g (mean of y_i - x)`."""
        if self.global_step == 1:
            return y
        moved = x + self.global_step * (y - x)
        if self.problem.tail:
            moved[-self.problem.tail :] = y[-self.problem.tail :]
        return moved

    def model(self, server: ScaffoldState) -> Tensor:
        """The last x."""
        return server.x

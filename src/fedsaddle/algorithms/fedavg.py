"""FedAvg (Local SGD), the baseline that minimises the average loss, and FedAvgM, with momentum at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort, iterates
from fedsaddle.arguments import choice, flag, number
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, Parameters, UpdateOf
from fedsaddle.federation.tasks import per_step, task
from fedsaddle.numerics.optimisers import LocalOptimiser, Moments, ServerOptimiser, check_server_optimiser
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Step, if_scheduled
from fedsaddle.numerics.tensors import Running
from fedsaddle.problems.protocols import MinimisationProblem

NAMED = {
    "FedAvg": {
        "class": "FedAvg",
        "about": "average loss; Local SGD",
        "source": "McMahan et al. 2017",
        "kind": "minimisation",
    },
    "FedAvgM": {
        "class": "FedAvg",
        "about": "FedAvg with momentum at the server",
        "source": "Hsu, Qi, Brown 2019",
        "kind": "minimisation",
        "defaults": {"server_momentum": 0.9, "nesterov": True},
    },
    "FedProx": {
        "class": "FedAvg",
        "about": "FedAvg with a proximal term at the clients",
        "source": "Li et al. 2020",
        "kind": "minimisation",
        "defaults": {"proximal": 0.01},
    },
    "FedAdam": {
        "class": "FedAvg",
        "about": "FedAvg with Adam at the server",
        "source": "Reddi et al. 2021, Alg. 2",
        "kind": "minimisation",
        "defaults": {"server_optimiser": {"name": "adam"}},
    },
    "FedYogi": {
        "class": "FedAvg",
        "about": "FedAvg with Yogi at the server",
        "source": "Reddi et al. 2021, Alg. 2",
        "kind": "minimisation",
        "defaults": {"server_optimiser": {"name": "yogi"}},
    },
    "FedAdagrad": {
        "class": "FedAvg",
        "about": "FedAvg with Adagrad at the server",
        "source": "Reddi et al. 2021, Alg. 2",
        "kind": "minimisation",
        "defaults": {"server_optimiser": {"name": "adagrad"}},
    },
}


@dataclass(frozen=True)
class Start:
    """Server to client: the model to start from, and η where it has a schedule."""

    w: Parameters
    step: float | None = None


@dataclass(frozen=True)
class LocalModel:
    """Client to server: the model after τ steps, and the mean of the τ iterates if it is wanted."""

    final: Annotated[Averaged, UpdateOf("w")]
    path: Annotated[Averaged, UpdateOf("w")] | None = None


@dataclass(frozen=True)
class FedAvgState:
    """The server's state."""

    w: Tensor  # w̄
    rounds: int = 0  # s
    mean: Tensor | None = None  # running mean of all local iterates
    velocity: Tensor | None = None  # v; None without momentum; m of a server's optimiser
    second: Tensor | None = None  # v of a server's optimiser


@dataclass(frozen=True, kw_only=True)
class FedAvg:
    """Federated Averaging (McMahan et al. 2017, Algorithm 1; Local SGD of Stich 2019 with `weighting="uniform"`).

    Each round m clients, drawn uniformly without replacement, run τ steps `w_i ← Π_W(w_i - η ∇f_i(w_i; ξ_i))`; the
    server averages, `w̄ ← Σ_i n_i w_i / Σ_i n_i`.

    With `server_momentum` β it is FedAvgM (Hsu, Qi, Brown 2019): the change of the average, `Δ = w̄ - Σ_i n_i w_i / Σ_i
    n_i`, is a gradient for the server, `v ← β v + Δ` and `w̄ ← w̄ - v`, or with `nesterov` `w̄ ← w̄ - (β v + Δ)`. With a
    `server_optimiser` it is FedAdam, FedYogi or FedAdagrad (Reddi et al. 2021, Algorithm 2). With `proximal` μ it is
    FedProx (T. Li et al. 2020): `(μ/2) |w_i - w̄|²` beside each client's loss, by steps of SGD.

    Args:
        problem: the problem to solve.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        local_optimiser: optimiser of the local steps, of `fs.optimisers`; None is SGD, as in the box.
        weighting: "size" weights clients by their rows, n_i / n; "uniform" weights them equally.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.
        output: "last" returns the last average, "average" the mean of all local iterates.
        server_momentum: β, momentum of the server (FedAvgM); 0.9 is usual.
        nesterov: whether the momentum of the server is Nesterov's.
        server_optimiser: optimiser of the server, of `fs.optimisers`: FedAdam's, FedYogi's or FedAdagrad's; None takes
            the mean.
        proximal: μ of FedProx: adds `(μ/2) |w_i - w̄|²` to each client's loss.

    Examples:
        >>> from fedsaddle import FedAvg, Supervised, models
        >>> FedAvg(problem=Supervised(models.logistic_regression(64, 10)), local_steps=10).primal_step
        0.1

    **Deviations from the paper**: none; local epochs are counted in steps. Under momentum, or another
    optimiser at the server, the server's step is projected as well, and running statistics of BatchNorm are averaged
    without it: a variance must not overshoot. A `local_optimiser` starts afresh in every round.
    """

    problem: MinimisationProblem
    sampled_clients: int | None = None  # m
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: Step = 0.1  # η
    local_optimiser: LocalOptimiser | None = None
    weighting: str = "size"  # n_i / n
    projection: Projection | None = None  # Π_W
    output: str = "last"
    server_momentum: float = 0.0  # β
    nesterov: bool = False
    server_optimiser: ServerOptimiser | None = None
    proximal: float = 0.0  # μ

    secret_cohorts = True  # drawn afresh every round, and no message shows who is in one

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        choice("weighting", self.weighting, ("size", "uniform"))
        choice("output", self.output, ("last", "average"))
        number("server_momentum", self.server_momentum, least=0, below=1)
        flag("nesterov", self.nesterov)
        check_server_optimiser(self.server_optimiser)
        number("proximal", self.proximal, least=0)
        if self.server_optimiser is not None and self.server_momentum:
            remedy = "cannot be combined with a server_optimiser, whose momentum is beta1; leave one out"
            raise BadInput("server_momentum", self.server_momentum, remedy)

    def start(self, clients: Clients) -> FedAvgState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        return FedAvgState(self.problem.initial())  # line 1

    def round(self, server: FedAvgState, clients: Clients, rng: np.random.Generator) -> FedAvgState:
        """Lines 3-7 of Algorithm 1, as the documentation counts them."""
        m = cohort_size(self.sampled_clients, clients)  # line 3
        S = draw_cohort(rng, clients.count, m)  # line 4
        n = clients.sizes[S] if self.weighting == "size" else None  # line 7
        η = if_scheduled(self.primal_step, server.rounds)
        _, local = clients.ask(S, self.local_sgd, Start(server.w, η), weights=n)  # lines 5-6; the mean of line 7
        mean = Running.over(server.mean, local.path, server.rounds)
        if self.server_optimiser is not None:
            w, m_and_v = self._adaptive_step(self.server_optimiser, server, local.final)
            return FedAvgState(w, server.rounds + 1, mean, m_and_v.first, m_and_v.second)
        w, v = (local.final, None) if self.server_momentum == 0 else self._momentum_step(server, local.final)  # line 7
        return FedAvgState(w, server.rounds + 1, mean, v)

    @task(releases=per_step())
    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, LocalModel]:
        """Lines 8-12: τ local steps."""
        path = Running() if self.output == "average" else None
        for w in iterates(self, site.broadcast(sent.w), site, sent.step, self.proximal):  # lines 8-11
            if path is not None:
                path.add(w)
        return None, LocalModel(w, path.mean if path is not None else None)  # line 12

    def _momentum_step(self, server: FedAvgState, average: Tensor) -> tuple[Tensor, Tensor]:
        """Line 7 with momentum: the new w̄ and v."""
        β, tail = self.server_momentum, self.problem.tail
        Δ = server.w - average  # line 7a
        v = Δ if server.velocity is None else β * server.velocity + Δ  # line 7b
        w = server.w - (β * v + Δ if self.nesterov else v)  # line 7c
        return self._with_statistics(w, average, tail), v

    def _adaptive_step(
        self, optimiser: ServerOptimiser, server: FedAvgState, average: Tensor
    ) -> tuple[Tensor, Moments]:
        """Lines 9-15 of Algorithm 2 of Reddi et al.: the new w̄, and m and v."""
        Δ = average - server.w  # lines 9-10
        moments, step = optimiser.advance(server.rounds, Δ, Moments(server.velocity, server.second))  # lines 11-14
        return self._with_statistics(server.w + step, average, self.problem.tail), moments  # line 15

    def _with_statistics(self, w: Tensor, average: Tensor, tail: int) -> Tensor:
        """With the averaged statistics of BatchNorm, and projected."""
        if tail:
            w[-tail:] = average[-tail:]
        return w if self.projection is None else self.projection(w[None])[0]

    def check_local_layers(self) -> None:
        """The server cannot project layers that stay at the clients."""
        if self.projection is not None and (self.server_momentum or self.server_optimiser is not None):
            raise BadInput("projection", self.projection, "the server cannot project layers that it does not have")

    def model(self, server: FedAvgState) -> Tensor:
        """The solution so far."""
        return server.w if server.mean is None else server.mean

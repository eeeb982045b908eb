"""FedAvg (Local SGD), the baseline that minimises the average loss, and FedAvgM, with momentum at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.hyperparameters import cohort_size, draw_cohort
from fedsaddle.algorithms.local_sgd import check, iterates
from fedsaddle.arguments import choice, flag, number
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, From
from fedsaddle.numerics.averages import Running
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Step, if_scheduled
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
}


@dataclass(frozen=True)
class Start:
    """Server to client: the model to start from, and η where it has a schedule."""

    w: Tensor
    step: float | None = None


@dataclass(frozen=True)
class LocalModel:
    """Client to server: the model after τ steps, and the mean of the τ iterates if it is wanted."""

    final: Annotated[Averaged, From("w")]
    path: Annotated[Averaged, From("w")] | None = None


@dataclass(frozen=True)
class FedAvgState:
    """The server's memory."""

    w: Tensor  # w̄
    rounds: int = 0  # s
    mean: Tensor | None = None  # running mean of all local iterates
    velocity: Tensor | None = None  # v; None without momentum


@dataclass(frozen=True, kw_only=True)
class FedAvg:
    """Federated Averaging (McMahan et al. 2017, Algorithm 1; Local SGD of Stich 2019 with `weighting="uniform"`).

    Each round m clients, drawn uniformly without replacement, run τ steps `w_i ← Π_W(w_i - η ∇f_i(w_i; ξ_i))`; the
    server averages, `w̄ ← Σ_i n_i w_i / Σ_i n_i`.

    With `server_momentum` β it is FedAvgM (Hsu, Qi, Brown 2019): the change of the average, `Δ = w̄ - Σ_i n_i w_i / Σ_i
    n_i`, is a gradient for the server, `v ← β v + Δ` and `w̄ ← w̄ - v`, or with `nesterov` `w̄ ← w̄ - (β v + Δ)`.

    Example:
        >>> from fedsaddle import FedAvg, Supervised, models
        >>> FedAvg(problem=Supervised(models.logistic_regression(64, 10)), local_steps=10).primal_step
        0.1

    **Deviations from the paper**: none; local epochs are counted in steps. Under momentum the server's step is
    projected as well, and running statistics of BatchNorm are averaged without it: a variance must not overshoot.
    """

    problem: MinimisationProblem
    sampled_clients: int | None = None  # m; None: all
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: Step = 0.1  # η
    weighting: str = "size"  # n_i / n, or "uniform"
    projection: Projection | None = None  # Π_W
    output: str = "last"  # or "average" of all local iterates
    server_momentum: float = 0.0  # β; 0.9 is usual
    nesterov: bool = False  # look ahead

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        choice("weighting", self.weighting, ("size", "uniform"))
        choice("output", self.output, ("last", "average"))
        number("server_momentum", self.server_momentum, least=0, below=1)
        flag("nesterov", self.nesterov)

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
        w, v = (local.final, None) if self.server_momentum == 0 else self._momentum_step(server, local.final)  # line 7
        return FedAvgState(w, server.rounds + 1, mean, v)

    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, LocalModel]:
        """Lines 8-12: τ local steps."""
        path = Running() if self.output == "average" else None
        for w in iterates(self, site.broadcast(sent.w), site, sent.step):  # lines 8-11
            if path is not None:
                path.add(w)
        return None, LocalModel(w, path.mean if path is not None else None)  # line 12

    def _momentum_step(self, server: FedAvgState, average: Tensor) -> tuple[Tensor, Tensor]:
        """Line 7 with momentum: the new w̄ and v."""
        β, tail = self.server_momentum, self.problem.tail
        Δ = server.w - average  # line 7a
        v = Δ if server.velocity is None else β * server.velocity + Δ  # line 7b
        w = server.w - (β * v + Δ if self.nesterov else v)  # line 7c
        if tail:
            w[-tail:] = average[-tail:]
        return (w if self.projection is None else self.projection(w[None])[0]), v

    def model(self, server: FedAvgState) -> Tensor:
        """The solution so far."""
        return server.w if server.mean is None else server.mean

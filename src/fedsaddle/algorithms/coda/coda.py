"""CODA+ (and with one local step NPA) and CODA: stages of local descent and ascent (Algorithms 1 and 2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.coda import stages
from fedsaddle.algorithms.coda.stages import StageState, Start
from fedsaddle.algorithms.local_steps import MOST_ROWS
from fedsaddle.arguments import whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged, UpdateOf
from fedsaddle.federation.tasks import PlannedExchange, Release, task
from fedsaddle.numerics.optimisers import BLANK, LocalOptimiser, Moments, check_local_optimiser, own_optimiser
from fedsaddle.numerics.schedules import Geometric, Schedule, Step
from fedsaddle.numerics.tensors import Running
from fedsaddle.problems.protocols import HasBestDual, MinimaxProblem, Pair

NAMED = {
    "CODA+": {
        "class": "CodaPlus",
        "about": "stages of local min-max steps",
        "source": "Yuan, Guo, Xu, Ying, Yang 2021, Alg. 1-2",
        "kind": "minimax",
    },
    "CODA": {
        "class": "Coda",
        "about": "stages of min-max, dual recomputed",
        "source": "Guo et al. 2020",
        "kind": "minimax",
    },
    "NPA": {
        "class": "CodaPlus",
        "about": "CODA+ that averages after every step",
        "source": "Yuan, Guo, Xu, Ying, Yang 2021, App. C",
        "kind": "minimax",
        "fixed": {"local_steps": 1},
    },
}


@dataclass(frozen=True)
class Local:
    """Client to server: the last local iterates, and the means over the steps if they are wanted."""

    x: Annotated[Averaged, UpdateOf("x")]
    y: Annotated[Averaged, UpdateOf("y")]
    path_x: Annotated[Averaged, UpdateOf("x")] | None = None
    path_y: Annotated[Averaged, UpdateOf("y")] | None = None


@dataclass(frozen=True)
class Probe:
    """Server to client: where the best dual is wanted."""

    x: Tensor


@dataclass(frozen=True)
class BestDual:
    """Client to server: the dual that is best for its rows."""

    y: Averaged


@dataclass(frozen=True, kw_only=True)
class CodaPlus:
    """CODA+ (Yuan, Guo, Xu, Ying, Yang 2021, Algorithms 1 and 2) for `min_v max_α (1/K) Σ_k f_k(v, α)`.

    In stage s every client takes I_s steps `v ← v - η_s (∇_v F_k + γ (v - v_0))`, `α ← α + η_s ∇_α F_k`, and then all
    average. With `local_steps=1` it is NPA, the naive parallel algorithm of appendix C. `primal_step`, `local_steps`
    and `stage_rounds` may be schedules over stages, such as `Geometric(0.1, 1 / 3)`; `stage_steps` is the T_0 of the
    paper's experiments, a stage's length in local steps.

    Args:
        problem: the problem to solve.
        sampled_clients: clients sampled in each round; None samples all, as in the box.
        local_steps: I_s, local steps of a client in each round, a number or a schedule over stages.
        batch_size: rows of a minibatch.
        primal_step: η_s, learning rate of both players, a number or a schedule over stages.
        dual_step: learning rate of the maximiser; None is η_s.
        local_optimiser: optimiser of both players' local steps, of `fs.optimisers`; None is SGD, as in the box.
        proximal: γ, weight of the proximal term that ties the iterates to the centre of the stage.
        stage_rounds: R_s = T_s / I_s, rounds of a stage, a number or a schedule; 50 if neither length is given.
        stage_steps: T_s, local steps of a stage, a number or a schedule, in place of `stage_rounds`.
        weighting: "uniform" weights clients by 1 / K, as in the box; "size" by n_k / n, which gives the mean over all
            rows.
        output: "last" starts the next stage at the last iterate, "average" at the mean of the iterates, as in the box,
            "random" at a random round's.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> auc = fs.MinimaxAuc(model=fs.models.mlp(30, [16], 1), positive_share=0.1)
        >>> fs.CodaPlus(problem=auc, primal_step=fs.schedules.Geometric(0.1, 1 / 3), stage_steps=400).local_steps
        8

    **Deviations from the paper**: `output="average"` is the box's, the mean over steps and clients; "last" is what the
    published code does and the default; "random" is a random round. v and α are projected where the problem has
    projections. A cohort may be drawn, where the paper's clients all take part. The dual may have a step of its own.
    Clients may count by their rows, as pooled AUC does. With a `local_optimiser` the gradients of both players become
    its directions, from a fresh state in every round.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None
    local_steps: int | Schedule = 8  # I_s
    batch_size: int = 32
    primal_step: Step = Geometric(0.1, 1 / 3)  # η_s
    dual_step: Step | None = None
    local_optimiser: LocalOptimiser | None = None
    proximal: float = 2e-3  # γ
    stage_rounds: int | Schedule | None = None  # R_s = T_s / I_s
    stage_steps: int | Schedule | None = None  # T_s
    weighting: str = "uniform"  # 1 / K
    output: str = "last"

    secret_cohorts = True  # drawn afresh every round, and no message shows who is in one

    def __post_init__(self) -> None:
        stages.check(self)
        check_local_optimiser(self.local_optimiser)

    def start(self, clients: Clients) -> StageState:
        """(v_0, α_0)."""
        return stages.start(self, clients)

    def round(self, server: StageState, clients: Clients, rng: np.random.Generator) -> StageState:
        """Lines 2-9 of Algorithm 2, I_s times; the last round of a stage begins the next one (Algorithm 1)."""
        cohort, sent = stages.begin(self, server, clients, rng)
        weights = stages.client_weights(self, clients, cohort)
        _, local = clients.ask(cohort, self.dsg, sent, weights=weights)  # lines 6-8
        now = replace(server, x=local.x, y=local.y, kept_x=local.path_x, kept_y=local.path_y)
        return stages.finish_round(self, server, now, rng)

    @task(releases=stages.released)
    def dsg(self, own: None, sent: Start, site: Site) -> tuple[None, Local]:
        """Lines 1-5 of Algorithm 2, as the documentation counts them; x is v and y is α."""
        F, γ, η, η_α = self.problem, self.proximal, sent.primal_step, sent.dual_step
        v = site.broadcast(sent.x).clone(memory_format=torch.contiguous_format)  # line 1; the steps write into it
        α, v_0 = site.broadcast(sent.y), sent.centre  # line 1
        pull = η * (γ * v_0)
        mean_v, mean_α = Running(), Running()
        optimiser, moments = own_optimiser(self.local_optimiser), (BLANK, BLANK)
        for t in range(sent.steps):  # line 2
            z = site.minibatch(t, self.batch_size)  # line 3
            if optimiser is None:
                ascent = F.descend_(v, α, z, η, keep=1 - η * γ)  # line 4: v ← v - η (∇_v F_k(v, α; z) + γ v)
                v = F.write_statistics_(F.project_x(v.add_(pull)), ascent.statistics)  # line 4: ... + η γ v_0
                α = F.project_y(α + η_α * ascent.y)  # line 5: α ← α + η ∇_α F_k(v, α; z), at the old v
            else:
                (v, α), moments = self._optimised(optimiser, moments, v, α, z, sent)
            if self.output == "average":
                mean_v.add(v)
                mean_α.add(α)
        if self.output != "average":
            return None, Local(v, α)
        return None, Local(v, α, mean_v.mean, mean_α.mean)

    def _optimised(
        self, optimiser: LocalOptimiser, moments: tuple[Moments, Moments], v: Tensor, α: Tensor, z: Batch, sent: Start
    ) -> tuple[Pair, tuple[Moments, Moments]]:
        """Lines 4-5 with an optimiser's directions of the same gradients, that of the proximal term included."""
        F, g = self.problem, self.problem.gradients(v, α, z)
        of_v, dv = optimiser.direction(moments[0], g.x + self.proximal * (v - sent.centre), v)
        of_α, dα = optimiser.direction(moments[1], g.y)
        v = F.write_statistics_(F.project_x(v - sent.primal_step * dv), g.statistics)
        return (v, F.project_y(α + sent.dual_step * dα)), (of_v, of_α)

    def model(self, server: StageState) -> Tensor:
        """v, as `output` says."""
        return stages.returned(server)[0]

    def dual(self, server: StageState) -> Tensor:
        """α that goes with it."""
        return stages.returned(server)[1]

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """One a round."""
        return stages.planned(self, rounds, clients)

    def iterations(self, server: StageState) -> int:
        """Local steps so far."""
        return server.steps


@dataclass(frozen=True, kw_only=True)
class Coda(CodaPlus):
    """CODA (Guo et al. 2020): CODA+ whose dual is recomputed from the primal at the start of every later stage.

    The problem must know its best dual in closed form, such that the mean of the clients' best duals is the best for
    their mean, as in min-max AUC.

    Args:
        problem: the problem to solve.
        sampled_clients: clients sampled in each round; None samples all, as in the box.
        local_steps: I_s, local steps of a client in each round, a number or a schedule over stages.
        batch_size: rows of a minibatch.
        primal_step: η_s, learning rate of both players, a number or a schedule over stages.
        dual_step: learning rate of the maximiser; None is η_s.
        local_optimiser: optimiser of both players' local steps, of `fs.optimisers`; None is SGD, as in the box.
        proximal: γ, weight of the proximal term that ties the iterates to the centre of the stage.
        stage_rounds: R_s = T_s / I_s, rounds of a stage, a number or a schedule; 50 if neither length is given.
        stage_steps: T_s, local steps of a stage, a number or a schedule, in place of `stage_rounds`.
        weighting: "uniform" weights clients by 1 / K, as in the box; "size" by n_k / n, which gives the mean over all
            rows.
        output: "last" starts the next stage at the last iterate, "average" at the mean of the iterates, as in the box,
            "random" at a random round's.
        dual_batch: rows of each client that the best dual is computed from; None is all.

    **Deviations from the paper**: as CODA+. `dual_batch` rows are drawn at each client; by default all of them count.
    """

    dual_batch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.problem, HasBestDual) or self.problem.best_response is None:
            name = type(self.problem).__name__
            raise BadInput("problem", name, "has no best dual in closed form, which CODA needs; use CODA+")
        if self.dual_batch is not None:
            whole("dual_batch", self.dual_batch, most=MOST_ROWS)

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """One a round, and the best dual of all clients at the start of every later stage."""
        later = len(list(stages.stages_of(self, rounds))) - 1
        duals = PlannedExchange(later, Counter({Release(self.dual_batch, 1): later}), clients)
        return [*super().planned_exchanges(rounds, clients), *([duals] if later > 0 else [])]

    def round(self, server: StageState, clients: Clients, rng: np.random.Generator) -> StageState:
        """CODA+'s round; at the start of a later stage the dual comes first."""
        if server.rounds == 0 and server.stage > 0:
            everyone = np.arange(clients.count)
            weights = stages.client_weights(self, clients, everyone)
            _, best = clients.ask(everyone, self.best_dual, Probe(server.x), weights=weights)
            server = replace(server, y=self.problem.project_y(best.y))
        return super().round(server, clients, rng)

    @task(releases=lambda coda, sent: Counter({Release(coda.dual_batch, 1): 1}))
    def best_dual(self, own: None, sent: Probe, site: Site) -> tuple[None, BestDual]:
        """The best α for a large batch."""
        rows = site.everything() if self.dual_batch is None else site.minibatch(0, self.dual_batch)
        assert isinstance(self.problem, HasBestDual)
        return None, BestDual(self.problem.best_dual(site.broadcast(sent.x), rows))

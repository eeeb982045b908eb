"""CODA+ (and with one local step NPA) and CODA: stages of local descent and ascent (Algorithms 1 and 2).

Stage s minimises and maximises `f(v, α) + (γ/2) |v - v_0|²`, where v_0 is the start of the stage. It has R_s rounds of
I_s steps of size η_s; its result is the start of the next stage (also CODASCA's; Algorithms 1 and 3 of Yuan et al.
2021). v is called x here and α is called y, as in every min-max problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Annotated, Protocol

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_steps import MOST_ROWS, MOST_STEPS, check_problem, cohort_size, draw_cohort
from fedsaddle.arguments import choice, number, whole
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged, Holds, Parameters, UpdateOf
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, step_count, task
from fedsaddle.numerics.optimisers import BLANK, LocalOptimiser, Moments, check_local_optimiser, own_optimiser
from fedsaddle.numerics.schedules import Geometric, Schedule, Step, Warmup, at, check_step, staged_at
from fedsaddle.numerics.tensors import Running
from fedsaddle.problems.protocols import HasBestDual, MinimaxProblem, Pair

STAGE_ROUNDS = 50  # R_s, unless it is given


@dataclass(frozen=True)
class StageState:
    """The server's state."""

    x: Tensor  # v_r
    y: Tensor  # α_r
    centre: Tensor  # v_0 of this stage
    stage: int = 0  # s - 1
    rounds: int = 0  # r: rounds of this stage so far
    steps: int = 0  # local steps of all stages so far
    kept_x: Tensor | None = None  # what this stage would return now, if that is not the last iterate
    kept_y: Tensor | None = None
    cx: Tensor | float = 0.0  # c_v and c_α of CODASCA; 0 where a stage begins
    cy: Tensor | float = 0.0
    mx: Tensor | None = None  # CODASCA's momentum: the mean direction of the last round of this stage; None: 0
    my: Tensor | None = None


@dataclass(frozen=True)
class Start:
    """Server to client: where to start, the stage's centre and steps, and CODASCA's variates."""

    x: Parameters
    y: Annotated[Tensor, Holds.OTHER]
    centre: Tensor
    primal_step: float
    dual_step: float
    steps: int  # I_s
    stage: int
    cx: Tensor | float = 0.0
    cy: Tensor | float = 0.0


class Hyperparameters(Protocol):
    """Those of every algorithm with stages."""

    @property
    def problem(self) -> MinimaxProblem: ...  # noqa: D102
    @property
    def sampled_clients(self) -> int | None: ...  # noqa: D102
    @property
    def local_steps(self) -> int | Schedule: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def primal_step(self) -> Step: ...  # noqa: D102
    @property
    def dual_step(self) -> Step | None: ...  # noqa: D102
    @property
    def proximal(self) -> float: ...  # noqa: D102
    @property
    def stage_rounds(self) -> int | Schedule | None: ...  # noqa: D102
    @property
    def stage_steps(self) -> int | Schedule | None: ...  # noqa: D102
    @property
    def weighting(self) -> str: ...  # noqa: D102
    @property
    def output(self) -> str: ...  # noqa: D102


def check(algorithm: Hyperparameters) -> None:
    """Validate the hyperparameters."""
    check_problem(algorithm, MinimaxProblem)
    whole("batch_size", algorithm.batch_size, most=MOST_ROWS)
    if algorithm.sampled_clients is not None:
        whole("sampled_clients", algorithm.sampled_clients)
    _check_length("local_steps", algorithm.local_steps)
    if algorithm.stage_rounds is not None:
        _check_length("stage_rounds", algorithm.stage_rounds)
    if algorithm.stage_steps is not None:
        _check_length("stage_steps", algorithm.stage_steps)
    if algorithm.stage_rounds is not None and algorithm.stage_steps is not None:
        raise BadInput("stage_steps", algorithm.stage_steps, "stage_rounds is given too; a stage has one length")
    check_step("primal_step", algorithm.primal_step)
    if algorithm.dual_step is not None:
        check_step("dual_step", algorithm.dual_step)
    number("proximal", algorithm.proximal, least=0)
    choice("weighting", algorithm.weighting, ("uniform", "size"))
    choice("output", algorithm.output, ("last", "average", "random"))


def _check_length(key: str, value: object) -> None:
    """A whole number, or a schedule over stages."""
    if isinstance(value, type) or not isinstance(value, Schedule):
        whole(key, value, most=MOST_STEPS)


def start(algorithm: Hyperparameters, clients: Clients) -> StageState:
    """(v_0, α_0)."""
    cohort_size(algorithm.sampled_clients, clients)
    x, y = algorithm.problem.initial()
    return StageState(x, y, x)  # Algorithms 1 and 3: line 1


def window(algorithm: Hyperparameters, stage: int) -> int:
    """I_s."""
    return _length("local_steps", algorithm.local_steps, stage)


def stage_rounds(algorithm: Hyperparameters, stage: int) -> int:
    """R_s: given, or as many as the stage's T_0 steps need."""
    if algorithm.stage_steps is not None:
        return ceil(_length("stage_steps", algorithm.stage_steps, stage) / window(algorithm, stage))
    return STAGE_ROUNDS if algorithm.stage_rounds is None else _length("stage_rounds", algorithm.stage_rounds, stage)


def released(algorithm: Hyperparameters, sent: Start) -> Releases:
    """What a client releases by the steps that it is asked for: the gradients of both players."""
    return Counter({Release(algorithm.batch_size, 2): step_count(0, sent.steps)})


def stages_of(algorithm: Hyperparameters, rounds: int) -> Iterator[tuple[int, int]]:
    """The stages that begin within `rounds` rounds, and how many of these each has."""
    stage = 0
    while rounds > 0:
        some = min(rounds, stage_rounds(algorithm, stage))
        yield stage, some
        stage, rounds = stage + 1, rounds - some


def planned(algorithm: Hyperparameters, rounds: int, clients: int) -> list[PlannedExchange]:
    """One exchange a round, of as many steps as its stage has."""
    steps = sum(some * window(algorithm, stage) for stage, some in stages_of(algorithm, rounds))
    m = clients if algorithm.sampled_clients is None else algorithm.sampled_clients
    return [PlannedExchange(rounds, Counter({Release(algorithm.batch_size, 2): steps}), m)]


def rounds_so_far(algorithm: Hyperparameters, server: StageState) -> int:
    """Rounds of all stages, which a warm-up counts."""
    return sum(stage_rounds(algorithm, s) for s in range(server.stage)) + server.rounds


def _length(key: str, length: int | Schedule, stage: int) -> int:
    """A length in stage `stage`, rounded up; a schedule may grow too far."""
    steps = at(length, stage)
    if not 0 < steps <= MOST_STEPS:
        raise BadInput(key, steps, f"is its value in stage {stage + 1}; must be above 0 and at most {MOST_STEPS:,}")
    return ceil(steps)


def begin(
    algorithm: Hyperparameters, server: StageState, clients: Clients, rng: np.random.Generator
) -> tuple[Ints, Start]:
    """The cohort, and what it is sent."""
    s, m = server.stage, cohort_size(algorithm.sampled_clients, clients)
    cohort = draw_cohort(rng, clients.count, m)
    warm = isinstance(algorithm.primal_step, Warmup) or isinstance(algorithm.dual_step, Warmup)
    r = rounds_so_far(algorithm, server) if warm else 0
    η = staged_at(algorithm.primal_step, s, r)
    η_dual = η if algorithm.dual_step is None else staged_at(algorithm.dual_step, s, r)
    sent = Start(server.x, server.y, server.centre, η, η_dual, window(algorithm, s), s, server.cx, server.cy)
    return cohort, sent


def client_weights(algorithm: Hyperparameters, clients: Clients, asked: Ints) -> Ints | None:
    """The weight of each client: n_k, or None if all count alike."""
    return clients.sizes[asked] if algorithm.weighting == "size" else None


def finish_round(
    algorithm: Hyperparameters, server: StageState, now: StageState, rng: np.random.Generator
) -> StageState:
    """Note what the stage would return after this round; at its end that starts the next stage."""
    r, s = server.rounds, server.stage
    now = replace(now, centre=server.centre, stage=s, rounds=r + 1, steps=server.steps + window(algorithm, s))
    if algorithm.output == "random":  # a uniformly random round of those so far
        keep = rng.random() < 1 / (r + 1)
        pair = (now.x, now.y) if keep else (server.kept_x, server.kept_y)
        now = replace(now, kept_x=pair[0], kept_y=pair[1])
    elif algorithm.output == "average":
        kept_x = Running.over(server.kept_x, now.kept_x, r)
        now = replace(now, kept_x=kept_x, kept_y=Running.over(server.kept_y, now.kept_y, r))
    if r + 1 < stage_rounds(algorithm, s):
        return now
    x, y = returned(now)  # Algorithm 2: line 11; 4: line 15
    return StageState(x, y, x, s + 1, 0, now.steps)  # Algorithms 1 and 3: line 3


def returned(server: StageState) -> Pair:
    """What the stage would return now."""
    if server.kept_x is None or server.kept_y is None:
        return server.x, server.y
    return server.kept_x, server.kept_y


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
        check(self)
        check_local_optimiser(self.local_optimiser)

    def start(self, clients: Clients) -> StageState:
        """(v_0, α_0)."""
        return start(self, clients)

    def round(self, server: StageState, clients: Clients, rng: np.random.Generator) -> StageState:
        """Lines 2-9 of Algorithm 2, I_s times; the last round of a stage begins the next one (Algorithm 1)."""
        cohort, sent = begin(self, server, clients, rng)
        weights = client_weights(self, clients, cohort)
        _, local = clients.ask(cohort, self.dsg, sent, weights=weights)  # lines 6-8
        now = replace(server, x=local.x, y=local.y, kept_x=local.path_x, kept_y=local.path_y)
        return finish_round(self, server, now, rng)

    @task(releases=released)
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
        return returned(server)[0]

    def dual(self, server: StageState) -> Tensor:
        """α that goes with it."""
        return returned(server)[1]

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """One a round."""
        return planned(self, rounds, clients)

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
        later = len(list(stages_of(self, rounds))) - 1
        duals = PlannedExchange(later, Counter({Release(self.dual_batch, 1): later}), clients)
        return [*super().planned_exchanges(rounds, clients), *([duals] if later > 0 else [])]

    def round(self, server: StageState, clients: Clients, rng: np.random.Generator) -> StageState:
        """CODA+'s round; at the start of a later stage the dual comes first."""
        if server.rounds == 0 and server.stage > 0:
            everyone = np.arange(clients.count)
            weights = client_weights(self, clients, everyone)
            _, best = clients.ask(everyone, self.best_dual, Probe(server.x), weights=weights)
            server = replace(server, y=self.problem.project_y(best.y))
        return super().round(server, clients, rng)

    @task(releases=lambda coda, sent: Counter({Release(coda.dual_batch, 1): 1}))
    def best_dual(self, own: None, sent: Probe, site: Site) -> tuple[None, BestDual]:
        """The best α for a large batch."""
        rows = site.everything() if self.dual_batch is None else site.minibatch(0, self.dual_batch)
        assert isinstance(self.problem, HasBestDual)
        return None, BestDual(self.problem.best_dual(site.broadcast(sent.x), rows))

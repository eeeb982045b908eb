"""What CODA+ and CODASCA share: one proximal subproblem after the other (Algorithms 1 and 3 of Yuan et al. 2021).

Stage s minimises and maximises `f(v, α) + (γ/2) |v - v_0|²`, where v_0 is where the stage began. It has R_s rounds of
I_s steps of size η_s; what it returns starts the next stage. v is called x here and α is called y, as in every min-max
problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Protocol

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.hyperparameters import (
    MOST_ROWS,
    MOST_STEPS,
    check_problem,
    cohort_size,
    draw_cohort,
)
from fedsaddle.arguments import choice, number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Ints
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, step_count
from fedsaddle.numerics.averages import Running
from fedsaddle.numerics.schedules import Schedule, Step, Warmup, at, check_step, staged_at
from fedsaddle.problems.protocols import MinimaxProblem, Pair

STAGE_ROUNDS = 50  # R_s, unless it is given


@dataclass(frozen=True)
class StageState:
    """The server's memory."""

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

    x: Tensor
    y: Tensor
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


def check(how: Hyperparameters) -> None:
    """Validate the hyper-parameters."""
    check_problem(how, MinimaxProblem)
    whole("batch_size", how.batch_size, most=MOST_ROWS)
    if how.sampled_clients is not None:
        whole("sampled_clients", how.sampled_clients)
    lengths = (("local_steps", how.local_steps), ("stage_rounds", how.stage_rounds), ("stage_steps", how.stage_steps))
    for key, value in lengths:
        if key == "local_steps" or value is not None:
            _check_length(key, value)
    if how.stage_rounds is not None and how.stage_steps is not None:
        raise BadInput("stage_steps", how.stage_steps, "stage_rounds is given too; a stage has one length")
    check_step("primal_step", how.primal_step)
    if how.dual_step is not None:
        check_step("dual_step", how.dual_step)
    number("proximal", how.proximal, least=0)
    choice("weighting", how.weighting, ("uniform", "size"))
    choice("output", how.output, ("last", "average", "random"))


def _check_length(key: str, value: object) -> None:
    """A whole number, or a schedule over stages."""
    if isinstance(value, type) or not isinstance(value, Schedule):
        whole(key, value, most=MOST_STEPS)


def start(how: Hyperparameters, clients: Clients) -> StageState:
    """(v_0, α_0)."""
    cohort_size(how.sampled_clients, clients)
    x, y = how.problem.initial()
    return StageState(x, y, x)  # Algorithms 1 and 3: line 1


def window(how: Hyperparameters, stage: int) -> int:
    """I_s."""
    return _length("local_steps", how.local_steps, stage)


def stage_rounds(how: Hyperparameters, stage: int) -> int:
    """R_s: given, or as many as the stage's T_0 steps need."""
    if how.stage_steps is not None:
        return ceil(_length("stage_steps", how.stage_steps, stage) / window(how, stage))
    return STAGE_ROUNDS if how.stage_rounds is None else _length("stage_rounds", how.stage_rounds, stage)


def released(how: Hyperparameters, sent: Start) -> Releases:
    """What a client releases by the steps that it is asked for: the gradients of both players."""
    return Counter({Release(how.batch_size, 2): step_count(0, sent.steps)})


def stages_of(how: Hyperparameters, rounds: int) -> Iterator[tuple[int, int]]:
    """The stages that begin within so many rounds, and their rounds within them."""
    stage = 0
    while rounds > 0:
        some = min(rounds, stage_rounds(how, stage))
        yield stage, some
        stage, rounds = stage + 1, rounds - some


def planned(how: Hyperparameters, rounds: int, clients: int) -> list[PlannedExchange]:
    """One exchange a round, of as many steps as its stage has."""
    steps = sum(some * window(how, stage) for stage, some in stages_of(how, rounds))
    m = clients if how.sampled_clients is None else how.sampled_clients
    return [PlannedExchange(rounds, Counter({Release(how.batch_size, 2): steps}), m)]


def rounds_so_far(how: Hyperparameters, server: StageState) -> int:
    """Rounds of all stages, which a warm-up counts."""
    return sum(stage_rounds(how, s) for s in range(server.stage)) + server.rounds


def _length(key: str, length: int | Schedule, stage: int) -> int:
    """A length in stage `stage`, rounded up; a schedule may grow too far."""
    found = at(length, stage)
    if not 0 < found <= MOST_STEPS:
        raise BadInput(key, found, f"is its value in stage {stage + 1}; must be above 0 and at most {MOST_STEPS:,}")
    return ceil(found)


def begin(how: Hyperparameters, server: StageState, clients: Clients, rng: np.random.Generator) -> tuple[Ints, Start]:
    """The cohort, and what it is sent."""
    s, m = server.stage, cohort_size(how.sampled_clients, clients)
    cohort = draw_cohort(rng, clients.count, m)
    r = rounds_so_far(how, server) if isinstance(how.primal_step, Warmup) or isinstance(how.dual_step, Warmup) else 0
    η = staged_at(how.primal_step, s, r)
    η_dual = η if how.dual_step is None else staged_at(how.dual_step, s, r)
    sent = Start(server.x, server.y, server.centre, η, η_dual, window(how, s), s, server.cx, server.cy)
    return cohort, sent


def client_weights(how: Hyperparameters, clients: Clients, asked: Ints) -> Ints | None:
    """The weight of each client: n_k, or None if all count alike."""
    return clients.sizes[asked] if how.weighting == "size" else None


def finish_round(how: Hyperparameters, server: StageState, now: StageState, rng: np.random.Generator) -> StageState:
    """Note what the stage would return after this round; at its end that starts the next stage."""
    r, s = server.rounds, server.stage
    now = replace(now, centre=server.centre, stage=s, rounds=r + 1, steps=server.steps + window(how, s))
    if how.output == "random":  # a uniformly random round of those so far
        keep = rng.random() < 1 / (r + 1)
        kept = (now.x, now.y) if keep else (server.kept_x, server.kept_y)
        now = replace(now, kept_x=kept[0], kept_y=kept[1])
    elif how.output == "average":
        kept_x = Running.over(server.kept_x, now.kept_x, r)
        now = replace(now, kept_x=kept_x, kept_y=Running.over(server.kept_y, now.kept_y, r))
    if r + 1 < stage_rounds(how, s):
        return now
    x, y = returned(now)  # Algorithm 2: line 11; 4: line 15
    return StageState(x, y, x, s + 1, 0, now.steps)  # Algorithms 1 and 3: line 3


def returned(server: StageState) -> Pair:
    """What the stage would return now."""
    if server.kept_x is None or server.kept_y is None:
        return server.x, server.y
    return server.kept_x, server.kept_y

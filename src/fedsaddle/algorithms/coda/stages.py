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
from typing import Annotated, Protocol

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.local_steps import MOST_ROWS, MOST_STEPS, check_problem, cohort_size, draw_cohort
from fedsaddle.arguments import choice, number, whole
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients
from fedsaddle.federation.records import Holds, Parameters
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, step_count
from fedsaddle.numerics.schedules import Schedule, Step, Warmup, at, check_step, staged_at
from fedsaddle.numerics.tensors import Running
from fedsaddle.problems.protocols import MinimaxProblem, Pair

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
    """The stages that begin within so many rounds, and their rounds within them."""
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
    found = at(length, stage)
    if not 0 < found <= MOST_STEPS:
        raise BadInput(key, found, f"is its value in stage {stage + 1}; must be above 0 and at most {MOST_STEPS:,}")
    return ceil(found)


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
        kept = (now.x, now.y) if keep else (server.kept_x, server.kept_y)
        now = replace(now, kept_x=kept[0], kept_y=kept[1])
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

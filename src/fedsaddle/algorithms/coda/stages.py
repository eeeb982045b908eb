"""What CODA+ and CODASCA share: one proximal subproblem after the other (Algorithms 1 and 3 of Yuan et al. 2021).

Stage s minimises and maximises `f(v, α) + (γ/2) |v - v_0|²`, where v_0 is where the stage began. It has R_s rounds of
I_s steps of size η_s; what it returns starts the next stage. v is called x here and α is called y, as in every min-max
problem.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_sgd import cohort_size, one_of
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Ints, Site
from fedsaddle.numerics.averages import Running
from fedsaddle.numerics.projections import Everywhere
from fedsaddle.numerics.schedules import at, check_step
from fedsaddle.problems.minimax import descended

STAGE_ROUNDS = 50  # unless something else is said


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


@dataclass(frozen=True)
class Walk:
    """Where I steps led, and what the projections added to them."""

    x: Tensor
    y: Tensor
    turned_x: Tensor | None  # None: nothing
    turned_y: Tensor | None
    path_x: Tensor | None
    path_y: Tensor | None


def check(how: Any) -> None:
    """Refuse hyper-parameters that cannot be."""
    if how.batch_size < 1:
        raise BadInput("batch_size", how.batch_size, "must be at least 1")
    for key in ("local_steps", "stage_rounds", "stage_steps", "sampled_clients"):
        value = getattr(how, key)
        if isinstance(value, int | float) and value < 1:
            raise BadInput(key, value, "must be at least 1")
    if how.stage_rounds is not None and how.stage_steps is not None:
        raise BadInput("stage_steps", how.stage_steps, "stage_rounds is given too; a stage has one length")
    check_step("primal_step", how.primal_step)
    if how.dual_step is not None:
        check_step("dual_step", how.dual_step)
    if not 0 <= how.proximal < float("inf"):
        raise BadInput("proximal", how.proximal, "the weight of the proximal term is a finite number of at least 0")
    one_of("weighting", how.weighting, ("uniform", "size"))
    one_of("output", how.output, ("last", "average", "random"))


def start(how: Any, clients: Clients) -> StageState:
    """(v_0, α_0)."""
    cohort_size(how.sampled_clients, clients)
    x, y = how.problem.initial()
    return StageState(x, y, x)


def window(how: Any, stage: int) -> int:
    """I_s."""
    return ceil(at(how.local_steps, stage))


def stage_rounds(how: Any, stage: int) -> int:
    """R_s: given, or as many as the stage's T_0 steps need."""
    if how.stage_steps is not None:
        return ceil(at(how.stage_steps, stage) / window(how, stage))
    return STAGE_ROUNDS if how.stage_rounds is None else ceil(at(how.stage_rounds, stage))


def begin(how: Any, server: StageState, clients: Clients, rng: np.random.Generator) -> tuple[Ints, Start]:
    """Who is asked, and what they are told."""
    s, m = server.stage, cohort_size(how.sampled_clients, clients)
    cohort = rng.choice(clients.count, m, replace=False) if m < clients.count else np.arange(m)
    η = at(how.primal_step, s)
    η_dual = η if how.dual_step is None else at(how.dual_step, s)
    sent = Start(server.x, server.y, server.centre, η, η_dual, window(how, s), s, server.cx, server.cy)
    return cohort, sent


def weights(how: Any, clients: Clients, asked: Ints) -> Ints | None:
    """What each of them counts: n_k, or None if all count alike."""
    return clients.sizes[asked] if how.weighting == "size" else None


def part(how: Any, clients: Clients, answered: Ints) -> float:
    """The share of those who answered in the whole."""
    n = weights(how, clients, answered)
    return len(answered) / clients.count if n is None else float(n.sum() / clients.sizes.sum())


def walk(
    how: Any, sent: Start, site: Site, cx: Tensor | float = 0.0, cy: Tensor | float = 0.0, path: bool = False
) -> Walk:
    """I steps along `∇_x F + γ (x - v_0) - c_x^k + c_x` down and `∇_y F - c_y^k + c_y` up, projected."""
    γ, η, η_dual = how.proximal, sent.primal_step, sent.dual_step
    x, keep = site.each(sent.x).clone(memory_format=torch.contiguous_format), 1 - η * γ  # the steps write into x
    y = site.each(sent.y)
    push_x = η * (γ * sent.centre - sent.cx)
    push_x = push_x if isinstance(cx, float) else torch.add(push_x, cx, alpha=η)
    lift_y = sent.cy - cy
    turned_x, turned_y = _unturned(how.problem.project_x, x), _unturned(how.problem.project_y, y)
    mean_x, mean_y = Running(), Running()
    for t in range(sent.steps):
        gy = descended(how.problem, x, y, site.minibatch(t, how.batch_size), η, keep)
        free_x = x.add_(push_x)
        free_y = y + η_dual * (gy + lift_y)
        x, y = how.problem.project_x(free_x), how.problem.project_y(free_y)
        if turned_x is not None:
            turned_x += x - free_x
        if turned_y is not None:
            turned_y += y - free_y
        if path:
            mean_x.add(x)
            mean_y.add(y)
    paths = (mean_x.mean, mean_y.mean) if path else (None, None)
    return Walk(x, y, turned_x, turned_y, *paths)


def _unturned(project: Any, like: Tensor) -> Tensor | None:
    return None if isinstance(project, Everywhere) else torch.zeros_like(like)


def mean_slope(before: Tensor, after: Tensor, turned: Tensor | None, length: float, less: Tensor | float) -> Tensor:
    """The mean of the corrected directions of a walk from `before`, less a vector: `(before - after) / length - less`.

    What projections added is taken out. In one pass over the clients' vectors: a round of CODASCA should cost hardly
    more than one of CODA+.
    """
    slope = torch.add(before / length - less, after, alpha=-1 / length)
    return slope if turned is None else slope.add_(turned, alpha=1 / length)


def ended(how: Any, server: StageState, now: StageState, rng: np.random.Generator) -> StageState:
    """After a round: note what the stage would return; at its end let that start the next stage."""
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
    x, y = returned(now)
    return StageState(x, y, x, s + 1, 0, now.steps)


def returned(server: StageState) -> tuple[Tensor, Tensor]:
    """What the stage would return now."""
    if server.kept_x is None or server.kept_y is None:
        return server.x, server.y
    return server.kept_x, server.kept_y

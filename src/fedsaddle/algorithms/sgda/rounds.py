"""The server's half that the Local SGDA family shares: τ iterations at the clients, an average, and snapshots of x.

A round is τ iterations. Where a snapshot of x falls inside it, the round is cut there: the clients stop, the server
averages x for the snapshot alone, and the clients go on from where they stood, which they remember.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_sgd import cohort_size, one_of
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged
from fedsaddle.numerics.averages import Running
from fedsaddle.numerics.schedules import at, check_step
from fedsaddle.problems.minimax import MinimaxProblem, Pair, gradient_x, gradient_y


@dataclass(frozen=True)
class SgdaState:
    """The server's memory."""

    x: Tensor  # x̄
    y: Tensor  # ȳ
    rounds: int = 0
    anchor: Tensor | None = None  # x̃_k, the snapshot of SGDA+
    dx: Tensor | None = None  # averaged momentum
    dy: Tensor | None = None
    kept: Tensor | None = None  # the average or the random iterate so far


@dataclass(frozen=True)
class Start:
    """Server to client: where to play from, and which iterations of the round."""

    x: Tensor
    y: Tensor
    primal_step: float
    dual_step: float
    first: int  # iterations first .. last - 1 of the round
    last: int
    pick: int = 0  # the iterate that is wanted, 1 .. τ; 0: none
    anchor: Tensor | None = None
    dx: Tensor | None = None
    dy: Tensor | None = None


@dataclass(frozen=True)
class Local:
    """Client to server."""

    x: Averaged
    y: Averaged
    dx: Averaged | None = None
    dy: Averaged | None = None
    picked: Averaged | None = None
    path: Averaged | None = None  # sum of the iterates, for the average


@dataclass(frozen=True)
class Playing:
    """A client's memory: where it stands in the middle of a round, and momentum that it keeps."""

    x: Tensor
    y: Tensor
    dx: Tensor
    dy: Tensor
    started: Tensor  # (C,): 1 once the momentum holds a gradient


def check(how: Any) -> None:
    """Refuse hyper-parameters that cannot be."""
    for key in ("local_steps", "batch_size"):
        if getattr(how, key) < 1:
            raise BadInput(key, getattr(how, key), "must be at least 1")
    check_step("primal_step", how.primal_step)
    check_step("dual_step", how.dual_step)
    one_of("output", how.output, ("last", "random", "average"))
    if how.snapshot_every is not None and how.snapshot_every < 1:
        raise BadInput("snapshot_every", how.snapshot_every, "must be at least 1 iteration")
    if how.sampled_clients is not None and how.sampled_clients < 1:
        raise BadInput("sampled_clients", how.sampled_clients, "ask at least one client a round")


def start(how: Any, clients: Clients) -> SgdaState:
    """x_0, y_0, and x_0 as the first snapshot."""
    cohort_size(how.sampled_clients, clients)
    x, y = how.problem.initial()
    return SgdaState(x, y, anchor=x if how.snapshot_every is not None else None)


def blank(how: Any, site: Site) -> Playing:
    """What a client that has not played yet remembers."""
    x, y = (torch.zeros(len(site.clients), *v.shape, dtype=v.dtype) for v in how.problem.initial())
    return Playing(x, y, torch.zeros_like(x), torch.zeros_like(y), x.new_zeros(len(x)))


def cuts_rounds(how: Any) -> bool:
    """Whether snapshots fall inside rounds."""
    return how.snapshot_every is not None and how.snapshot_every % how.local_steps != 0


def cuts(first: int, steps: int, every: int | None) -> Iterator[tuple[int, int]]:
    """The round's iterations in pieces that end where a snapshot falls; `first` iterations went before."""
    begin = 0
    for t in range(1, steps):
        if every is not None and (first + t) % every == 0:
            yield begin, t
            begin = t
    yield begin, steps


def synchronised(how: Any, server: SgdaState, clients: Clients, rng: np.random.Generator) -> SgdaState:
    """One round: all pieces, then the averages."""
    m, τ, r = cohort_size(how.sampled_clients, clients), how.local_steps, server.rounds
    cohort = rng.choice(clients.count, m, replace=False) if m < clients.count else np.arange(m)
    pick = int(rng.integers(1, τ + 1)) if how.output == "random" and rng.random() < 1 / (r + 1) else 0
    η_x, η_y = at(how.primal_step, r), at(how.dual_step, r)
    sent = Start(server.x, server.y, η_x, η_y, 0, τ, pick, server.anchor, server.dx, server.dy)
    kept, total = server.kept, None
    for first, last in cuts(r * τ, τ, how.snapshot_every):
        sent = replace(sent, first=first, last=last)
        cohort, local = clients.ask(cohort, how.play, sent)
        if how.snapshot_every is not None and (r * τ + last) % how.snapshot_every == 0:
            sent = replace(sent, anchor=local.x)
        kept = local.picked if local.picked is not None else kept
        total = local.path if total is None or local.path is None else total + local.path
    if total is not None:
        kept = Running.over(server.kept, total / τ, r)
    return SgdaState(local.x, local.y, r + 1, sent.anchor, local.dx, local.dy, kept)


def gradients(problem: MinimaxProblem, x: Tensor, y: Tensor, ξ: Batch, sent: Start, site: Site) -> Pair:
    """∇_x at (x, y); ∇_y there as well or, with snapshots, at (x̃, y) (line 5 of Algorithm 4)."""
    if sent.anchor is None:
        return problem.gradients(x, y, ξ)
    gy = gradient_y(problem, site.each(sent.anchor), y, ξ)  # first: the latest gradient's statistics are taken over
    return gradient_x(problem, x, y, ξ), gy


class Noted:
    """The iterates that the server wants to see: the picked one and the sum."""

    def __init__(self, how: Any, sent: Start) -> None:
        self.pick, self.average = sent.pick, how.output == "average"
        self.picked: Tensor | None = None
        self.path: Tensor | None = None

    def add(self, t: int, x: Tensor) -> None:
        """Iterate t of the round, 1 .. τ."""
        if t == self.pick:
            self.picked = x.clone()
        if self.average:
            self.path = x.clone() if self.path is None else self.path.add_(x)

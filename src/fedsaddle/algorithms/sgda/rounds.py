"""The server's half of the Local SGDA family: τ iterations at the clients, an average, and snapshots of x.

A round is τ iterations. Where a snapshot of x falls inside it, the round is cut there: the clients stop, the server
averages x for the snapshot alone, and the clients go on from where they stood, which they remember.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Protocol

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_steps import check_local, check_problem, cohort_size, draw_cohort
from fedsaddle.arguments import choice, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site, Task
from fedsaddle.federation.records import Averaged, Holds, Parameters, UpdateOf
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, step_count
from fedsaddle.numerics.schedules import Step, at, check_step
from fedsaddle.numerics.tensors import Running
from fedsaddle.problems.protocols import MinimaxProblem, Pair


@dataclass(frozen=True)
class SgdaState:
    """The server's state."""

    x: Tensor  # x̄
    y: Tensor  # ȳ
    rounds: int = 0
    anchor: Tensor | None = None  # x̃_k, the snapshot of SGDA+
    dx: Tensor | None = None  # averaged momentum
    dy: Tensor | None = None
    kept: Tensor | None = None  # the average or the random iterate so far


@dataclass(frozen=True)
class Start:
    """Server to client: the pair to start from, and which iterations of the round."""

    x: Parameters
    y: Annotated[Tensor, Holds.OTHER]
    primal_step: float  # η_x
    dual_step: float  # η_y
    first: int  # iterations first .. last - 1 of the round
    last: int
    pick: int = 0  # the iterate that is wanted, 1 .. τ; 0: none
    anchor: Parameters | None = None  # x̃_k
    dx: Tensor | None = None
    dy: Tensor | None = None


@dataclass(frozen=True)
class Local:
    """Client to server."""

    x: Annotated[Averaged, UpdateOf("x")]
    y: Annotated[Averaged, UpdateOf("y")]
    dx: Averaged | None = None
    dy: Averaged | None = None
    picked: Averaged | None = None
    path: Averaged | None = None  # sum of the iterates, for the average


@dataclass(frozen=True)
class MidRound:
    """A client's state: where it stands in the middle of a round."""

    x: Parameters
    y: Annotated[Tensor, Holds.OTHER]


class Hyperparameters(Protocol):
    """Those of every algorithm of the family."""

    @property
    def problem(self) -> MinimaxProblem: ...  # noqa: D102
    @property
    def sampled_clients(self) -> int | None: ...  # noqa: D102
    @property
    def local_steps(self) -> int: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def primal_step(self) -> Step: ...  # noqa: D102
    @property
    def dual_step(self) -> Step: ...  # noqa: D102
    @property
    def snapshot_every(self) -> int | None: ...  # noqa: D102
    @property
    def output(self) -> str: ...  # noqa: D102


def check(algorithm: Hyperparameters) -> None:
    """Validate the hyperparameters."""
    check_problem(algorithm, MinimaxProblem)
    check_local(algorithm.local_steps, algorithm.batch_size, algorithm.sampled_clients)
    check_step("primal_step", algorithm.primal_step)
    check_step("dual_step", algorithm.dual_step)
    if algorithm.snapshot_every is not None:
        whole("snapshot_every", algorithm.snapshot_every)
    choice("output", algorithm.output, ("last", "random", "average"))


def check_local_layers(algorithm: Hyperparameters) -> None:
    """Sums of iterates and random iterates would show layers that stay at the clients."""
    if algorithm.output != "last":
        raise BadInput("output", algorithm.output, 'would show sums of the layers; with local layers it is "last"')


def start(algorithm: Hyperparameters, clients: Clients) -> SgdaState:
    """x_0, y_0, and x_0 as the first snapshot."""
    cohort_size(algorithm.sampled_clients, clients)
    x, y = algorithm.problem.initial()
    return SgdaState(x, y, anchor=x if algorithm.snapshot_every is not None else None)  # line 1


def synchronised_round(
    algorithm: Hyperparameters, task: Task[Local], server: SgdaState, clients: Clients, rng: np.random.Generator
) -> SgdaState:
    """One round: the clients' iterations in pieces, then the averages."""
    τ, S, r = algorithm.local_steps, algorithm.snapshot_every, server.rounds
    cohort = draw_cohort(rng, clients.count, cohort_size(algorithm.sampled_clients, clients))
    pick = int(rng.integers(1, τ + 1)) if algorithm.output == "random" and rng.random() < 1 / (r + 1) else 0
    η_x, η_y = at(algorithm.primal_step, r), at(algorithm.dual_step, r)
    sent = Start(server.x, server.y, η_x, η_y, 0, τ, pick, server.anchor, server.dx, server.dy)
    kept, total = server.kept, None
    for first, last in pieces(r * τ, τ, S):
        sent = replace(sent, first=first, last=last)
        cohort, local = clients.ask(cohort, task, sent)  # Algorithms 1, 4: lines 7-8; 2, 5: lines 9-10
        if S is not None and (r * τ + last) % S == 0:  # Algorithm 4: line 11; 5: line 14
            sent = replace(sent, anchor=local.x)  # Algorithm 4: lines 12-14; 5: lines 15-17
        kept = local.picked if local.picked is not None else kept
        total = local.path if total is None or local.path is None else total + local.path
    if total is not None:
        kept = Running.over(server.kept, total / τ, r)
    return SgdaState(local.x, local.y, r + 1, sent.anchor, local.dx, local.dy, kept)  # 1, 4: line 9; 2, 5: line 11


def pieces(first: int, steps: int, every: int | None) -> Iterator[tuple[int, int]]:
    """The round's iterations in pieces that end where a snapshot falls; `first` iterations went before."""
    begin = 0
    for t in range(1, steps):
        if every is not None and (first + t) % every == 0:
            yield begin, t
            begin = t
    yield begin, steps


def cuts_rounds(algorithm: Hyperparameters) -> bool:
    """Whether snapshots fall inside rounds."""
    return algorithm.snapshot_every is not None and algorithm.snapshot_every % algorithm.local_steps != 0


def released(algorithm: Hyperparameters, sent: Start) -> Releases:
    """What a client releases by the iterations that it is asked for: the gradients of both players."""
    return Counter({Release(algorithm.batch_size, 2): step_count(sent.first, sent.last)})


def planned(algorithm: Hyperparameters, rounds: int, clients: int, more: int = 0) -> list[PlannedExchange]:
    """The exchanges of so many rounds; `more` minibatches a round beside those of the τ iterations."""
    τ, S = algorithm.local_steps, algorithm.snapshot_every
    times = sum(len(list(pieces(r * τ, τ, S))) for r in range(rounds)) if cuts_rounds(algorithm) else rounds
    m = clients if algorithm.sampled_clients is None else algorithm.sampled_clients
    return [PlannedExchange(times, Counter({Release(algorithm.batch_size, 2): rounds * (τ + more)}), m)]


def blank(algorithm: Hyperparameters, site: Site) -> MidRound:
    """The memory of a client that has not taken part yet."""
    pair, count = algorithm.problem.initial(), len(site.clients)
    x, y = (torch.zeros(count, *v.shape, dtype=v.dtype, device=site.device) for v in pair)
    return MidRound(x, y)


def begin(own: MidRound | None, sent: Start, site: Site) -> Pair:
    """The server's pair or, in the middle of a round, the client's own."""
    if own is None or sent.first == 0:
        return site.broadcast(sent.x), site.broadcast(sent.y)
    return own.x, own.y


class IterateRecorder:
    """The iterates that the server wants to see: the picked one and the sum."""

    def __init__(self, sent: Start, average: bool) -> None:
        self.pick, self.average = sent.pick, average
        self.picked: Tensor | None = None
        self.path: Tensor | None = None

    def add(self, t: int, x: Tensor) -> None:
        """Iterate t of the round, 1 .. τ."""
        if t == self.pick:
            self.picked = x.clone()
        if self.average:
            self.path = x.clone() if self.path is None else self.path.add_(x)

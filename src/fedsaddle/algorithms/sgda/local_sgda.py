"""Local SGDA and Local SGDA+: simultaneous local steps of both players (Algorithms 1 and 4), and their family's rounds.

A round is τ iterations. Where a snapshot of x falls inside it, the round is cut there: the clients stop, the server
averages x for the snapshot alone, and the clients continue from their own iterates, which they remember.
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
from fedsaddle.federation.clients import Clients, Own, Site, Task
from fedsaddle.federation.records import Averaged, Holds, Parameters, UpdateOf
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, step_count, task
from fedsaddle.numerics.optimisers import BLANK, LocalOptimiser, check_local_optimiser, own_optimiser
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
    algorithm: Hyperparameters,
    task: Task[Own, Start, Local],
    server: SgdaState,
    clients: Clients,
    rng: np.random.Generator,
    by_size: bool = False,
) -> SgdaState:
    """One round: the clients' iterations in pieces, then the averages, which may count clients by their rows."""
    τ, S, r = algorithm.local_steps, algorithm.snapshot_every, server.rounds
    cohort = draw_cohort(rng, clients.count, cohort_size(algorithm.sampled_clients, clients))
    pick = int(rng.integers(1, τ + 1)) if algorithm.output == "random" and rng.random() < 1 / (r + 1) else 0
    η_x, η_y = at(algorithm.primal_step, r), at(algorithm.dual_step, r)
    sent = Start(server.x, server.y, η_x, η_y, 0, τ, pick, server.anchor, server.dx, server.dy)
    kept, total = server.kept, None
    for first, last in pieces(r * τ, τ, S):
        sent = replace(sent, first=first, last=last)
        weights = clients.sizes[cohort] if by_size else None
        cohort, local = clients.ask(cohort, task, sent, weights=weights)  # Algorithms 1, 4: lines 7-8; 2, 5: lines 9-10
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
    """The exchanges of `rounds` rounds; `more` minibatches a round beside those of the τ iterations."""
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


NAMED = {
    "Local SGDA": {
        "class": "LocalSgda",
        "about": "min-max by local steps of both",
        "source": "Sharma, Panda, Joshi, Varshney 2022, Alg. 1",
        "kind": "minimax",
    },
    "Local SGDA+": {
        "class": "LocalSgda",
        "about": "ascent at a snapshot of x",
        "source": "Sharma, Panda, Joshi, Varshney 2022, Alg. 4",
        "kind": "minimax",
        "required": {"snapshot_every": "snapshot_every = 25 (the paper takes the square of local_steps)"},
    },
}


@dataclass(frozen=True, kw_only=True)
class LocalSgda:
    """Local SGDA (Sharma, Panda, Joshi, Varshney 2022, Algorithm 1): `min_x max_y (1/n) Σ_i f_i(x, y)`.

    With `snapshot_every` S it is Local SGDA+ (Algorithm 4): the ascent direction is taken at a snapshot of x, the
    average of the clients' x, refreshed every S iterations, whatever τ is; the paper's runs use S = τ².

    Args:
        problem: the problem to solve.
        sampled_clients: clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η_x, learning rate of the minimiser, a number or a schedule.
        dual_step: η_y, learning rate of the maximiser, a number or a schedule.
        local_optimiser: optimiser of both players' local steps, of `fs.optimisers`; None is SGD, as in the box.
        snapshot_every: S, iterations between two snapshots of x; None is Local SGDA without snapshots.
        output: "last" returns the last iterate, "random" that of a random round, as in the box, "average" the mean of
            the local iterates.
        weighting: "uniform" weights clients by 1 / n, as in the box; "size" by their rows, which gives the mean over
            all rows.
        ascent: "local" moves y in every local step, as in the box; "server" keeps y for a round, sums up its steps, and
            projects their mean over clients once.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: x @ x / 2 + batch.x @ x * y - y @ y / 2,
        ...     start_x=torch.ones(3), start_y=torch.zeros(1),
        ... )
        >>> fs.LocalSgda(problem=game, local_steps=5, snapshot_every=25).dual_step
        0.016

    **Deviations from the paper**: x and y are projected after every local step where the problem has projections (the
    simplex of its fair classification); a cohort may be drawn, where the paper's clients all take part; with a
    `local_optimiser` the gradients of both players become its directions, from a fresh state in every exchange. Where
    clients see parts of y only, such as some of the groups, the mean of their projections is not the projection of the
    mean: `ascent="server"` takes the latter.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None
    local_steps: int = 10  # τ
    batch_size: int = 32
    primal_step: Step = 0.02  # η_x
    dual_step: Step = 0.016  # η_y
    local_optimiser: LocalOptimiser | None = None
    snapshot_every: int | None = None  # S
    output: str = "last"
    weighting: str = "uniform"
    ascent: str = "local"

    def __post_init__(self) -> None:
        check(self)
        check_local_optimiser(self.local_optimiser)
        choice("weighting", self.weighting, ("uniform", "size"))
        choice("ascent", self.ascent, ("local", "server"))
        plain = self.snapshot_every is None and own_optimiser(self.local_optimiser) is None
        if self.ascent == "server" and not plain:
            raise BadInput("ascent", "server", "is for plain local steps; leave out snapshot_every and local_optimiser")

    @property
    def secret_cohorts(self) -> bool:
        """Whether every exchange has a fresh cohort; where a snapshot cuts a round, the same clients answer twice."""
        return not cuts_rounds(self)

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """One a round, or more where snapshots cut rounds."""
        return planned(self, rounds, clients)

    def start(self, clients: Clients) -> SgdaState:
        """x_0, y_0, and x_0 as the first snapshot."""
        return start(self, clients)

    def round(self, server: SgdaState, clients: Clients, rng: np.random.Generator) -> SgdaState:
        """τ iterations and the averages (lines 6-9 of Algorithm 1, 6-15 of Algorithm 4)."""
        after = synchronised_round(self, self.local_sgda, server, clients, rng, self.weighting == "size")
        return after if self.ascent == "local" else replace(after, y=self.problem.project_y(after.y[None])[0])

    def fresh(self, site: Site) -> MidRound | None:
        """Clients remember something only where a snapshot cuts rounds in two."""
        return blank(self, site) if cuts_rounds(self) else None

    def check_local_layers(self) -> None:
        """With layers that stay at the clients, `output` is "last"."""
        check_local_layers(self)

    @task(releases=released)
    def local_sgda(self, own: MidRound | None, sent: Start, site: Site) -> tuple[MidRound | None, Local]:
        """Lines 3-5, for the iterations that were asked for."""
        pair = begin(own, sent, site)
        steps = self._algorithm_1 if sent.anchor is None else self._algorithm_4
        if self.ascent == "server":
            steps = self._with_still_y
        if own_optimiser(self.local_optimiser) is not None:
            steps = self._optimised
        seen = IterateRecorder(sent, self.output == "average")
        for t, pair in enumerate(steps(*pair, sent, site), sent.first + 1):  # noqa: B020
            seen.add(t, pair[0])
        x, y = pair
        unfinished = own is not None and sent.last < self.local_steps
        left = MidRound(x, y) if unfinished else None
        return left, Local(x, y, picked=seen.picked, path=seen.path)

    def _algorithm_1(self, x: Tensor, y: Tensor, sent: Start, site: Site) -> Iterator[Pair]:
        f, η_x, η_y = self.problem, sent.primal_step, sent.dual_step
        x = x.clone(memory_format=torch.contiguous_format)  # the steps write into it
        for t in range(sent.first, sent.last):  # line 2
            ξ = site.minibatch(t, self.batch_size)  # line 3
            ascent = f.descend_(x, y, ξ, η_x)  # line 4: x ← x - η_x ∇_x f_i(x, y; ξ)
            x = f.write_statistics_(f.project_x(x), ascent.statistics)
            y = f.project_y(torch.add(y, ascent.y, alpha=η_y))  # line 5: y ← y + η_y ∇_y f_i(x, y; ξ), at the old x
            yield x, y

    def _with_still_y(self, x: Tensor, y: Tensor, sent: Start, site: Site) -> Iterator[Pair]:
        """Algorithm 1 with the y of the round's begin; what comes with x is `y + η_y Σ_t ∇_y f_i(x_t, y; ξ_t)`."""
        f, η_x, η_y = self.problem, sent.primal_step, sent.dual_step
        x, moved = x.clone(memory_format=torch.contiguous_format), y
        for t in range(sent.first, sent.last):
            ascent = f.descend_(x, y, site.minibatch(t, self.batch_size), η_x)
            x = f.write_statistics_(f.project_x(x), ascent.statistics)
            moved = torch.add(moved, ascent.y, alpha=η_y)
            yield x, moved

    def _algorithm_4(self, x: Tensor, y: Tensor, sent: Start, site: Site) -> Iterator[Pair]:
        f, η_x, η_y, x̃ = self.problem, sent.primal_step, sent.dual_step, sent.anchor
        assert x̃ is not None
        for t in range(sent.first, sent.last):  # line 2
            ξ = site.minibatch(t, self.batch_size)  # line 3
            descent, gy = f.gradient_x(x, y, ξ), f.gradient_y(site.broadcast(x̃), y, ξ)
            x = f.write_statistics_(f.project_x(x - η_x * descent.x), descent.statistics)  # line 4: as in Algorithm 1
            y = f.project_y(y + η_y * gy)  # line 5: y ← y + η_y ∇_y f_i(x̃, y; ξ)
            yield x, y

    def _optimised(self, x: Tensor, y: Tensor, sent: Start, site: Site) -> Iterator[Pair]:
        """Either algorithm with the directions of an optimiser, which starts afresh in every exchange."""
        f, η_x, η_y, optimiser = self.problem, sent.primal_step, sent.dual_step, self.local_optimiser
        assert optimiser is not None
        of_x = of_y = BLANK
        for t in range(sent.first, sent.last):
            ξ = site.minibatch(t, self.batch_size)
            if sent.anchor is None:
                gx, gy, statistics = f.gradients(x, y, ξ)
            else:
                (gx, statistics), gy = f.gradient_x(x, y, ξ), f.gradient_y(site.broadcast(sent.anchor), y, ξ)
            of_x, dx = optimiser.direction(of_x, gx, x)
            of_y, dy = optimiser.direction(of_y, gy)
            x, y = f.write_statistics_(f.project_x(x - η_x * dx), statistics), f.project_y(y + η_y * dy)
            yield x, y

    def model(self, server: SgdaState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.kept is None else server.kept

    def dual(self, server: SgdaState) -> Tensor:
        """The last y."""
        return server.y

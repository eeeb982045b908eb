"""Local SGDA and Local SGDA+: simultaneous local steps of both players (Algorithms 1 and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.sgda import rounds
from fedsaddle.algorithms.sgda.rounds import IterateRecorder, Local, MidRound, SgdaState, Start, planned
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.tasks import PlannedExchange, task
from fedsaddle.numerics.optimisers import BLANK, LocalOptimiser, check_local_optimiser, own_optimiser
from fedsaddle.numerics.schedules import Step
from fedsaddle.problems.protocols import MinimaxProblem, Pair

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
    `local_optimiser` the gradients of both players become its directions, from a fresh state in every exchange.
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

    def __post_init__(self) -> None:
        rounds.check(self)
        check_local_optimiser(self.local_optimiser)

    @property
    def secret_cohorts(self) -> bool:
        """Whether every exchange has a fresh cohort; where a snapshot cuts a round, the same clients answer twice."""
        return not rounds.cuts_rounds(self)

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """One a round, or more where snapshots cut rounds."""
        return planned(self, rounds, clients)

    def start(self, clients: Clients) -> SgdaState:
        """x_0, y_0, and x_0 as the first snapshot."""
        return rounds.start(self, clients)

    def round(self, server: SgdaState, clients: Clients, rng: np.random.Generator) -> SgdaState:
        """τ iterations and the averages (lines 6-9 of Algorithm 1, 6-15 of Algorithm 4)."""
        return rounds.synchronised_round(self, self.local_sgda, server, clients, rng)

    def fresh(self, site: Site) -> MidRound | None:
        """Clients remember something only where a snapshot cuts rounds in two."""
        return rounds.blank(self, site) if rounds.cuts_rounds(self) else None

    def check_local_layers(self) -> None:
        """With layers that stay at the clients, `output` is "last"."""
        rounds.check_local_layers(self)

    @task(releases=rounds.released)
    def local_sgda(self, own: MidRound | None, sent: Start, site: Site) -> tuple[MidRound | None, Local]:
        """Lines 3-5, for the iterations that were asked for."""
        pair = rounds.begin(own, sent, site)
        steps = self._algorithm_1 if sent.anchor is None else self._algorithm_4
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

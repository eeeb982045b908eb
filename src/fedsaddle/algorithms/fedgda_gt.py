"""FedGDA-GT: local steps on full gradients, corrected by gradient tracking; converges to the saddle point itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.local_steps import check_local, check_problem, cohort_size, draw_cohort
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, UpdateOf
from fedsaddle.numerics.schedules import Step, at, check_step
from fedsaddle.problems.protocols import MinimaxProblem

NAMED = {
    "FedGDA-GT": {
        "class": "FedGdaGt",
        "about": "exact by gradient tracking; all rows",
        "source": "Sun, Wei 2022",
        "kind": "minimax",
    },
}


@dataclass(frozen=True)
class Point:
    """Server to client: where the gradients are wanted."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Slopes:
    """Client to server: its gradients over all rows."""

    x: Averaged
    y: Averaged


@dataclass(frozen=True)
class Tracked:
    """Server to client: the pair to start from, the mean gradients there, and the steps."""

    x: Tensor
    y: Tensor
    mean_x: Tensor
    mean_y: Tensor
    primal_step: float
    dual_step: float


@dataclass(frozen=True)
class LocalPair:
    """Client to server: its pair after K steps."""

    x: Annotated[Averaged, UpdateOf("x")]
    y: Annotated[Averaged, UpdateOf("y")]


@dataclass(frozen=True)
class PairState:
    """The server's state."""

    x: Tensor
    y: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class FedGdaGt:
    """FedGDA-GT (Sun, Wei 2022): local steps along `F_i(z_i) - F_i(z) + mean F_j(z)`, with `F_i = (∇_x f_i, -∇_y f_i)`.

    The correction vanishes at the saddle point, so that a constant step converges to it, where Local SGDA stops beside
    it. K = 1 is centralised descent-ascent.

    Args:
        problem: the problem to solve.
        sampled_clients: clients sampled in each round; None samples all.
        local_steps: K, local steps of a client in each round.
        primal_step: η, learning rate of the minimiser, a number or a schedule.
        dual_step: η, learning rate of the maximiser, a number or a schedule.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: x @ x / 2 + batch.x @ x * y - y @ y / 2,
        ...     start_x=torch.ones(3), start_y=torch.zeros(1),
        ... )
        >>> fs.FedGdaGt(problem=game, local_steps=20).dual_step
        0.1

    **Deviations from the paper**: written after public code of others, the paper's box was not at hand. Two steps
    instead of one η; projections where the problem has some; a cohort may be drawn, which the theory does not cover.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None
    local_steps: int = 10  # K
    primal_step: Step = 0.1  # η
    dual_step: Step = 0.1  # η

    def __post_init__(self) -> None:
        check_problem(self, MinimaxProblem)
        check_local(self.local_steps, 1, self.sampled_clients)
        check_step("primal_step", self.primal_step)
        check_step("dual_step", self.dual_step)

    def start(self, clients: Clients) -> PairState:
        """The problem's own point."""
        cohort_size(self.sampled_clients, clients)
        return PairState(*self.problem.initial())  # line 1

    def round(self, server: PairState, clients: Clients, rng: np.random.Generator) -> PairState:
        """Lines 2-6 of the box."""
        x, y, r = server.x, server.y, server.rounds
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))
        S, G = clients.ask(S, self.slopes, Point(x, y))  # lines 2-3
        sent = Tracked(x, y, G.x, G.y, at(self.primal_step, r), at(self.dual_step, r))
        _, z = clients.ask(S, self.tracked_steps, sent)  # lines 4-6
        return PairState(z.x, z.y, r + 1)  # line 6

    def slopes(self, own: None, sent: Point, site: Site) -> tuple[None, Slopes]:
        """Line 2: the gradients over all rows."""
        g = self.problem.gradients(site.broadcast(sent.x), site.broadcast(sent.y), site.everything())  # line 2
        return None, Slopes(g.x, g.y)

    def tracked_steps(self, own: None, sent: Tracked, site: Site) -> tuple[None, LocalPair]:
        """Lines 4-5: K corrected steps of both players."""
        f, ξ, η_x, η_y = self.problem, site.everything(), sent.primal_step, sent.dual_step
        x, y = site.broadcast(sent.x), site.broadcast(sent.y)
        g = f.gradients(x, y, ξ)
        off_x, off_y = sent.mean_x - g.x, sent.mean_y - g.y  # line 4: G - F_i(z)
        for k in range(self.local_steps):
            g = f.gradients(x, y, ξ) if k else g
            x = f.write_statistics_(f.project_x(x - η_x * (g.x + off_x)), g.statistics)  # line 5
            y = f.project_y(y + η_y * (g.y + off_y))  # line 5
        return None, LocalPair(x, y)

    def model(self, server: PairState) -> Tensor:
        """The last x."""
        return server.x

    def dual(self, server: PairState) -> Tensor:
        """The last y."""
        return server.y

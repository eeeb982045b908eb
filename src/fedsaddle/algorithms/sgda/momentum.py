"""Momentum Local SGDA and Momentum Local SGDA+ (Algorithms 2 and 5)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.sgda import local_sgda
from fedsaddle.algorithms.sgda.local_sgda import IterateRecorder, Local, MidRound, SgdaState, Start, planned
from fedsaddle.arguments import choice, number
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, task
from fedsaddle.numerics.schedules import Step
from fedsaddle.problems.protocols import Gradients, MinimaxProblem, Pair

FIRST = 1  # the stream of the batch that starts the momentum

NAMED = {
    "Momentum Local SGDA": {
        "class": "MomentumLocalSgda",
        "about": "Local SGDA with momentum",
        "source": "Sharma, Panda, Joshi, Varshney 2022, Alg. 2",
        "kind": "minimax",
    },
    "Momentum Local SGDA+": {
        "class": "MomentumLocalSgda",
        "about": "Local SGDA+ with momentum",
        "source": "Sharma, Panda, Joshi, Varshney 2022, Alg. 5",
        "kind": "minimax",
        "defaults": {"momentum_at_sync": "reset"},
        "required": {"snapshot_every": "snapshot_every = 25 (the paper takes the square of local_steps)"},
    },
}


@dataclass(frozen=True)
class Momentum(MidRound):
    """A client's state: where it stands in the middle of a round, and momentum that it keeps."""

    dx: Tensor
    dy: Tensor
    started: Tensor  # (C,): 1 once the momentum holds a gradient


def _released(algorithm: MomentumLocalSgda, sent: Start) -> Releases:
    """Both players' gradients of each iteration, and of the one that begins the momentum."""
    begins = int(sent.first == 0 and sent.dx is None)
    return local_sgda.released(algorithm, sent) + Counter({Release(algorithm.batch_size, 2): begins})


@dataclass(frozen=True, kw_only=True)
class MomentumLocalSgda:
    """Momentum Local SGDA (Sharma, Panda, Joshi, Varshney 2022, Algorithm 2).

    With `snapshot_every` S and `momentum_at_sync="reset"` it is Momentum Local SGDA+ (Algorithm 5). What becomes of
    the momentum at an average is `momentum_at_sync`: "average" (Algorithm 2), "keep" (the paper's experiments, which
    send models only), or "reset" to zero (Algorithm 5). "Momentum 0.9" in its tables is α β.

    Args:
        problem: the problem to solve.
        sampled_clients: clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η_x, learning rate of the minimiser, a number or a schedule.
        dual_step: η_y, learning rate of the maximiser, a number or a schedule.
        alpha: α, step towards the momentum point.
        primal_beta: β_x, momentum of the minimiser.
        dual_beta: β_y, momentum of the maximiser.
        momentum_at_sync: "average", "keep" or "reset" the momentum when models are averaged.
        snapshot_every: S, iterations between two snapshots of x; None is Momentum Local SGDA without snapshots.
        output: "last" returns the last iterate, "random" that of a random round, as in the box, "average" the mean of
            the local iterates.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs, torch
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: x @ x / 2 + batch.x @ x * y - y @ y / 2,
        ...     start_x=torch.ones(3), start_y=torch.zeros(1),
        ... )
        >>> fs.MomentumLocalSgda(problem=game, momentum_at_sync="keep").primal_beta
        0.9

    **Deviations from the paper**: x and y are projected after every local step where the problem has projections; a
    cohort may be drawn; `y ← Π(y + α η_y d_y)`, which is the box's convex combination where there is no projection.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None
    local_steps: int = 10  # τ
    batch_size: int = 32
    primal_step: Step = 0.02  # η_x
    dual_step: Step = 0.016  # η_y
    alpha: float = 1.0  # α
    primal_beta: float = 0.9  # β_x
    dual_beta: float = 0.9  # β_y
    momentum_at_sync: str = "average"
    snapshot_every: int | None = None  # S
    output: str = "last"

    def __post_init__(self) -> None:
        local_sgda.check(self)
        choice("momentum_at_sync", self.momentum_at_sync, ("average", "keep", "reset"))
        number("alpha", self.alpha, above=0, most=1)
        for key in ("primal_beta", "dual_beta"):
            beta = number(key, getattr(self, key), above=0)
            if beta * self.alpha > 1:
                raise BadInput(key, beta, "times alpha must be above 0 and at most 1")

    @property
    def secret_cohorts(self) -> bool:
        """Whether every exchange has a fresh cohort, and clients remember nothing."""
        return not local_sgda.cuts_rounds(self) and self.momentum_at_sync != "keep"

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """As Local SGDA's; a round without an answer may begin the momentum once more."""
        return planned(self, rounds, clients, more=1)

    def start(self, clients: Clients) -> SgdaState:
        """x_0, y_0, and x_0 as the first snapshot."""
        return local_sgda.start(self, clients)

    def round(self, server: SgdaState, clients: Clients, rng: np.random.Generator) -> SgdaState:
        """τ iterations and the averages (lines 8-12 of Algorithm 2, 8-18 of Algorithm 5)."""
        return local_sgda.synchronised_round(self, self.local_sgda, server, clients, rng)

    def fresh(self, site: Site) -> Momentum | None:
        """Clients remember the momentum they keep, and where a snapshot cut their round."""
        wanted = self.momentum_at_sync == "keep" or local_sgda.cuts_rounds(self)
        if not wanted:
            return None
        at = local_sgda.blank(self, site)
        return Momentum(at.x, at.y, torch.zeros_like(at.x), torch.zeros_like(at.y), at.x.new_zeros(len(at.x)))

    @task(releases=_released)
    def local_sgda(self, own: Momentum | None, sent: Start, site: Site) -> tuple[Momentum | None, Local]:
        """Lines 3-7, for the iterations that were asked for."""
        f, α, β_x, β_y = self.problem, self.alpha, self.primal_beta, self.dual_beta
        η_x, η_y = sent.primal_step, sent.dual_step
        x, y = local_sgda.begin(own, sent, site)
        dx, dy = self._momentum(own, sent, site, x, y)
        seen = IterateRecorder(sent, self.output == "average")
        for t in range(sent.first, sent.last):  # line 2
            x = f.project_x(x - α * η_x * dx)  # line 3
            y = f.project_y(y + α * η_y * dy)  # line 4
            g = self._gradients(x, y, sent, site, t, stream=0)  # line 5
            dx = (1 - β_x * α) * dx + β_x * α * g.x  # line 6
            dy = (1 - β_y * α) * dy + β_y * α * g.y  # line 7
            x = f.write_statistics_(x, g.statistics)
            seen.add(t + 1, x)
        synced = sent.last == self.local_steps
        if synced and self.momentum_at_sync == "reset":
            dx, dy = torch.zeros_like(dx), torch.zeros_like(dy)  # line 12 of Algorithm 5
        remembers = own is not None and (not synced or self.momentum_at_sync == "keep")
        left = Momentum(x, y, dx, dy, torch.ones(len(x), dtype=x.dtype, device=x.device)) if remembers else None
        shares = synced and self.momentum_at_sync != "keep"
        return left, Local(x, y, dx if shares else None, dy if shares else None, seen.picked, seen.path)

    def _momentum(self, own: Momentum | None, sent: Start, site: Site, x: Tensor, y: Tensor) -> Pair:
        """What the round begins with: the server's, the client's own, or at first a stochastic gradient (line 1)."""
        if own is not None and sent.first > 0:
            return own.dx, own.dy
        if sent.dx is not None and sent.dy is not None:
            return site.broadcast(sent.dx), site.broadcast(sent.dy)
        g = self._gradients(x, y, sent, site, 0, stream=FIRST)  # line 1
        if own is None or self.momentum_at_sync != "keep":
            return g.x, g.y
        began = own.started[:, None] > 0
        return torch.where(began, own.dx, g.x), torch.where(began, own.dy, g.y)

    def _gradients(self, x: Tensor, y: Tensor, sent: Start, site: Site, t: int, stream: int) -> Gradients:
        """∇_x at (x, y), and ∇_y there as well or, with snapshots, at (x̃, y); one batch for both."""
        ξ = site.minibatch(t, self.batch_size, stream)
        if sent.anchor is None:
            return self.problem.gradients(x, y, ξ)
        descent = self.problem.gradient_x(x, y, ξ)
        return Gradients(descent.x, self.problem.gradient_y(site.broadcast(sent.anchor), y, ξ), descent.statistics)

    def model(self, server: SgdaState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.kept is None else server.kept

    def dual(self, server: SgdaState) -> Tensor:
        """The last y."""
        return server.y

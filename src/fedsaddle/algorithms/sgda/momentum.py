"""Momentum Local SGDA and Momentum Local SGDA+ (Algorithms 2 and 5)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_sgd import one_of
from fedsaddle.algorithms.sgda import rounds as sync
from fedsaddle.algorithms.sgda.rounds import Local, Noted, Playing, SgdaState, Start
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.schedules import Step
from fedsaddle.problems.minimax import MinimaxProblem

FIRST = 1  # the stream of the batch that starts the momentum


@dataclass(frozen=True, kw_only=True)
class MomentumLocalSgda:
    """Momentum Local SGDA (Sharma, Panda, Joshi, Varshney 2022, Algorithm 2).

    With `snapshot_every` S and `momentum_at_sync="reset"` it is Momentum Local SGDA+ (Algorithm 5). What becomes of
    the momentum at an average is `momentum_at_sync`: "average" (Algorithm 2), "keep" (the paper's experiments, which
    send models only), or "reset" to zero (Algorithm 5). "Momentum 0.9" in its tables is α β.

    **Deviations from the paper**: x and y are projected after every local step where the problem has projections; a
    cohort may be drawn; `y ← Π(y + α η_y d_y)`, which is the box's convex combination where there is no projection.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None  # None: all, as in the box
    local_steps: int = 10  # τ
    batch_size: int = 32
    primal_step: Step = 0.02  # η_x
    dual_step: Step = 0.016  # η_y
    alpha: float = 1.0  # α
    primal_beta: float = 0.9  # β_x
    dual_beta: float = 0.9  # β_y
    momentum_at_sync: str = "average"
    snapshot_every: int | None = None  # S; None is Momentum Local SGDA
    output: str = "last"  # or "random", as in the box, or "average"

    def __post_init__(self) -> None:
        sync.check(self)
        one_of("momentum_at_sync", self.momentum_at_sync, ("average", "keep", "reset"))
        if not 0 < self.alpha <= 1:
            raise BadInput("alpha", self.alpha, "must be above 0 and at most 1")
        for key in ("primal_beta", "dual_beta"):
            if not 0 < getattr(self, key) * self.alpha <= 1:
                raise BadInput(key, getattr(self, key), "times alpha must be above 0 and at most 1")

    def start(self, clients: Clients) -> SgdaState:
        """x_0, y_0, and x_0 as the first snapshot."""
        return sync.start(self, clients)

    def round(self, server: SgdaState, clients: Clients, rng: np.random.Generator) -> SgdaState:
        """τ iterations and the averages (lines 8-12 of Algorithm 2, 8-18 of Algorithm 5)."""
        return sync.synchronised(self, server, clients, rng)

    def fresh(self, site: Site) -> Playing | None:
        """Clients remember the momentum they keep, and where a snapshot cut their round."""
        wanted = self.momentum_at_sync == "keep" or sync.cuts_rounds(self)
        return sync.blank(self, site) if wanted else None

    def play(self, own: Playing | None, sent: Start, site: Site) -> tuple[Playing | None, Local]:
        """Lines 3-7."""
        begins = own is None or sent.first == 0
        x, y = (site.each(sent.x), site.each(sent.y)) if begins or own is None else (own.x, own.y)
        dx, dy = self._momentum(own, sent, site, x, y)
        noted, α = Noted(self, sent), self.alpha
        for t in range(sent.first, sent.last):
            x = self.problem.project_x(x - α * sent.primal_step * dx)  # line 3
            y = self.problem.project_y(y + α * sent.dual_step * dy)  # line 4
            gx, gy = self._gradients(x, y, sent, site, t, stream=0)  # line 5
            x = self.problem.project_x(x)  # where it is; it takes in statistics that the gradient left behind
            dx = (1 - self.primal_beta * α) * dx + self.primal_beta * α * gx  # line 6
            dy = (1 - self.dual_beta * α) * dy + self.dual_beta * α * gy  # line 7
            noted.add(t + 1, x)
        synced, at_sync = sent.last == self.local_steps, self.momentum_at_sync
        if synced and at_sync == "reset":
            dx, dy = torch.zeros_like(dx), torch.zeros_like(dy)  # line 12 of Algorithm 5
        remembers = own is not None and (not synced or at_sync == "keep")
        left = Playing(x, y, dx, dy, torch.ones(len(x), dtype=x.dtype)) if remembers else None
        shares = synced and at_sync != "keep"
        return left, Local(x, y, dx if shares else None, dy if shares else None, noted.picked, noted.path)

    def _momentum(self, own: Playing | None, sent: Start, site: Site, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the round begins with: the server's, the client's own, or at first a stochastic gradient (line 1)."""
        if own is not None and sent.first > 0:
            return own.dx, own.dy
        if sent.dx is not None and sent.dy is not None:
            return site.each(sent.dx), site.each(sent.dy)
        gx, gy = self._gradients(x, y, sent, site, 0, stream=FIRST)
        if own is None or self.momentum_at_sync != "keep":
            return gx, gy
        began = own.started[:, None] > 0
        return torch.where(began, own.dx, gx), torch.where(began, own.dy, gy)

    def _gradients(self, x: Tensor, y: Tensor, sent: Start, site: Site, t: int, stream: int) -> tuple[Tensor, Tensor]:
        """One batch for both."""
        ξ = site.minibatch(t, self.batch_size, stream)
        return sync.gradients(self.problem, x, y, ξ, sent, site)

    def model(self, server: SgdaState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.kept is None else server.kept

    def dual(self, server: SgdaState) -> Tensor:
        """The last y."""
        return server.y


@dataclass(frozen=True, kw_only=True)
class MomentumLocalSgdaPlus(MomentumLocalSgda):
    """Momentum Local SGDA+ (Algorithm 5): the snapshot period must be given, and an average resets the momentum."""

    snapshot_every: int = field()  # S; no default
    momentum_at_sync: str = "reset"

"""Local SGDA and Local SGDA+: simultaneous local steps of both players (Algorithms 1 and 4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.sgda import rounds as sync
from fedsaddle.algorithms.sgda.rounds import Local, Noted, Playing, SgdaState, Start
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.schedules import Step
from fedsaddle.problems.minimax import MinimaxProblem, stepped


@dataclass(frozen=True, kw_only=True)
class LocalSgda:
    """Local SGDA (Sharma, Panda, Joshi, Varshney 2022, Algorithm 1): `min_x max_y (1/n) Σ_i f_i(x, y)`.

    With `snapshot_every` S it is Local SGDA+ (Algorithm 4): the ascent direction is taken at a snapshot of x, the
    average of the clients' x, refreshed every S iterations, whatever τ is.

    **Deviations from the paper**: x and y are projected after every local step where the problem has projections (the
    simplex of its fair classification); a cohort may be drawn, where the paper's clients all take part.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None  # None: all, as in the box
    local_steps: int = 10  # τ
    batch_size: int = 32
    primal_step: Step = 0.02  # η_x
    dual_step: Step = 0.016  # η_y
    snapshot_every: int | None = None  # S; None is Local SGDA
    output: str = "last"  # or "random", as in the box, or "average"

    def __post_init__(self) -> None:
        sync.check(self)

    def start(self, clients: Clients) -> SgdaState:
        """x_0, y_0, and x_0 as the first snapshot."""
        return sync.start(self, clients)

    def round(self, server: SgdaState, clients: Clients, rng: np.random.Generator) -> SgdaState:
        """τ iterations and the averages (lines 7-9 of Algorithm 1, 6-15 of Algorithm 4)."""
        return sync.synchronised(self, server, clients, rng)

    def fresh(self, site: Site) -> Playing | None:
        """Clients remember something only where a snapshot cuts rounds in two."""
        return sync.blank(self, site) if sync.cuts_rounds(self) else None

    def play(self, own: Playing | None, sent: Start, site: Site) -> tuple[Playing | None, Local]:
        """Lines 3-5."""
        x, y = (site.each(sent.x), site.each(sent.y)) if own is None or sent.first == 0 else (own.x, own.y)
        x, noted = x.clone(memory_format=torch.contiguous_format), Noted(self, sent)  # the steps write into x
        for t in range(sent.first, sent.last):
            ξ = site.minibatch(t, self.batch_size)  # line 3
            if sent.anchor is None:
                x, y = stepped(self.problem, x, y, ξ, sent.primal_step, sent.dual_step)  # lines 4-5
            else:
                gx, gy = sync.gradients(self.problem, x, y, ξ, sent, site)
                x = self.problem.project_x(x - sent.primal_step * gx)
                y = self.problem.project_y(y + sent.dual_step * gy)  # line 5 of Algorithm 4
            noted.add(t + 1, x)
        unfinished = sent.last < self.local_steps and own is not None
        left = Playing(x, y, own.dx, own.dy, own.started) if unfinished and own is not None else None
        return left, Local(x, y, picked=noted.picked, path=noted.path)

    def model(self, server: SgdaState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.kept is None else server.kept

    def dual(self, server: SgdaState) -> Tensor:
        """The last y."""
        return server.y


@dataclass(frozen=True, kw_only=True)
class LocalSgdaPlus(LocalSgda):
    """Local SGDA+ (Algorithm 4): Local SGDA whose snapshot period must be given; the paper's runs use τ²."""

    snapshot_every: int = field()  # S; no default

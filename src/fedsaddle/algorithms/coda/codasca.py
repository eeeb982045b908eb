"""CODASCA: CODA+ with control variates for both players (Algorithms 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.coda import stages
from fedsaddle.algorithms.coda.stages import StageState, Start
from fedsaddle.algorithms.local_sgd import one_of
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged
from fedsaddle.numerics.schedules import Geometric, Schedule, Step
from fedsaddle.problems.minimax import MinimaxProblem


@dataclass(frozen=True)
class Variates:
    """A client's memory: c_v^k and c_α^k, and the stage that they belong to."""

    cx: Tensor
    cy: Tensor
    stage: Tensor  # (C,); -1 before the first


@dataclass(frozen=True)
class Local:
    """Client to server: the last local iterates, and what projections added to the steps, if they did."""

    x: Averaged
    y: Averaged
    turned_x: Averaged | None = None
    turned_y: Averaged | None = None


@dataclass(frozen=True, kw_only=True)
class Codasca:
    """CODASCA (Yuan, Guo, Xu, Ying, Yang 2021, Algorithms 3 and 4) for `min_v max_α (1/K) Σ_k f_k(v, α)`.

    As CODA+, with directions corrected by `- c^k + c` for both players, where c^k is the mean of the client's last
    directions and c the mean of all c^k, and with an extrapolation by η_g on the server. Clients keep c^k between
    rounds; every stage begins with zeros. The mean of the c^k follows from that of the iterates, eq. (6), so that the
    server computes c itself: nothing is sent up but what CODA+ sends and, where there are projections, what they added.

    **Deviations from the paper**: a cohort may be drawn, as in SCAFFOLD (Karimireddy et al. 2020): the others keep
    their c^k, and c moves by m/K of the mean change. `output="random"` is the box's; "last" is what the published code
    does and the default; "average" is the mean of the v_r. Where the problem has projections, the iterates are
    projected after every step and after the extrapolation, and c^k is the mean of the directions, eq. (7). The dual may
    have a step of its own. Clients may count by their rows, as pooled AUC does.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None  # None: all, as in the box
    local_steps: int | Schedule = 8  # I_s
    batch_size: int = 32
    primal_step: Step = Geometric(0.1, 1 / 3)  # η_l
    dual_step: Step | None = None  # None: η_l
    global_step: float | str = 1.0  # η_g; "sqrt" is the theory's √K
    proximal: float = 2e-3  # γ
    stage_rounds: int | Schedule | None = None  # R_s; 50 if neither is given
    stage_steps: int | Schedule | None = None  # in place of stage_rounds: R_s I_s
    weighting: str = "uniform"  # 1 / K as in the box, or "size": n_k / n, the mean over all rows
    output: str = "last"  # or "random", as in the box, or "average"

    def __post_init__(self) -> None:
        stages.check(self)
        if isinstance(self.global_step, str):
            one_of("global_step", self.global_step, ("sqrt",))
        elif not 0 < self.global_step < float("inf"):
            raise BadInput("global_step", self.global_step, 'must be a positive number, or "sqrt" for the root of K')

    def start(self, clients: Clients) -> StageState:
        """(v_0, α_0), c = 0."""
        return stages.start(self, clients)

    def round(self, server: StageState, clients: Clients, rng: np.random.Generator) -> StageState:
        """One round of Algorithm 4."""
        K = clients.count
        cohort, sent = stages.begin(self, server, clients, rng)
        answered, local = clients.ask(cohort, self.play, sent, weights=stages.weights(self, clients, cohort))
        part, (dcx, dcy) = stages.part(self, clients, answered), _changes(sent, local)
        cx, cy = sent.cx + part * dcx, sent.cy + part * dcy  # c = (1/K) Σ c^k
        x, y = self._extrapolated(server, local, K)
        now = replace(server, x=x, y=y, cx=cx, cy=cy)
        if self.output == "average":
            now = replace(now, kept_x=x, kept_y=y)
        return stages.ended(self, server, now, rng)

    def fresh(self, site: Site) -> Variates:
        """Zeros, of no stage."""
        x, y = (torch.zeros(len(site.clients), *v.shape, dtype=v.dtype) for v in self.problem.initial())
        return Variates(x, y, torch.full((len(x),), -1.0, dtype=x.dtype))

    def play(self, own: Variates, sent: Start, site: Site) -> tuple[Variates, Local]:
        """The client's lines of Algorithm 4."""
        same_stage = (own.stage == sent.stage).unsqueeze(-1)
        cx, cy = (own.cx, own.cy) if same_stage.all() else (own.cx * same_stage, own.cy * same_stage)
        w = stages.walk(self, sent, site, cx, cy)
        reply = Local(w.x, w.y, w.turned_x, w.turned_y)
        dcx, dcy = _changes(sent, reply)
        return Variates(cx.add_(dcx), cy.add_(dcy), torch.full_like(own.stage, sent.stage)), reply

    def model(self, server: StageState) -> Tensor:
        """v, as `output` says."""
        return stages.returned(server)[0]

    def dual(self, server: StageState) -> Tensor:
        """α that goes with it."""
        return stages.returned(server)[1]

    def iterations(self, server: StageState) -> int:
        """Local steps so far."""
        return server.steps

    def _extrapolated(self, server: StageState, local: Local, K: int) -> tuple[Tensor, Tensor]:
        η_g = sqrt(K) if isinstance(self.global_step, str) else self.global_step
        if η_g == 1:
            return local.x, local.y
        x, y = server.x + η_g * (local.x - server.x), server.y + η_g * (local.y - server.y)
        return self.problem.project_x(x[None])[0], self.problem.project_y(y[None])[0]


def _changes(sent: Start, local: Local) -> tuple[Tensor, Tensor]:
    """By how much a client's variates have changed or, given the means over clients, theirs on average."""
    dcx = stages.mean_slope(sent.x, local.x, local.turned_x, sent.steps * sent.primal_step, sent.cx)
    dcy = stages.mean_slope(sent.y, local.y, local.turned_y, -sent.steps * sent.dual_step, sent.cy)
    return dcx, dcy

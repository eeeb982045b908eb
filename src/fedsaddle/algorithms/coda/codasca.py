"""CODASCA: CODA+ with control variates for both players (Algorithms 3 and 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.coda import coda
from fedsaddle.algorithms.coda.coda import StageState, Start
from fedsaddle.arguments import choice, number
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, UpdateOf
from fedsaddle.federation.tasks import PlannedExchange, task
from fedsaddle.numerics.optimisers import BLANK, LocalOptimiser, check_local_optimiser, own_optimiser
from fedsaddle.numerics.projections import is_everywhere
from fedsaddle.numerics.schedules import Geometric, Schedule, Step, divisor
from fedsaddle.problems.protocols import MinimaxProblem, Pair

NAMED = {
    "CODASCA": {
        "class": "Codasca",
        "about": "CODA+ with control variates",
        "source": "Yuan, Guo, Xu, Ying, Yang 2021, Alg. 3-4",
        "kind": "minimax",
    },
}


@dataclass(frozen=True)
class Variates:
    """A client's state: c_v^k and c_α^k, and the stage that they belong to."""

    cx: Tensor
    cy: Tensor
    stage: Tensor  # (C,); -1 before the first


@dataclass(frozen=True)
class Local:
    """Client to server: the last local iterates, and what projections added to the steps, if they did."""

    x: Annotated[Averaged, UpdateOf("x")]
    y: Annotated[Averaged, UpdateOf("y")]
    projection_shift_x: Averaged | None = None
    projection_shift_y: Averaged | None = None
    dcx: Averaged | None = None  # the changes of c^k, where steps have an optimiser
    dcy: Averaged | None = None


@dataclass(frozen=True, kw_only=True)
class Codasca:
    """CODASCA (Yuan, Guo, Xu, Ying, Yang 2021, Algorithms 3 and 4) for `min_v max_α (1/K) Σ_k f_k(v, α)`.

    As CODA+, with directions corrected by `- c^k + c` for both players, where c^k is the mean of the client's last
    directions and c the mean of all c^k, and with an extrapolation by η_g on the server. Clients keep c^k between
    rounds; every stage begins with zeros. The mean of the c^k follows from that of the iterates, eq. (6), so that the
    server computes c itself: nothing is sent up but what CODA+ sends and, where there are projections, what they added.

    With `momentum` μ the direction of every local step is `(1 - μ) (∇ - c^k + c) + μ d`, for both players, where d is
    the mean direction of the round before: after the idea of SCAFFOLD-M (Cheng, Huang, Wu, Yuan 2024), but the rule is
    ours. Clients take the same steps as without it, with a step of (1 - μ) η_l and `c + μ d / (1 - μ)` in the place of
    c; nothing more is sent.

    Args:
        problem: the problem to solve.
        sampled_clients: clients sampled in each round; None samples all, as in the box.
        local_steps: I_s, local steps of a client in each round, a number or a schedule over stages.
        batch_size: rows of a minibatch.
        primal_step: η_l, learning rate of both players at the clients, a number or a schedule over stages.
        dual_step: learning rate of the maximiser; None is η_l.
        global_step: η_g, extrapolation at the server; "sqrt" is the √K of the theory.
        momentum: μ, momentum of both players; 0 is the box.
        local_optimiser: optimiser of both players' corrected gradients, of `fs.optimisers`, in place of plain steps;
            None is the box.
        proximal: γ, weight of the proximal term that ties the iterates to the centre of the stage.
        stage_rounds: R_s, rounds of a stage, a number or a schedule; 50 if neither length is given.
        stage_steps: R_s I_s, local steps of a stage, a number or a schedule, in place of `stage_rounds`.
        weighting: "uniform" weights clients by 1 / K, as in the box; "size" by n_k / n, which gives the mean over all
            rows.
        output: "last" starts the next stage at the last iterate, "random" at a random round's, as in the box, "average"
            at the mean of the v_r.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> auc = fs.MinimaxAuc(model=fs.models.mlp(30, [16], 1), positive_share=0.1)
        >>> fs.Codasca(problem=auc, local_steps=32, global_step="sqrt").proximal
        0.002

    **Deviations from the paper**: a cohort may be drawn, as in SCAFFOLD (Karimireddy et al. 2020): the others keep
    their c^k, and c moves by m/K of the mean change. `output="random"` is the box's; "last" is what the published code
    does and the default; "average" is the mean of the v_r. Where the problem has projections, the iterates are
    projected after every step and after the extrapolation, and c^k is the mean of the directions, eq. (7). The dual may
    have a step of its own. Clients may count by their rows, as pooled AUC does. There may be momentum, which
    begins with 0 in every stage. With a `local_optimiser`, fresh in every round, its direction of `∇ - c^k + c` is the
    step: at a saddle of unlike clients that gradient is 0, so that the saddle stays one, as it does not where every
    client's own gradient is rescaled. Steps then do not tell c^k, so clients also send its change.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None
    local_steps: int | Schedule = 8  # I_s
    batch_size: int = 32
    primal_step: Step = Geometric(0.1, 1 / 3)  # η_l
    dual_step: Step | None = None
    global_step: float | str = 1.0  # η_g
    momentum: float = 0.0  # μ
    local_optimiser: LocalOptimiser | None = None
    proximal: float = 2e-3  # γ
    stage_rounds: int | Schedule | None = None  # R_s
    stage_steps: int | Schedule | None = None
    weighting: str = "uniform"  # 1 / K
    output: str = "last"

    secret_cohorts = False  # clients keep their variates

    def __post_init__(self) -> None:
        coda.check(self)
        if isinstance(self.global_step, str):
            choice("global_step", self.global_step, ("sqrt",))
        else:
            number("global_step", self.global_step, above=0)
        number("momentum", self.momentum, least=0, below=1)
        check_local_optimiser(self.local_optimiser)
        if self.momentum and own_optimiser(self.local_optimiser) is not None:
            raise BadInput("momentum", self.momentum, "is for plain local steps; leave it out, or local_optimiser")

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """One a round."""
        return coda.planned(self, rounds, clients)

    def start(self, clients: Clients) -> StageState:
        """(v_0, α_0), c = 0."""
        return coda.start(self, clients)

    def round(self, server: StageState, clients: Clients, rng: np.random.Generator) -> StageState:
        """Lines 3-13 of Algorithm 4, as the documentation counts them."""
        cohort, sent = coda.begin(self, server, clients, rng)
        sent = self._with_momentum(server, sent) if self.momentum else sent
        divisor("primal_step", sent.primal_step, sent.stage)  # the variates divide by them
        divisor("dual_step", sent.dual_step, sent.stage)
        weights = coda.client_weights(self, clients, cohort)
        answered, local = clients.ask(cohort, self.dsgsca, sent, weights=weights)  # lines 3-9, 11
        share = self._share(clients, answered)
        dcx, dcy = _changes(sent, local) if local.dcx is None or local.dcy is None else (local.dcx, local.dcy)
        cx, cy = server.cx + share * dcx, server.cy + share * dcy  # line 10: c = (1/K) Σ c^k
        x, y = self._extrapolate(server, local, clients.count)  # line 12: v_r = v_{r-1} + η_g (v_r - v_{r-1})
        now = replace(server, x=x, y=y, cx=cx, cy=cy)
        if self.momentum:
            β = 1 - self.momentum
            now = replace(now, mx=β * (dcx + sent.cx), my=β * (dcy + sent.cy))
        if self.output == "average":
            now = replace(now, kept_x=x, kept_y=y)
        return coda.finish_round(self, server, now, rng)

    def _with_momentum(self, server: StageState, sent: Start) -> Start:
        """`(1-μ) (∇ - c^k + c) + μ d` as steps of (1-μ) η along `∇ - c^k + c'` with `c' = c + μ d / (1-μ)`."""
        β = 1 - self.momentum
        sent = replace(sent, primal_step=β * sent.primal_step, dual_step=β * sent.dual_step)
        if server.mx is None or server.my is None:
            return sent
        more = self.momentum / β
        return replace(sent, cx=sent.cx + more * server.mx, cy=sent.cy + more * server.my)

    def fresh(self, site: Site) -> Variates:
        """Zeros, of no stage."""
        x, y = (
            torch.zeros(len(site.clients), *v.shape, dtype=v.dtype, device=site.device) for v in self.problem.initial()
        )
        return Variates(x, y, torch.full((len(x),), -1.0, dtype=x.dtype, device=x.device))

    @task(releases=coda.released)
    def dsgsca(self, own: Variates, sent: Start, site: Site) -> tuple[Variates, Local]:
        """Lines 3-9 of Algorithm 4; x is v and y is α."""
        F, γ, η, η_α = self.problem, self.proximal, sent.primal_step, sent.dual_step
        c_v, c_α, v_0 = sent.cx, sent.cy, sent.centre
        ck_v, ck_α = self._own_variates(own, sent)  # line 1
        if own_optimiser(self.local_optimiser) is not None:
            reply = self._optimised((ck_v, ck_α), sent, site)
            assert reply.dcx is not None
            assert reply.dcy is not None
            return Variates(ck_v + reply.dcx, ck_α + reply.dcy, torch.full_like(own.stage, sent.stage)), reply
        v = site.broadcast(sent.x).clone(memory_format=torch.contiguous_format)  # the steps write into it
        α = site.broadcast(sent.y)
        pull = torch.add(η * (γ * v_0 - c_v), ck_v, alpha=η)
        lift = c_α - ck_α
        shift_v = None if is_everywhere(F.project_x) else torch.zeros_like(v)
        shift_α = None if is_everywhere(F.project_y) else torch.zeros_like(α)
        for t in range(sent.steps):  # line 3
            z = site.minibatch(t, self.batch_size)  # line 4
            ascent = F.descend_(v, α, z, η, keep=1 - η * γ)  # line 5: v ← v - η (∇_v F_k(v, α; z) + γ v)
            free_v = v.add_(pull)  # line 5: ... + η (γ v_0 + c_v^k - c_v)
            free_α = α + η_α * (ascent.y + lift)  # line 6: α ← α + η (∇_α F_k(v, α; z) - c_α^k + c_α)
            v, α = F.project_x(free_v), F.project_y(free_α)
            if shift_v is not None:
                shift_v += v - free_v
            if shift_α is not None:
                shift_α += α - free_α
            v = F.write_statistics_(v, ascent.statistics)
        reply = Local(v, α, shift_v, shift_α)
        dcx, dcy = _changes(sent, reply)  # lines 8-9: c^k ← c^k - c + (v_{r-1} - v) / (I η_l)
        return Variates(ck_v.add_(dcx), ck_α.add_(dcy), torch.full_like(own.stage, sent.stage)), reply

    def _optimised(self, own: Pair, sent: Start, site: Site) -> Local:
        """Lines 3-7 with the directions of an optimiser, and the changes of lines 8-9."""
        F, (ck_v, ck_α), v_0 = self.problem, own, sent.centre
        v, α, of_v, of_α = site.broadcast(sent.x), site.broadcast(sent.y), BLANK, BLANK
        used_v, used_α = torch.zeros_like(ck_v), torch.zeros_like(ck_α)
        assert self.local_optimiser is not None
        for t in range(sent.steps):
            g = F.gradients(v, α, site.minibatch(t, self.batch_size))
            g_v = torch.add(g.x, v - v_0, alpha=self.proximal)
            used_v, used_α = used_v + g_v, used_α + g.y
            of_v, d_v = self.local_optimiser.direction(of_v, g_v - ck_v + sent.cx, v)
            of_α, d_α = self.local_optimiser.direction(of_α, g.y - ck_α + sent.cy)
            v = F.write_statistics_(F.project_x(v - sent.primal_step * d_v), g.statistics)
            α = F.project_y(α + sent.dual_step * d_α)
        return Local(v, α, dcx=used_v / sent.steps - ck_v, dcy=used_α / sent.steps - ck_α)

    def _own_variates(self, own: Variates, sent: Start) -> Pair:
        """c_v^k and c_α^k; zeros where a stage begins."""
        same_stage = (own.stage == sent.stage).unsqueeze(-1)
        return (own.cx, own.cy) if same_stage.all() else (own.cx * same_stage, own.cy * same_stage)

    def model(self, server: StageState) -> Tensor:
        """v, as `output` says."""
        return coda.returned(server)[0]

    def dual(self, server: StageState) -> Tensor:
        """α that goes with it."""
        return coda.returned(server)[1]

    def iterations(self, server: StageState) -> int:
        """Local steps so far."""
        return server.steps

    def _share(self, clients: Clients, answered: Ints) -> float:
        """The share of those who answered in the whole."""
        n = coda.client_weights(self, clients, answered)
        return len(answered) / clients.count if n is None else float(n.sum() / clients.sizes.sum())

    def _extrapolate(self, server: StageState, local: Local, K: int) -> Pair:
        η_g = sqrt(K) if isinstance(self.global_step, str) else self.global_step
        if η_g == 1:
            return local.x, local.y
        x, y = server.x + η_g * (local.x - server.x), server.y + η_g * (local.y - server.y)
        return self.problem.project_x(x[None])[0], self.problem.project_y(y[None])[0]


def _changes(sent: Start, local: Local) -> Pair:
    """The change of a client's variates or, given the means over clients, of the mean: `-c + (v_{r-1} - v) / (I η)`."""
    dcx = _change(sent.x, local.x, local.projection_shift_x, sent.steps * sent.primal_step, sent.cx)
    dcy = _change(sent.y, local.y, local.projection_shift_y, -sent.steps * sent.dual_step, sent.cy)
    return dcx, dcy


def _change(before: Tensor, after: Tensor, shift: Tensor | None, length: float, c: Tensor | float) -> Tensor:
    """`(before - after + shift) / length - c`: the mean of the gradients, eq. (7), without what projections added.

    In one pass over the clients' vectors: a round of CODASCA should cost hardly more than one of CODA+.
    """
    change = torch.add(before / length - c, after, alpha=-1 / length)
    return change if shift is None else change.add_(shift, alpha=1 / length)

"""FedX2: pairwise risks with nonlinear f (Algorithm 2; with sampled clients Algorithm 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedx import scores
from fedsaddle.algorithms.fedx.guard import HALF, moved, paced
from fedsaddle.algorithms.fedx.scores import (
    BY_PAIRS,
    FIRST,
    SECOND,
    Buffer,
    Buffers,
    BufferState,
    Columns,
    First,
    InnerMeans,
    Opening,
    ScorePrivacy,
    Shared,
    draw,
    lazy_batches,
    score,
    set_sizes,
    unobserved,
)
from fedsaddle.algorithms.local_steps import cohort_size
from fedsaddle.arguments import flag, number
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, ExactBounds, Pooled, UpdateOf
from fedsaddle.federation.tasks import task
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.outers import Ratio, RatioCaps
from fedsaddle.problems.protocols import PairwiseProblem

PARTNERS = 1024  # lazy scores that the first u are observed on

NAMED = {
    "FedX2": {
        "class": "FedX2",
        "about": "pairwise risks, any f",
        "source": "Guo, Jin, Luo, Yang 2023, Alg. 2-3",
        "kind": "pairwise",
    },
}


@dataclass(frozen=True)
class Start:
    """Server to client: model, gradient estimate, R_1 and R_2, |S1| / N and |S2| / N, N, step, the cohort's size."""

    w: Tensor
    G: Tensor
    scores1: Tensor
    scores2: Tensor
    mean1: float
    mean2: float
    clients: int
    step: float
    cohort: int
    scale: float  # log of the mean of f over S1, where the risk is a log of it
    mean_weight: float = 0.0  # s̄; 0: weights are not normalised
    reference: float = 0.0  # ρ, of the guard


@dataclass(frozen=True)
class Means:
    """Server to client, once, for normalised weights: |S1| / N and |S2| / N."""

    mean1: float
    mean2: float


@dataclass(frozen=True)
class Weight:
    """Client to server, once: s_i, of which the server sees the mean."""

    s: Averaged


@dataclass(frozen=True)
class Local:
    """Client to server: model and gradient estimate after K steps, and the shared scores, with their u."""

    w: Annotated[Averaged, UpdateOf("w")]
    G: Averaged
    scores1: Annotated[Pooled, ExactBounds.WEIGHTS_FIRST]
    scores2: Annotated[Pooled, ExactBounds.WEIGHTS_FIRST]
    growth: Annotated[Averaged, ExactBounds.WIDE] | None = None  # of the mean of f over S1
    first: Averaged | None = None  # norm of the gradient at the first step, for the guard
    length: Averaged | None = None  # and the root of its mean square over the steps


@dataclass(frozen=True)
class FedX2State(BufferState):
    """The server's state: the model and the gradient estimate beside the buffers."""

    w: Tensor
    G: Tensor
    scale: float = 0.0
    mean_weight: float = 0.0  # s̄


@dataclass(frozen=True, kw_only=True)
class FedX2:
    """FedX2 (Guo, Jin, Luo, Yang 2023, Algorithms 2 and 3), for pairwise risks with any outer function f.

    Each client keeps u(z) for its rows z of S1, `u ← (1 - γ) u + γ ω2_ξ ℓ(h(w; z), h_ξ)`, and a gradient estimate
    `G ← (1 - β) G + β (G1 + G2)` with the factors f'(u) of eq. (9); models and G are averaged.

    Args:
        problem: the problem to solve.
        sampled_clients: |P^r|, clients sampled in each round; None samples all.
        local_steps: K, local steps of a client in each round.
        batch_size: B1, rows of the minibatch of S1.
        second_batch_size: B2, rows of the minibatch of S2; None is B1.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        tracking: γ, weight of the new value in the moving average u; None is 0.1 for average precision, whose
            gradient divides by the square of u, and else 0.9.
        averaging: β, weight of the new gradient in the moving average G.
        pair_cap: largest weight ℓ / u of a lazy pair; None is |S2|.
        buffer_rounds: τ, rounds whose scores stay in the buffers.
        sharing: "all" shares all scores of a round; "sub-sampled" shares ⌈K B / m⌉ for each client, the paper's O(K /
            N).
        privacy: noise on the shared scores; None shares them as they are.
        guard: κ, how many times as long as at the first step gradients may become before all clients shorten their
            steps; inf is the box.
        normalised_weights: whether local steps have equal length where labels are skewed; not in the box.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.FedX2(problem=fs.risks.partial_auc(fs.models.mlp(30, [16], 1), temperature=0.5)).averaging
        0.1

    **Deviations from the paper**: those of FedX1, and

    - u(z) starts at its first observed value, as u = 0 has no log. The first lazy u, of the scores of lines 3-4, are
      observed by the server on at most 1024 lazy scores of S2.
    - Line 14 shares scores of fresh samples and line 15 the u of others; here the u that is shared is that of the same
      sample, as eq. (9) has it. Where it has none yet, it gets one: sharing a fresh sample marks its u as seen.
    - Where the risk is the log of a mean over S1 (two-way partial AUC), that mean is tracked by the server with γ.
    - A lazy u, which is out of date, may make a pair worth at most `pair_cap` times its sample's mean (inf is the box).
      By default that is |S2|, which a u that is up to date never exceeds; active pairs, whose u has just seen them, are
      then not capped at all.

    With `normalised_weights` every client's gradient is divided by `s_i = max(ω1_i, ω2_i) / s̄`, with s̄ the mean of the
    numerators over all clients, and its changes of w and G are multiplied by s_i before they are averaged: the same
    direction to first order, but local steps of like length, where labels are skewed.
    """

    problem: PairwiseProblem
    sampled_clients: int | None = None  # |P^r|
    local_steps: int = 32  # K
    batch_size: int = 32  # B1
    second_batch_size: int | None = None  # B2
    primal_step: Step = 0.03  # η
    tracking: float | None = None  # γ
    averaging: float = 0.1  # β
    pair_cap: float | None = None
    buffer_rounds: int = 1  # τ
    sharing: str = "all"
    privacy: ScorePrivacy | None = None
    guard: float = 2.0  # κ
    normalised_weights: bool = False

    def __post_init__(self) -> None:
        scores.check_sharing(self)
        if self.tracking is not None:
            number("tracking", self.tracking, above=0, most=1)
        number("averaging", self.averaging, above=0, most=1)
        flag("normalised_weights", self.normalised_weights)
        if self.pair_cap is not None:
            number("pair_cap", self.pair_cap, above=0, infinite=True)  # infinity never caps

    def start(self, clients: Clients) -> FedX2State:
        """Line 2."""
        cohort_size(self.sampled_clients, clients)
        w = self.problem.initial()
        return FedX2State(w, torch.zeros_like(w))

    def round(self, server: FedX2State, clients: Clients, rng: np.random.Generator) -> FedX2State:
        """Lines 25-27 (28-32 of Algorithm 3); the first round begins with lines 3-4."""
        R, scale, mean_weight = server.buffers(), server.scale, server.mean_weight
        if R is None:
            R, scale = self._first_u(*scores.collect_first_scores(self, self.first_scores, server.w, clients, rng))
            if self.normalised_weights:
                asked = clients.ask(np.arange(clients.count), self.own_weight, Means(R[0].mean, R[1].mean))
                mean_weight = float(asked[1].s)
        R1, R2 = R
        m, N = cohort_size(self.sampled_clients, clients), clients.count
        P, η = rng.choice(N, m, replace=False), at(self.primal_step, server.rounds)
        both = (R1.scores, R2.scores, R1.mean, R2.mean)
        sent = Start(server.w, server.G, *both, N, η * server.pace, m, scale, mean_weight, server.reference)  # line 26
        _, local = clients.ask(P, self.local_sgd, sent)
        pace, t = paced(self.guard, server, local)
        if local.growth is not None:
            scale += math.log(max(1e-6, 1 - self._γ + self._γ * float(local.growth)))
        w, G = moved(server.w, local.w, t), moved(server.G, local.G, t)
        after = replace(server, w=w, G=G, scale=scale).paced(pace)  # line 27
        if self.normalised_weights:
            after = replace(after, w=self.problem.project_x(local.w[None])[0], mean_weight=mean_weight)
        if t < HALF:
            return after.holding(R1, R2)
        return after.holding(*scores.update_buffers(self, R, local, after.rounds, rng))  # line 25

    def first_scores(self, own: InnerMeans, sent: Opening, site: Site) -> tuple[None, First]:
        """Lines 3-4."""
        return None, scores.first_scores(self, sent, site)

    def own_weight(self, own: InnerMeans, sent: Means, site: Site) -> tuple[None, Weight]:
        """max(ω1_i, ω2_i), once, for normalised weights."""
        n1, n2 = set_sizes(self, site, self.problem.initial())
        return None, Weight(torch.maximum(n1 / sent.mean1, n2 / sent.mean2).squeeze(1))

    def fresh(self, site: Site) -> InnerMeans:
        """Line 2: no u(z) has been observed."""
        return unobserved(self.problem, site)

    @task(reason=BY_PAIRS)
    def local_sgd(self, own: InnerMeans, sent: Start, site: Site) -> tuple[InnerMeans, Local]:
        """Lines 7-20."""
        risk, K, η, γ, β = self.problem, self.local_steps, sent.step, self._γ, self.averaging
        w, G = (site.broadcast(v).clone(memory_format=torch.contiguous_format) for v in (sent.w, sent.G))
        n1, n2 = set_sizes(self, site, w)
        ω = (n1 / sent.mean1, n2 / sent.mean2)  # ω1_i and ω2_i
        B1 = lazy_batches(self, site, sent.scores1, FIRST, risk.loss.parts)  # lines 7-8; C_i is B1's column of u
        B2 = lazy_batches(self, site, sent.scores2, SECOND)  # lines 7-8
        H1, H2 = Shared(self, site, FIRST, n1, sent.cohort), Shared(self, site, SECOND, n2, sent.cohort)  # line 9
        s = torch.maximum(*ω) / sent.mean_weight if self.normalised_weights else None  # s_i, (C, 1)
        watch = scores.watch(self, sent.reference, sent.cohort, w)
        scale, growth, (active, lazy) = w.new_full((1, 1), sent.scale), w.new_zeros(len(w)), self._ratio_caps(sent)
        for k in range(K):  # line 10
            x, (z1, z2, ẑ1, ẑ2) = draw(self, site, k, fresh=(H1.at(k), H2.at(k)))  # lines 11, 14
            ξ, ζ = B2[k], B1[k]  # line 12, with the buffers of eq. (9)
            (h1, h2, ĥ1, ĥ2), pull_, statistics = score(risk, w, x, (z1, z2, ẑ1, ẑ2), ω, watch)  # lines 13-14
            u = own.update(risk, z1, risk.inner_mean(h1, ξ), γ)  # line 15, eq. (8)
            r1, r2 = H1.release(k, ĥ1), H2.release(k, ĥ2)  # line 14: as they may leave the client
            û = risk.inner_mean(r1, ξ)  # for rows that have no u yet
            H1.add(ẑ1, r1, own.of(ẑ1, û) if self.privacy is None else û)  # line 14
            H2.add(ẑ2, r2)  # line 14
            g1, _ = risk.slopes(h1, ξ, u, scale, active)  # line 16, eq. (9): ω1_i ω2_ξ ∇f(u) ∇₁ℓ(h1, h_ξ)
            _, g2 = risk.slopes(ζ, h2, ζ.u, scale, lazy)  # line 16, eq. (9): ω1_ζ ω2_i ∇f(u_ζ) ∇₂ℓ(h_ζ, h2)
            if s is not None:
                g1, g2 = g1 / s.unsqueeze(2), g2 / s.unsqueeze(2)
            pull_(G, 1 - β, β, g1, g2)  # line 17: G ← (1 - β) G + β (g1 ∇h(w; z1) + g2 ∇h(w; z2))
            w = risk.write_statistics_(risk.project_x(w.sub_(G, alpha=η)), statistics)  # line 18: w ← w - η G
            if risk.outer.tracked:
                growth += (h1.weight * (risk.outer.value(u) - scale).clamp_max(lazy.sample).exp()).mean(1) / K
        if s is not None:
            w, G = self._scaled(w, sent.w, s), self._scaled(G, sent.G, s)
        lengths = (None, None) if watch is None else watch.lengths(w.dtype)
        growth_ = growth if risk.outer.tracked else None
        return own, Local(w, G, H1.packed(), H2.packed(), growth_, *lengths)  # lines 20, 6

    @property
    def _γ(self) -> float:
        """The tracking, or its default."""
        return (0.1 if isinstance(self.problem.outer, Ratio) else 0.9) if self.tracking is None else self.tracking

    def _scaled(self, now: Tensor, before: Tensor, s: Tensor) -> Tensor:
        """`before + s_i (now - before)`, without the statistics of BatchNorm."""
        scaled, tail = before + s * (now - before), self.problem.tail
        if tail:
            scaled[..., -tail:] = now[..., -tail:]
        return scaled

    def _ratio_caps(self, sent: Start) -> tuple[RatioCaps, RatioCaps]:
        """Log-caps on f(u) / mean f per sample and on ℓ / u per pair.

        Of active pairs, whose u has just seen them, and of lazy ones.
        """
        if self.pair_cap is not None:
            both = RatioCaps(math.log(self.pair_cap), math.log(self.pair_cap))
            return both, both
        most = RatioCaps(math.log(sent.clients * sent.mean1), math.log(sent.clients * sent.mean2))
        return most._replace(pair=math.inf), most

    def _first_u(self, R1: Buffer, R2: Buffer) -> tuple[Buffers, float]:
        """The first R_1 with a u for each of its scores, and the log of the mean of f."""
        risk, columns = self.problem, Columns.of(self.problem, FIRST)
        ξ = Columns.of(risk, SECOND).unpack(R2.scores[None, :PARTNERS])
        ζ = columns.unpack(R1.scores)
        parts = [columns.unpack(part[None]) for part in torch.split(R1.scores, PARTNERS)]
        u = torch.cat([risk.inner_mean(part, ξ)[0] for part in parts])
        logs = risk.outer.value(u) + ζ.weight.log()
        scale = float(logs.logsumexp(0)) - math.log(len(u)) if risk.outer.tracked else 0.0
        return (replace(R1, scores=columns.pack(replace(ζ, u=u))), R2), scale

    def model(self, server: FedX2State) -> Tensor:
        """The last w."""
        return server.w

    def guarantee(self, rounds: int) -> dict[str, float | str] | None:
        """The privacy guarantee of the noise on shared scores after `rounds` rounds."""
        return scores.guarantee(self, rounds)

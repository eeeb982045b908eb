"""FedX1: pairwise risks with linear f, by active scores of own rows and lazy scores of everybody's (Algorithm 1)."""

from __future__ import annotations

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
    BufferState,
    First,
    Opening,
    ScorePrivacy,
    Shared,
    draw,
    lazy_batches,
    score,
    set_sizes,
)
from fedsaddle.algorithms.local_steps import cohort_size
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, ExactBounds, Pooled, UpdateOf
from fedsaddle.federation.tasks import task
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.protocols import PairwiseProblem

NAMED = {
    "FedX1": {
        "class": "FedX1",
        "about": "pairwise risks, linear f",
        "source": "Guo, Jin, Luo, Yang 2023, Alg. 1",
        "kind": "pairwise",
    },
}


@dataclass(frozen=True)
class Start:
    """Server to client: the model, R_1 and R_2, |S1| / N and |S2| / N, the step and the cohort's size."""

    w: Tensor
    scores1: Tensor
    scores2: Tensor
    mean1: float
    mean2: float
    step: float
    cohort: int
    reference: float = 0.0  # ρ, of the guard


@dataclass(frozen=True)
class Local:
    """Client to server: the model after K steps, and the scores H_{i,1} and H_{i,2}."""

    w: Annotated[Averaged, UpdateOf("w")]
    scores1: Annotated[Pooled, ExactBounds.WEIGHTS_FIRST]
    scores2: Annotated[Pooled, ExactBounds.WEIGHTS_FIRST]
    first: Averaged | None = None  # norm of the gradient at the first step, for the guard
    length: Averaged | None = None  # and the root of its mean square over the steps


@dataclass(frozen=True)
class FedX1State(BufferState):
    """The server's state: the model beside the buffers."""

    w: Tensor


@dataclass(frozen=True, kw_only=True)
class FedX1:
    """FedX1 (Guo, Jin, Luo, Yang 2023, Algorithm 1), for pairwise risks whose outer function is the identity.

    Client i pairs its own scores with scores of all clients from the last τ rounds, taken without replacement:
    `w ← w - η (ω1_i ω2_ξ ∇₁ℓ(h(w; z₁), h_ξ) ∇h(w; z₁) + ω1_ζ ω2_i ∇₂ℓ(h_ζ, h(w; z₂)) ∇h(w; z₂))`, over minibatches of
    B1 and B2 of each; `ω1_i = N |S1_i| / |S1|`. Clients without rows of one set take part with the other.

    Args:
        problem: the problem to solve.
        sampled_clients: |P^r|, clients sampled in each round; None samples all.
        local_steps: K, local steps of a client in each round.
        batch_size: B1, rows of the minibatch of S1.
        second_batch_size: B2, rows of the minibatch of S2; None is B1.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        buffer_rounds: τ, rounds whose scores stay in the buffers.
        sharing: "all" shares all scores of a round; "sub-sampled" shares ⌈K B / m⌉ for each client, the paper's O(K /
            N).
        privacy: noise on the shared scores; None shares them as they are.
        guard: κ, how many times as long as at the first step gradients may become before all clients shorten their
            steps; inf is the box.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.FedX1(problem=fs.risks.auc(fs.models.mlp(30, [16], 1)), sharing="sub-sampled").buffer_rounds
        1

    **Deviations from the paper**: eqs. (4) and (5) rule where line 12 swaps the buffers; in the weights of shared
    scores N counts the clients that have such rows, as the others send none; the server keeps the last τ rounds, so
    that a client that was away sees what the others see; scores may be sub-sampled, as the text allows, or noised;
    where gradients explode, because lazy scores do not answer to a step, a `guard` shortens the steps of all clients
    alike (inf is the box), which leaves the stationary point where it is.
    """

    problem: PairwiseProblem
    sampled_clients: int | None = None  # |P^r|
    local_steps: int = 32  # K
    batch_size: int = 32  # B1
    second_batch_size: int | None = None  # B2
    primal_step: Step = 0.03  # η
    buffer_rounds: int = 1  # τ
    sharing: str = "all"
    privacy: ScorePrivacy | None = None
    guard: float = 2.0  # κ

    def __post_init__(self) -> None:
        scores.check_sharing(self)
        if not self.problem.outer.linear:
            name = type(self.problem.outer).__name__
            raise BadInput("problem.outer", name, "FedX1 is for the identity; use FedX2")

    def start(self, clients: Clients) -> FedX1State:
        """Line 2."""
        cohort_size(self.sampled_clients, clients)
        return FedX1State(self.problem.initial())

    def round(self, server: FedX1State, clients: Clients, rng: np.random.Generator) -> FedX1State:
        """Lines 22-27; the first round begins with lines 3-4."""
        R = server.buffers() or scores.collect_first_scores(self, self.first_scores, server.w, clients, rng)
        R1, R2 = R
        m = cohort_size(self.sampled_clients, clients)
        P, η = rng.choice(clients.count, m, replace=False), at(self.primal_step, server.rounds)
        s, ρ = server.pace, server.reference
        sent = Start(server.w, R1.scores, R2.scores, R1.mean, R2.mean, η * s, m, ρ)  # lines 24-25
        _, local = clients.ask(P, self.local_sgd, sent)
        pace, t = paced(self.guard, server, local)
        after = replace(server, w=moved(server.w, local.w, t)).paced(pace)  # line 26
        if t < HALF:
            return after.holding(R1, R2)
        return after.holding(*scores.update_buffers(self, R, local, after.rounds, rng))  # line 23

    def first_scores(self, own: None, sent: Opening, site: Site) -> tuple[None, First]:
        """Lines 3-4."""
        return None, scores.first_scores(self, sent, site)

    @task(reason=BY_PAIRS)
    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, Local]:
        """Lines 7-18."""
        risk, K, η = self.problem, self.local_steps, sent.step
        w = site.broadcast(sent.w).clone(memory_format=torch.contiguous_format)  # the steps write into it
        n1, n2 = set_sizes(self, site, w)
        ω = (n1 / sent.mean1, n2 / sent.mean2)  # ω1_i and ω2_i
        B1 = lazy_batches(self, site, sent.scores1, FIRST)  # lines 7-8
        B2 = lazy_batches(self, site, sent.scores2, SECOND)  # lines 7-8
        H1, H2 = Shared(self, site, FIRST, n1, sent.cohort), Shared(self, site, SECOND, n2, sent.cohort)  # line 9
        watch = scores.watch(self, sent.reference, sent.cohort, w)
        for k in range(K):  # line 10
            x, (z1, z2) = draw(self, site, k)  # line 11
            ξ, ζ = B2[k], B1[k]  # line 12, with the buffers of eqs. (4) and (5)
            (h1, h2), pull_, statistics = score(risk, w, x, (z1, z2), ω, watch)  # line 13
            H1.add(z1, H1.release(k, h1))  # line 14
            H2.add(z2, H2.release(k, h2))  # line 14
            g1, _ = risk.slopes(h1, ξ)  # line 15, eq. (4): ω1_i ω2_ξ ∇₁ℓ(h1, h_ξ)
            _, g2 = risk.slopes(ζ, h2)  # line 15, eq. (5): ω1_ζ ω2_i ∇₂ℓ(h_ζ, h2)
            pull_(w, 1.0, -η, g1, g2)  # line 16: w ← w - η (g1 ∇h(w; z1) + g2 ∇h(w; z2))
            w = risk.write_statistics_(risk.project_x(w), statistics)
        lengths = (None, None) if watch is None else watch.lengths(w.dtype)
        return None, Local(w, H1.packed(), H2.packed(), *lengths)  # lines 18, 6

    def model(self, server: FedX1State) -> Tensor:
        """The last w."""
        return server.w

    def guarantee(self, rounds: int) -> dict[str, float | str] | None:
        """What the noise on shared scores guarantees after some rounds."""
        return scores.guarantee(self, rounds)

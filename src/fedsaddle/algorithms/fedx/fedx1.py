"""FedX1: pairwise risks with linear f, by active scores of own rows and lazy scores of everybody's (Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedx.lazy_scores import (
    FIRST,
    SECOND,
    Shared,
    check,
    counted,
    drawn_together,
    label_of,
    taken,
    weighed,
)
from fedsaddle.algorithms.fedx.privacy import ScorePrivacy
from fedsaddle.algorithms.fedx.score_heap import First, HeapState, Opening, first_scores, heaped, opened
from fedsaddle.algorithms.hyperparameters import cohort_size
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, Pooled
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.pair_losses import Scores
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
    """Server to client: the model, the heaps R1 and R2, |S1| / N and |S2| / N, the step and the cohort's size."""

    w: Tensor
    scores1: Tensor
    scores2: Tensor
    mean1: float
    mean2: float
    step: float
    cohort: int


@dataclass(frozen=True)
class Local:
    """Client to server: the model after K steps, and the scores H_{i,1} and H_{i,2}."""

    w: Averaged
    scores1: Pooled
    scores2: Pooled


@dataclass(frozen=True)
class FedX1State(HeapState):
    """The server's memory: the model beside the heaps."""

    w: Tensor


@dataclass(frozen=True, kw_only=True)
class FedX1:
    """FedX1 (Guo, Jin, Luo, Yang 2023, Algorithm 1), for pairwise risks whose outer function is the identity.

    Client i pairs its own scores with scores of all clients from the last τ rounds, taken without replacement:
    `w ← w - η (ω1_i ω2_ξ ∇₁ℓ(h(w; z₁), h_ξ) ∇h(w; z₁) + ω1_ζ ω2_i ∇₂ℓ(h_ζ, h(w; z₂)) ∇h(w; z₂))`, over minibatches of
    B1 and B2 of each; `ω1_i = N |S1_i| / |S1|`. Clients without rows of one set take part with the other.

    **Deviations from the paper**: eqs. (4) and (5) rule where line 12 swaps the buffers; in the weights of shared
    scores N counts the clients that have such rows, as the others send none; the server keeps the last τ rounds, so
    that a client that was away sees what the others see.
    """

    problem: PairwiseProblem
    sampled_clients: int | None = None  # |P^r|; None: all
    local_steps: int = 32  # K
    batch_size: int = 32  # B1
    second_batch_size: int | None = None  # B2; None: B1
    primal_step: Step = 0.03  # η
    buffer_rounds: int = 1  # τ
    sharing: str = "all"  # or "sub-sampled": ⌈K B / m⌉ scores a client, the paper's O(K / N)
    privacy: ScorePrivacy | None = None

    def __post_init__(self) -> None:
        check(self)
        if not self.problem.outer.linear:
            name = type(self.problem.outer).__name__
            raise BadInput("problem.outer", name, "FedX1 is for the identity; use FedX2")

    def start(self, clients: Clients) -> FedX1State:
        """Line 2."""
        cohort_size(self.sampled_clients, clients)
        return FedX1State(self.problem.initial())

    def round(self, server: FedX1State, clients: Clients, rng: np.random.Generator) -> FedX1State:
        """Lines 22-27; the first round begins with lines 3-4."""
        R = server.heaps() or opened(self, self.first_scores, server.w, clients, rng)
        m = cohort_size(self.sampled_clients, clients)
        P, η = rng.choice(clients.count, m, replace=False), at(self.primal_step, server.rounds)
        sent = Start(server.w, R.scores1, R.scores2, R.mean1, R.mean2, η, m)  # lines 24-25
        _, local = clients.ask(P, self.local_sgd, sent)
        H = heaped(self, R, local, server.rounds + 1, rng)  # line 23
        return FedX1State(local.w, rounds=server.rounds + 1, **vars(H))  # line 26

    def first_scores(self, own: None, sent: Opening, site: Site) -> tuple[None, First]:
        """Lines 3-4."""
        return None, first_scores(self, sent, site)

    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, Local]:
        """Lines 7-18."""
        risk, w = self.problem, site.broadcast(sent.w).clone(memory_format=torch.contiguous_format)
        ζs, ξs = taken(self, sent.scores1, site, FIRST), taken(self, sent.scores2, site, SECOND)  # lines 7-8
        n1, n2 = counted(self, site, FIRST, w), counted(self, site, SECOND, w)
        ω1, ω2 = n1 / sent.mean1, n2 / sent.mean2
        H1, H2 = Shared(self, site, FIRST, n1, sent.cohort), Shared(self, site, SECOND, n2, sent.cohort)  # line 9
        for k, (ζ, ξ) in enumerate(zip(ζs, ξs, strict=True)):  # line 12
            x, (z1, z2) = drawn_together(self, site, k)  # line 11
            h, write_, statistics = risk.pushforward(w, x)  # line 13
            a, b = torch.split(h.flatten(2), [z1.y.shape[1], z2.y.shape[1]], 1)
            H1.add(z1, H1.hidden(a[:, : H1.at(k)], k))  # line 14
            H2.add(z2, H2.hidden(b[:, : H2.at(k)], k))
            g1, _ = risk.slopes(Scores(a, z1.y), ξ.scores, None, weighed(z1, ω1), ξ.weight)  # eq. (4)
            _, g2 = risk.slopes(ζ.scores, Scores(b, z2.y), None, ζ.weight, weighed(z2, ω2))  # eq. (5)
            write_(torch.cat([g1, g2], 1).view_as(h), w, 1.0, -sent.step)  # line 16
            w = risk.settle_(risk.project_x(w), statistics)
        return None, Local(w, H1.all(), H2.all())

    def model(self, server: FedX1State) -> Tensor:
        """The last w."""
        return server.w

    def guarantee(self, rounds: int) -> dict[str, Any] | None:
        """What the noise on shared scores guarantees after some rounds."""
        overlap = label_of(self.problem, FIRST) is None or label_of(self.problem, SECOND) is None
        return None if self.privacy is None else self.privacy.guaranteed(rounds, overlap)

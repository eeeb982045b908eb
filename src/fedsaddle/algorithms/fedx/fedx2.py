"""FedX2: pairwise risks with nonlinear f (Algorithm 2; with sampled clients Algorithm 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedx.inner_means import InnerMeans, blank
from fedsaddle.algorithms.fedx.lazy_scores import (
    FIRST,
    SECOND,
    Lazy,
    Shared,
    check,
    counted,
    drawn_together,
    label_of,
    size_of,
    taken,
    unpacked,
    weighed,
)
from fedsaddle.algorithms.fedx.privacy import ScorePrivacy
from fedsaddle.algorithms.fedx.score_heap import First, Heaps, HeapState, Opening, first_scores, heaped, opened
from fedsaddle.algorithms.hyperparameters import cohort_size
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged, Pooled
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.outers import RatioCaps
from fedsaddle.problems.pair_losses import Scores
from fedsaddle.problems.protocols import PairwiseProblem

PARTNERS = 1024  # scores that the first u of the heap are observed on

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
    """Server to client: model, gradient estimate, heaps, |S1| / N and |S2| / N, N, the step and the cohort's size."""

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


@dataclass(frozen=True)
class Local:
    """Client to server: model and gradient estimate after K steps, and the shared scores, with their u."""

    w: Averaged
    G: Averaged
    scores1: Pooled
    scores2: Pooled
    growth: Averaged | None = None  # of the mean of f over S1


@dataclass(frozen=True)
class FedX2State(HeapState):
    """The server's memory: the model and the gradient estimate beside the heaps."""

    w: Tensor
    G: Tensor
    scale: float = 0.0


@dataclass(frozen=True, kw_only=True)
class FedX2:
    """FedX2 (Guo, Jin, Luo, Yang 2023, Algorithms 2 and 3), for pairwise risks with any outer function f.

    Each client keeps u(z) for its rows z of S1, `u ← (1 - γ) u + γ ω2_ξ ℓ(h(w; z), h_ξ)`, and a gradient estimate
    `G ← (1 - β) G + β (G1 + G2)` with the weights f'(u) of eq. (9); models and G are averaged.

    **Deviations from the paper**: as FedX1's, and: u(z) starts at its first observed value (u = 0 has no log); where
    line 14 shares scores of fresh samples, the u that is shared is that of the same sample, as eq. (9) has it; where
    the risk is the log of a mean over S1 (two-way partial AUC), that mean is tracked by the server with γ; and a lazy
    u, which is out of date, may make a pair worth at most `pair_cap` times its sample's mean (inf is the box).
    """

    problem: PairwiseProblem
    sampled_clients: int | None = None  # |P^r|; None: all
    local_steps: int = 32  # K
    batch_size: int = 32  # B1
    second_batch_size: int | None = None  # B2; None: B1
    primal_step: Step = 0.03  # η
    tracking: float = 0.9  # γ
    averaging: float = 0.1  # β
    pair_cap: float | None = None  # ℓ / u is at most this; None: B2 / γ, which pairs of active u never exceed
    buffer_rounds: int = 1  # τ
    sharing: str = "all"  # or "sub-sampled": ⌈K B / m⌉ scores a client, the paper's O(K / N)
    privacy: ScorePrivacy | None = None

    def __post_init__(self) -> None:
        check(self)
        if self.pair_cap is not None and not self.pair_cap > 0:
            raise BadInput("pair_cap", self.pair_cap, "must be positive; infinity never caps")
        for key in ("tracking", "averaging"):
            if not 0 < getattr(self, key) <= 1:
                raise BadInput(key, getattr(self, key), "must be above 0 and at most 1")

    def start(self, clients: Clients) -> FedX2State:
        """Line 2."""
        cohort_size(self.sampled_clients, clients)
        w = self.problem.initial()
        return FedX2State(w, torch.zeros_like(w))

    def round(self, server: FedX2State, clients: Clients, rng: np.random.Generator) -> FedX2State:
        """Lines 25-27 (28-32 of Algorithm 3); the first round begins with lines 3-4."""
        R, scale = server.heaps(), server.scale
        if R is None:
            R, scale = self._observed(opened(self, self.first_scores, server.w, clients, rng))
        m = cohort_size(self.sampled_clients, clients)
        P, η = rng.choice(clients.count, m, replace=False), at(self.primal_step, server.rounds)
        means = (R.mean1, R.mean2, clients.count)
        sent = Start(server.w, server.G, R.scores1, R.scores2, *means, η, m, scale)  # line 26
        _, local = clients.ask(P, self.local_sgd, sent)
        H = heaped(self, R, local, server.rounds + 1, rng)  # line 25
        if local.growth is not None:
            scale += math.log(max(1e-6, 1 - self.tracking + self.tracking * float(local.growth)))
        return FedX2State(local.w, local.G, scale, rounds=server.rounds + 1, **vars(H))  # line 27

    def first_scores(self, own: InnerMeans, sent: Opening, site: Site) -> tuple[None, First]:
        """Lines 3-4."""
        return None, first_scores(self, sent, site)

    def fresh(self, site: Site) -> InnerMeans:
        """No u(z) has been observed."""
        return blank(self.problem, site)

    def local_sgd(self, own: InnerMeans, sent: Start, site: Site) -> tuple[InnerMeans, Local]:
        """Lines 7-20."""
        risk, q = self.problem, self.problem.loss.parts
        w, G = (site.broadcast(v).clone(memory_format=torch.contiguous_format) for v in (sent.w, sent.G))
        ζs, ξs = taken(self, sent.scores1, site, FIRST, q), taken(self, sent.scores2, site, SECOND)  # lines 7-8
        n1, n2 = counted(self, site, FIRST, w), counted(self, site, SECOND, w)
        ω1, ω2 = n1 / sent.mean1, n2 / sent.mean2
        H1, H2 = Shared(self, site, FIRST, n1, sent.cohort), Shared(self, site, SECOND, n2, sent.cohort)  # line 9
        scale, growth = w.new_full((1, 1), sent.scale), w.new_zeros(len(w))
        most = self._most(sent)
        for k, (ζ, ξ) in enumerate(zip(ζs, ξs, strict=True)):  # line 12
            fresh = (H1.at(k), H2.at(k))
            x, (z1, z2, ẑ1, ẑ2) = drawn_together(self, site, k, fresh)  # lines 11, 14
            h, write_, statistics = risk.pushforward(w, x, sum(fresh))  # line 13
            h1, h2, ĥ1, ĥ2 = torch.split(h.flatten(2), [z.y.shape[1] for z in (z1, z2, ẑ1, ẑ2)], 1)
            a, b, c1 = Scores(h1, z1.y), Scores(h2, z2.y), weighed(z1, ω1)
            u = own.update(risk, z1, risk.inner_mean(a, ξ.scores, ξ.weight), self.tracking)  # line 15, eq. (8)
            self._share(own, k, Scores(ĥ1, ẑ1.y), ẑ1, ξ, H1)  # line 14
            H2.add(ẑ2, H2.hidden(ĥ2, k))
            g1, _ = risk.slopes(a, ξ.scores, u, c1, ξ.weight, scale, most)  # eq. (9)
            _, g2 = risk.slopes(ζ.scores, b, ζ.u, ζ.weight, weighed(z2, ω2), scale, most)
            write_(
                torch.cat([g1, g2], 1).view(len(w), -1, *h.shape[2:]), G, 1 - self.averaging, self.averaging
            )  # line 17
            w = risk.settle_(risk.project_x(w.sub_(G, alpha=sent.step)), statistics)  # line 18
            if risk.outer.tracked:
                growth += (c1 * (risk.outer.value(u) - scale).clamp_max(most.sample).exp()).mean(1) / self.local_steps
        return own, Local(w, G, H1.all(), H2.all(), growth if risk.outer.tracked else None)

    def _share(self, own: InnerMeans, k: int, a: Scores, ẑ: Batch, ξ: Lazy, H1: Shared) -> None:
        """Scores of fresh samples of S1, with the u of theirs."""
        hidden = a._replace(h=H1.hidden(a.h, k))
        u = self.problem.inner_mean(hidden, ξ.scores, ξ.weight)
        H1.add(ẑ, hidden.h, u if self.privacy is not None else own.known(ẑ, u))

    def _most(self, sent: Start) -> RatioCaps:
        """What a pair can be worth, beside its sample's mean, and a sample beside the mean of all."""
        if self.pair_cap is not None:
            return RatioCaps(math.log(self.pair_cap), math.log(self.pair_cap))
        of_batch = (size_of(self, FIRST) / self.tracking, size_of(self, SECOND) / self.tracking)
        of_all = (sent.clients * sent.mean1, sent.clients * sent.mean2)
        return RatioCaps(*(math.log(min(both)) for both in zip(of_batch, of_all, strict=True)))

    def _observed(self, R: Heaps) -> tuple[Heaps, float]:
        """The first heap with a u for each of its scores, and the log of the mean of f."""
        risk = self.problem
        ξ = unpacked(risk, R.scores2[None, :PARTNERS], SECOND)
        ζ = [unpacked(risk, part[None], FIRST) for part in torch.split(R.scores1, PARTNERS)]
        u = torch.cat([risk.inner_mean(part.scores, ξ.scores, ξ.weight)[0] for part in ζ])
        logs = risk.outer.value(u) + R.scores1[:, 0].log()
        scale = float(logs.logsumexp(0)) - math.log(len(u)) if risk.outer.tracked else 0.0
        return replace(R, scores1=torch.cat([R.scores1, u], 1)), scale

    def model(self, server: FedX2State) -> Tensor:
        """The last w."""
        return server.w

    def guarantee(self, rounds: int) -> dict[str, Any] | None:
        """What the noise on shared scores guarantees after some rounds."""
        overlap = label_of(self.problem, FIRST) is None or label_of(self.problem, SECOND) is None
        return None if self.privacy is None else self.privacy.guaranteed(rounds, overlap)

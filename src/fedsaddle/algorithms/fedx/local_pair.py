"""Pairs of own rows alone: the local baseline of FedX, and with all rows in one place its centralised references."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedx.scores import BY_PAIRS, InnerMeans, check, draw, score, unobserved
from fedsaddle.algorithms.local_steps import cohort_size
from fedsaddle.arguments import flag, number
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, UpdateOf
from fedsaddle.federation.tasks import task
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.protocols import PairwiseProblem

NAMED = {
    "Local Pair": {
        "class": "LocalPair",
        "about": "pairwise risks, own pairs alone",
        "source": "Guo, Jin, Luo, Yang 2023",
        "kind": "pairwise",
    },
    "Centralised SGD": {
        "class": "LocalPair",
        "about": "pairwise, all rows in one place, linear f",
        "source": "Guo, Jin, Luo, Yang 2023",
        "kind": "pairwise",
        "fixed": {"centralised": True, "averaging": 1.0},
    },
    "SOX": {
        "class": "LocalPair",
        "about": "pairwise, all rows in one place, any f",
        "source": "Wang, Yang 2022",
        "kind": "pairwise",
        "fixed": {"centralised": True},
    },
}


@dataclass(frozen=True)
class OwnMeans(InnerMeans):
    """A client's state: u(z) over its own pairs, and the log of the mean of f over S1, where that is tracked."""

    scale: Tensor  # (C,)
    begun: Tensor  # (C,): whether scale holds anything

    def track(self, risk: PairwiseProblem, u: Tensor, γ: float) -> Tensor | None:
        """The log of the mean of f, moved towards that of this batch; (C, 1)."""
        if not risk.outer.tracked:
            return None
        now = risk.outer.value(u).logsumexp(1) - math.log(u.shape[1])
        moved = now if γ >= 1 else torch.logaddexp(self.scale + math.log1p(-γ), now + math.log(γ))
        self.scale.copy_(torch.where(self.begun, moved, now))
        self.begun.fill_(True)
        return self.scale.unsqueeze(1).clone()


@dataclass(frozen=True)
class Start:
    """Server to client: the model, the gradient estimate and the step."""

    w: Tensor
    G: Tensor
    step: float


@dataclass(frozen=True)
class Local:
    """Client to server: both after K steps."""

    w: Annotated[Averaged, UpdateOf("w")]
    G: Averaged


@dataclass(frozen=True)
class LocalPairState:
    """The server's state."""

    w: Tensor
    G: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class LocalPair:
    """Local Pair, the baseline of FedX: each client optimises the risk of the pairs among its own rows.

    `u ← (1 - γ) u + γ ℓ(h(w; z₁), h(w; z₂))` where f is not linear, `G ← (1 - β) G + β ∇` and `w ← w - η G`, where both
    scores of every pair are active; then models and G are averaged. A client that lacks one of the two sets has no
    pairs, and only follows the others.

    With `centralised` all rows are in one place: minibatch SGD with `averaging=1.0`, which wants a linear f, and else
    SOX (Wang, Yang 2022).

    Args:
        problem: the problem to solve.
        centralised: whether one client has all rows.
        sampled_clients: clients sampled in each round; None samples all.
        local_steps: K, local steps of a client in each round.
        batch_size: B1, rows of the minibatch of S1.
        second_batch_size: B2, rows of the minibatch of S2; None is B1.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        tracking: γ, weight of the new value in the moving average u.
        averaging: β, weight of the new gradient in the moving average G; None is 1 if f is linear, else 0.1.

    Examples:
        >>> import fedsaddle as fs
        >>> sox = fs.LocalPair(problem=fs.risks.partial_auc(fs.models.mlp(30, [16], 1)), centralised=True)
        >>> sox.tracking
        0.9

    **Deviations from the papers**: u(z) starts at its first observed value; where the risk is the log of a mean over
    S1, each client tracks that mean with γ.
    """

    problem: PairwiseProblem
    centralised: bool = False
    sampled_clients: int | None = None
    local_steps: int = 32  # K
    batch_size: int = 32  # B1
    second_batch_size: int | None = None  # B2
    primal_step: Step = 0.03  # η
    tracking: float = 0.9  # γ
    averaging: float | None = None  # β

    def __post_init__(self) -> None:
        check(self)
        flag("centralised", self.centralised)
        number("tracking", self.tracking, above=0, most=1)
        if self.averaging is not None:
            number("averaging", self.averaging, above=0, most=1)
        if self.centralised and self.averaging == 1 and not self.problem.outer.linear:
            name = type(self.problem.outer).__name__
            remedy = f"minibatch SGD needs a linear outer function, not {name}; use SOX, with averaging below 1"
            raise BadInput("averaging", self.averaging, remedy)

    def start(self, clients: Clients) -> LocalPairState:
        """w_0 and G = 0."""
        if self.centralised and clients.count > 1:
            remedy = "a centralised method has all rows in one place; give it FederatedData.pooled()"
            raise BadInput("clients", clients.count, remedy)
        cohort_size(self.sampled_clients, clients)
        w = self.problem.initial()
        return LocalPairState(w, torch.zeros_like(w))

    def round(self, server: LocalPairState, clients: Clients, rng: np.random.Generator) -> LocalPairState:
        """K local steps and the averages."""
        P = rng.choice(clients.count, cohort_size(self.sampled_clients, clients), replace=False)
        η = at(self.primal_step, server.rounds)
        _, local = clients.ask(P, self.local_sgd, Start(server.w, server.G, η))
        return LocalPairState(local.w, local.G, server.rounds + 1)

    def fresh(self, site: Site) -> OwnMeans | None:
        """Where f is not linear: no u(z) has been observed."""
        if self.problem.outer.linear:
            return None
        own = unobserved(self.problem, site)
        return OwnMeans(
            own.u, own.seen, own.u.new_zeros(len(own.u)), torch.zeros(len(own.u), dtype=torch.bool, device=own.u.device)
        )

    @task(reason=BY_PAIRS)
    def local_sgd(self, own: OwnMeans | None, sent: Start, site: Site) -> tuple[OwnMeans | None, Local]:
        """Both scores of every pair are active."""
        risk, η, γ = self.problem, sent.step, self.tracking
        β = self.averaging or (1.0 if risk.outer.linear else 0.1)
        w, G = (site.broadcast(v).clone(memory_format=torch.contiguous_format) for v in (sent.w, sent.G))
        one = torch.ones(len(w), 1, dtype=w.dtype, device=w.device)
        u = scale = None
        for k in range(self.local_steps):
            x, (z1, z2) = draw(self, site, k)
            (h1, h2), pull_, statistics = score(risk, w, x, (z1, z2), (one, one))
            if own is not None:
                u = own.update(risk, z1, risk.inner_mean(h1, h2), γ)
                scale = own.track(risk, u, γ)
            pull_(G, 1 - β, β, *risk.slopes(h1, h2, u, scale))  # G ← (1 - β) G + β (G1 + G2)
            w = risk.write_statistics_(risk.project_x(w.sub_(G, alpha=η)), statistics)  # w ← w - η G
        return own, Local(w, G)

    def model(self, server: LocalPairState) -> Tensor:
        """The last w."""
        return server.w

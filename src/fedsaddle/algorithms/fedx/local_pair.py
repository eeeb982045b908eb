"""Pairs of own rows alone: the local baseline of FedX, and with all rows in one place its centralised references."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedx.inner_means import OwnMeans, blank_own
from fedsaddle.algorithms.fedx.lazy_scores import check, drawn_together, weighed
from fedsaddle.algorithms.hyperparameters import cohort_size
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.pair_losses import Scores
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
class Start:
    """Server to client: the model, the gradient estimate and the step."""

    w: Tensor
    G: Tensor
    step: float


@dataclass(frozen=True)
class Local:
    """Client to server: both after K steps."""

    w: Averaged
    G: Averaged


@dataclass(frozen=True)
class LocalPairState:
    """The server's memory."""

    w: Tensor
    G: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class LocalPair:
    """Local Pair, the baseline of FedX: each client optimises the risk of the pairs among its own rows.

    With all rows at one client it is the centralised method: minibatch SGD where f is linear, SOX (Wang, Yang 2022)
    where it is not. A client that lacks one of the two sets has no pairs, and only follows the others.
    """

    centralised: ClassVar[bool] = False
    problem: PairwiseProblem
    sampled_clients: int | None = None  # None: all
    local_steps: int = 32  # K
    batch_size: int = 32  # B1
    second_batch_size: int | None = None  # B2; None: B1
    primal_step: Step = 0.03  # η
    tracking: float = 0.9  # γ
    averaging: float | None = None  # β; None: 1 where f is linear, else 0.1

    def __post_init__(self) -> None:
        check(self)
        for key in ("tracking", "averaging"):
            value = getattr(self, key)
            if value is not None and not 0 < value <= 1:
                raise BadInput(key, value, "must be above 0 and at most 1")

    def start(self, clients: Clients) -> LocalPairState:
        """w_0 and G = 0."""
        if self.centralised and clients.count > 1:
            remedy = "is for all rows in one place; give it one client, such as FederatedData.in_one_place()"
            raise BadInput("clients", clients.count, f"{type(self).__name__} {remedy}")
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
        return None if self.problem.outer.linear else blank_own(self.problem, site)

    def local_sgd(self, own: OwnMeans | None, sent: Start, site: Site) -> tuple[OwnMeans | None, Local]:
        """Both scores of every pair are active."""
        risk = self.problem
        β = self.averaging or (1.0 if risk.outer.linear else 0.1)
        w, G = (site.broadcast(v).clone(memory_format=torch.contiguous_format) for v in (sent.w, sent.G))
        one = torch.ones(len(w), 1, dtype=w.dtype)
        for k in range(self.local_steps):
            x, (z1, z2) = drawn_together(self, site, k)
            h, write_, statistics = risk.pushforward(w, x)
            h1, h2 = torch.split(h.flatten(2), [z1.y.shape[1], z2.y.shape[1]], 1)
            a, b, c1, c2 = Scores(h1, z1.y), Scores(h2, z2.y), weighed(z1, one), weighed(z2, one)
            u = scale = None
            if own is not None:
                u = own.update(risk, z1, risk.inner_mean(a, b, c2), self.tracking)
                scale = own.scaled(risk, u, self.tracking)
            g = torch.cat(risk.slopes(a, b, u, c1, c2, scale), 1)
            write_(g.view_as(h), G, 1 - β, β)
            w = risk.settle_(risk.project_x(w.sub_(G, alpha=sent.step)), statistics)
        return own, Local(w, G)

    def model(self, server: LocalPairState) -> Tensor:
        """The last w."""
        return server.w


@dataclass(frozen=True, kw_only=True)
class CentralisedSgd(LocalPair):
    """Minibatch SGD on the pairs of all rows in one place, for linear f."""

    centralised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.problem.outer.linear:
            raise BadInput("problem.outer", type(self.problem.outer).__name__, "is not linear; use SOX")


@dataclass(frozen=True, kw_only=True)
class Sox(LocalPair):
    """SOX (Wang, Yang 2022) on all rows in one place, for any f."""

    centralised: ClassVar[bool] = True

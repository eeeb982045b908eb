"""DRFA-GA: the mixture by full gradient ascent (Algorithm 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.drfa import DrfaState, LocalLoss, Probe
from fedsaddle.algorithms.fedavg import LocalModel, Start
from fedsaddle.algorithms.local_sgd import check, cohort_size, iterates, one_of, positive
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.averages import Running
from fedsaddle.numerics.projections import Projection, Simplex
from fedsaddle.numerics.regularisers import Regulariser
from fedsaddle.problems.supervised import Minimisation


@dataclass(frozen=True, kw_only=True)
class DrfaGa:
    """DRFA-GA (Deng, Kamani, Mahdavi 2020, Algorithm 3): `λ ← Π_Λ(λ + γ (f(w̄) + ∇g(λ)))`, all clients, all rows.

    **Deviations from the paper**: D is drawn with replacement, as for DRFA; `output="average"` is the mean over the
    iterates after `average_after` rounds (give half of the rounds for the paper's T/2; its sum starts one iterate
    earlier and so weighs slightly more than 1). Where only n of the N clients answer line 12, their losses count N/n
    times and the others not at all, as in DRFA.
    """

    problem: Minimisation
    sampled_clients: int | None = None  # m; None: all
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: float = 0.1  # η
    dual_step: float = 8e-3  # γ
    regulariser: Regulariser | None = None  # g; None is 0
    projection: Projection | None = None  # Π_W
    output: str = "last"  # (2) of the box; "average" is (1)
    average_after: int = 0  # rounds left out of the average

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        positive("dual_step", self.dual_step)
        one_of("output", self.output, ("last", "average"))
        if self.average_after < 0:
            raise BadInput("average_after", self.average_after, "a number of rounds, at least 0")

    def start(self, clients: Clients) -> DrfaState:
        """w̄(0) and the uniform λ(0)."""
        cohort_size(self.sampled_clients, clients)
        N = clients.count
        return DrfaState(self.problem.initial(), torch.full((N,), 1 / N, dtype=torch.float64))

    def round(self, server: DrfaState, clients: Clients, rng: np.random.Generator) -> DrfaState:
        """Lines 2-14 of Algorithm 3."""
        m, N, λ, s = cohort_size(self.sampled_clients, clients), clients.count, server.lam, server.rounds
        D = rng.choice(N, m, p=λ.numpy() / float(λ.sum()))  # line 2
        _, local = clients.ask(D, self.local_sgd, Start(server.w))  # lines 3-10
        all_, f = clients.ask(np.arange(N), self.full_loss, Probe(server.w))  # lines 11-12
        slope = torch.zeros_like(λ)
        slope[all_] = N / len(all_) * f.loss.double()
        if self.regulariser is not None:
            slope += self.regulariser.gradient(λ)
        λ_next = Simplex()(λ + self.dual_step * slope)  # line 13
        late = s - self.average_after
        mean = Running.over(server.mean, local.path if late >= 0 else None, late)
        lam_mean = Running.over(server.lam_mean, λ if self.output == "average" else None, s)
        return DrfaState(local.final, λ_next, s + 1, mean, lam_mean)  # line 14

    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, LocalModel]:
        """Lines 5-8 and 10: τ projected steps."""
        path = Running() if self.output == "average" else None
        for w in iterates(self, site.each(sent.w), site):
            if path is not None:
                path.add(w)
        return None, LocalModel(w, path.mean if path is not None else None)

    def full_loss(self, own: None, sent: Probe, site: Site) -> tuple[None, LocalLoss]:
        """Line 12: the loss over all local rows."""
        return None, LocalLoss(self.problem.value(site.each(sent.w), site.everything()))

    def model(self, server: DrfaState) -> Tensor:
        """The solution so far."""
        return server.w if server.mean is None else server.mean

    def mixture(self, server: DrfaState) -> Tensor:
        """λ(s), or its mean over the rounds."""
        return server.lam if server.lam_mean is None else server.lam_mean

"""q-FedAvg: fairness by weighing clients with a power of their loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedavg import Start
from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort, last_iterate
from fedsaddle.arguments import choice, number
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged
from fedsaddle.federation.tasks import task
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Schedule, Step, at, divisor
from fedsaddle.problems.protocols import MinimisationProblem

NAMED = {
    "q-FedAvg": {
        "class": "QFedAvg",
        "about": "fairness by powers of the losses",
        "source": "Li et al. 2020",
        "kind": "minimisation",
    },
}


@dataclass(frozen=True)
class Update:
    """Client to server. Only their sums matter, so both fields are averaged."""

    delta: Averaged  # Δ_k = F_k^q Δw_k
    h: Averaged  # h_k = q F_k^{q-1} |Δw_k|² + F_k^q / η


@dataclass(frozen=True)
class QFedAvgState:
    """The server's state."""

    w: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class QFedAvg:
    """q-FedAvg (Li, Sanjabi, Beirami, Smith 2020, Algorithm 2), which minimises `Σ_k F_k^{q+1} / (q + 1)`.

    With `Δw_k = (w - w_k) / η` after τ local steps and F_k the client's loss at the round's start model,
    `Δ_k = F_k^q Δw_k`, `h_k = q F_k^{q-1} |Δw_k|² + F_k^q / η`, and `w ← w - Σ Δ_k / Σ h_k`. q = 0 is FedAvg with
    uniform weights.

    Args:
        problem: the problem to solve.
        q: exponent of the losses; 0 is FedAvg with uniform weights, a large q weights the worst client.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η = 1/L, learning rate of the local steps, a number or a schedule.
        sampling: "uniform" samples clients without replacement, "size" in proportion to their rows with replacement, as
            in the paper.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.QFedAvg(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), q=1.0).q
        1.0

    **Deviations from the paper**: L is 1/η, as in its experiments, of each round where η has a schedule; F_k is
    measured on all of the client's rows and kept above 1e-10, so that F_k^{q-1} stays finite; clients are drawn
    uniformly without replacement, or with `sampling="size"` in proportion to their rows with replacement, as the
    paper's p_k.
    """

    local_optimiser: ClassVar[None] = None  # Δw_k / η must be a sum of gradients

    problem: MinimisationProblem
    q: float = 0.2
    sampled_clients: int | None = None  # m
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: Step = 0.1  # η = 1/L
    sampling: str = "uniform"
    projection: Projection | None = None  # Π_W

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        choice("sampling", self.sampling, ("uniform", "size"))
        number("q", self.q, least=0)

    def start(self, clients: Clients) -> QFedAvgState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        return QFedAvgState(self.problem.initial())

    def round(self, server: QFedAvgState, clients: Clients, rng: np.random.Generator) -> QFedAvgState:
        """Lines 3-8 of Algorithm 2."""
        m, N = cohort_size(self.sampled_clients, clients), clients.count
        if self.sampling == "size":
            S = rng.choice(N, m, p=clients.sizes / clients.sizes.sum())  # line 3: p_k = n_k / n
        else:
            S = draw_cohort(rng, N, m)  # line 3
        η = divisor("primal_step", self.primal_step, server.rounds) if isinstance(self.primal_step, Schedule) else None
        _, update = clients.ask(S, self.local_sgd, Start(server.w, η))  # lines 4, 7
        return QFedAvgState(server.w - update.delta / update.h, server.rounds + 1)  # line 8

    @task(reason="its clients send the loss of all rows at many models, which has no bound; use FedAvg or DRFA")
    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, Update]:
        """Lines 5-7: the loss at the start model, τ local steps, and what they make."""
        w, q = site.broadcast(sent.w), self.q
        η = at(self.primal_step, 0) if sent.step is None else sent.step
        F = self.problem.value(w, site.everything()).clamp(min=1e-10)  # line 6: F_k(w)
        Δw = (w - last_iterate(self, w, site, sent.step)) / η  # lines 5-6: Δw_k = L (w - w_k)
        h = q * F ** (q - 1) * Δw.square().sum(-1) + F**q / η  # line 6: h_k
        return None, Update(torch.mul(Δw, (F**q)[:, None]), h)  # lines 6-7: Δ_k = F_k^q Δw_k

    def model(self, server: QFedAvgState) -> Tensor:
        """The solution so far."""
        return server.w

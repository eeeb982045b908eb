"""TERM: tilted empirical risk, a smooth maximum of the clients' losses; and `LossesFirst`, which it shares with others.

A method of this family asks clients for their losses first, and then weighs the clients' models by them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.drfa import LocalLoss, Probe
from fedsaddle.algorithms.fedavg import LocalModel, Start
from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort, last_iterate, without_outliers
from fedsaddle.arguments import choice, number
from fedsaddle.array_types import Ints
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.optimisers import LocalOptimiser
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Step, if_scheduled
from fedsaddle.problems.protocols import MinimisationProblem


@dataclass(frozen=True, kw_only=True)
class LossesFirst:
    """Local SGD, and the loss of a model over all local rows."""

    problem: MinimisationProblem
    sampled_clients: int | None = None  # m; None: all
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: Step = 0.1  # η
    local_optimiser: LocalOptimiser | None = None  # of the local steps; None: SGD
    projection: Projection | None = None  # Π_W
    trimmed: float = 0.0  # ε of DORO: the share of the largest losses that is left out; 0 is the box

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        number("trimmed", self.trimmed, least=0, below=1)

    def ask_losses(self, clients: Clients, S: Ints, w: Tensor) -> tuple[Ints, Tensor]:
        """Who answered, and F_i(w) of each in double precision, without outliers."""
        S, f = clients.ask(S, self.local_loss, Probe(w))
        return without_outliers(S, f.loss.double().cpu(), self.trimmed)

    def local_loss(self, own: None, sent: Probe, site: Site) -> tuple[None, LocalLoss]:
        """F_i(w), over all local rows."""
        return None, LocalLoss(self.problem.value(site.broadcast(sent.w), site.everything()))

    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, LocalModel]:
        """τ local steps."""
        return None, LocalModel(last_iterate(self, site.broadcast(sent.w), site, sent.step))


NAMED = {
    "TERM": {
        "class": "Term",
        "about": "tilted losses: a smooth maximum over clients",
        "source": "Li et al. 2021",
        "kind": "minimisation",
    },
}


@dataclass(frozen=True)
class TermState:
    """The server's state."""

    w: Tensor
    rounds: int = 0
    mean: Tensor | None = None  # log E, or as published E; None before the first round and where it is not kept


@dataclass(frozen=True, kw_only=True)
class Term(LossesFirst):
    """TERM (T. Li, Beirami, Sanjabi, Smith 2021), which minimises `(1/t) log mean_i exp(t F_i(w))`.

    A client's change counts by `a_i = exp(t F_i) / (m E)`, with E the mean of `exp(t F_i)` over the cohort, or a
    running one. t → 0 is FedAvg with uniform weights, t → ∞ the worst client of the cohort.

    Args:
        problem: the problem to solve.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        local_optimiser: optimiser of the local steps, of `fs.optimisers`; None is SGD.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.
        trimmed: share of the largest losses that is ignored, such as those of wrong labels (ε of DORO); 0 is the box.
        tilt: t, exponent of the losses; towards 0 it is FedAvg, a large t weights the worst client.
        normaliser: "batch" computes E from the cohort; "running" averages it over rounds; "running_as_published" is the
            authors' trainer.
        averaging: l, weight of the new value in the running E.
        sampling: "uniform" samples clients with equal probability, "size" in proportion to their rows; both without
            replacement.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Term(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), tilt=2.0).normaliser
        'batch'

    **Deviations from the paper**: written after the authors' trainer. By default the a_i sum to 1 and weigh a mean;
    `normaliser="running"` keeps E from round to round, in logarithms and beginning with the first round's. The trainer
    scales E by another maximum each round, begins with 0, and divides once more by m: `"running_as_published"`.
    """

    tilt: float = 1.0  # t
    normaliser: str = "batch"
    averaging: float = 0.5  # l
    sampling: str = "uniform"

    def __post_init__(self) -> None:
        super().__post_init__()
        number("tilt", self.tilt, above=0)
        choice("normaliser", self.normaliser, ("batch", "running", "running_as_published"))
        number("averaging", self.averaging, above=0, most=1)
        choice("sampling", self.sampling, ("uniform", "size"))

    def start(self, clients: Clients) -> TermState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        return TermState(self.problem.initial())

    def round(self, server: TermState, clients: Clients, rng: np.random.Generator) -> TermState:
        """Lines 2-6 of the box."""
        m, N = cohort_size(self.sampled_clients, clients), clients.count
        if self.sampling == "size" and m < N:
            S = rng.choice(N, m, replace=False, p=clients.sizes / clients.sizes.sum())  # line 2
        else:
            S = draw_cohort(rng, N, m)  # line 2
        S, F = self.ask_losses(clients, S, server.w)  # line 3
        a, mean = self._weights(F, server.mean)  # lines 4-5
        η = if_scheduled(self.primal_step, server.rounds)
        _, local = clients.ask(S, self.local_sgd, Start(server.w, η), weights=a.numpy())  # line 6
        total = 1.0 if self.normaliser == "batch" else float(a.sum())
        w = local.final if total == 1.0 else server.w + total * (local.final - server.w)  # line 6
        return TermState(w, server.rounds + 1, mean)

    def model(self, server: TermState) -> Tensor:
        """The solution so far."""
        return server.w

    def _weights(self, F: Tensor, mean: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """a_i, and what is kept of E."""
        t, m, l = self.tilt, len(F), self.averaging  # noqa: E741
        if self.normaliser == "batch":
            return torch.softmax(t * F, 0), None
        if self.normaliser == "running":
            logE = torch.logsumexp(t * F, 0) - math.log(m)
            if mean is not None:
                logE = torch.logaddexp(mean + math.log1p(-l), logE + math.log(l)) if l < 1 else logE
            return torch.exp(t * F - logE) / m, logE
        tilted = torch.exp(t * (F - F.max()))
        E = (1 - l) * (0.0 if mean is None else mean) + l * tilted.mean()
        return tilted / (m * E) / m, E

"""FedNova: clients take epochs, and their updates are normalised by the number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedavg import Start
from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort
from fedsaddle.arguments import flag, number
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Step, at, if_scheduled
from fedsaddle.problems.protocols import MinimisationProblem

NAMED = {
    "FedNova": {
        "class": "FedNova",
        "about": "epochs, normalised by their steps",
        "source": "Wang et al. 2020",
        "kind": "minimisation",
    },
}


@dataclass(frozen=True)
class Normalised:
    """Client to server."""

    direction: Averaged  # (w - w_i) / (η τ_i)
    steps: Averaged  # τ_i


@dataclass(frozen=True)
class FedNovaState:
    """The server's state."""

    w: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class FedNova:
    """FedNova (Wang, Liu, Liang, Joshi, Poor 2020) for local SGD: `w ← w - η τ_eff Σ p_i (w - w_i) / (η τ_i)`.

    A client takes `epochs` passes over its rows, `τ_i = max(1, round(epochs n_i / batch_size))` minibatches, so larger
    clients move further and would bias a plain mean; the directions of one step each do not. `τ_eff = Σ p_i τ_i`, `p_i
    = n_i / n`. Where all clients have as many rows, it is FedAvg; with `normalised=False` it is FedAvg with epochs.

    Args:
        problem: the problem to solve.
        epochs: E, passes of a client over its rows in each round.
        normalised: whether updates are divided by their number of steps; False is FedAvg with epochs.
        sampled_clients: m, clients sampled in each round; None samples all.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.FedNova(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), epochs=2.0).normalised
        True

    **Deviations from the paper**: rows are drawn with replacement, as in all algorithms here; no momentum or proximal
    term at the clients.
    """

    local_optimiser: ClassVar[None] = None  # directions are sums of gradients
    local_steps: ClassVar[int] = 1  # of the shared checks; steps follow the rows

    problem: MinimisationProblem
    epochs: float = 1.0  # E
    normalised: bool = True
    sampled_clients: int | None = None  # m
    batch_size: int = 50
    primal_step: Step = 0.1  # η
    projection: Projection | None = None  # Π_W

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        number("epochs", self.epochs, above=0)
        flag("normalised", self.normalised)

    def start(self, clients: Clients) -> FedNovaState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        return FedNovaState(self.problem.initial())

    def round(self, server: FedNovaState, clients: Clients, rng: np.random.Generator) -> FedNovaState:
        """Lines 2-6 of the box."""
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))  # line 2
        η = at(self.primal_step, server.rounds)
        sent = Start(server.w, if_scheduled(self.primal_step, server.rounds))
        _, local = clients.ask(S, self.epochs_of_sgd, sent, weights=clients.sizes[S])  # lines 3-5
        w = server.w - η * local.steps.to(server.w.dtype) * local.direction  # line 6
        return FedNovaState(w if self.projection is None else self.projection(w[None])[0], server.rounds + 1)

    def epochs_of_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, Normalised]:
        """Lines 3-5: τ_i steps of each client; one that is done waits for the others of its block."""
        η = at(self.primal_step, 0) if sent.step is None else sent.step
        τ = (self.epochs * site.sizes / self.batch_size).round().clamp(min=1)  # line 3
        start = site.broadcast(sent.w)
        w = start.clone(memory_format=torch.contiguous_format)
        for t in range(int(τ.max())):
            g = self.problem.primal_gradient(w, site.minibatch(t, self.batch_size))
            moved = self.problem.write_statistics_(w - η * g.x, g.statistics)  # line 4
            moved = moved if self.projection is None else self.projection(moved)
            w = torch.where((t < τ)[:, None].to(w.device), moved, w)
        site.discount_samples(self.batch_size * int((τ.max() - τ).sum()))
        steps = τ.to(w)
        by = steps[:, None] if self.normalised else torch.ones_like(steps)[:, None]
        counted = steps if self.normalised else torch.ones_like(steps)
        return None, Normalised((start - w) / (η * by), counted)  # line 5

    def model(self, server: FedNovaState) -> Tensor:
        """The solution so far."""
        return server.w

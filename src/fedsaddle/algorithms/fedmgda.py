"""FedMGDA+: a common descent direction of the clients' normalised updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedavg import Start
from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort, last_iterate
from fedsaddle.arguments import number
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import PerClient
from fedsaddle.numerics.optimisers import LocalOptimiser
from fedsaddle.numerics.projections import CappedSimplex, Projection
from fedsaddle.numerics.schedules import Step, at, check_step, if_scheduled
from fedsaddle.numerics.solvers import ascend
from fedsaddle.problems.protocols import MinimisationProblem

NAMED = {
    "FedMGDA+": {
        "class": "FedMgda",
        "about": "a step that no client suffers from",
        "source": "Hu et al. 2022",
        "kind": "minimisation",
    },
}
TOLERANCE, MOST_STEPS = 1e-12, 100_000


@dataclass(frozen=True)
class Moved:
    """Client to server: how far it moved, seen one by one."""

    update: PerClient  # w_i - w


@dataclass(frozen=True)
class FedMgdaState:
    """The server's state."""

    w: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class FedMgda:
    """FedMGDA+ (Hu, Shaloudegi, Zhang, Yu 2022): `w ← w + η_s Σ λ_i g_i` with `g_i = (w_i - w) / |w_i - w|`.

    λ minimises `|Σ λ_i g_i|²` over the simplex with `|λ_i - 1/m| ≤ ε`. ε = 0 is the mean of the normalised updates, ε =
    1 the multiple-gradient descent direction, along which every client's loss falls where there is one.

    Args:
        problem: the problem to solve.
        freedom: ε, largest distance of a weight λ_i from 1/m; 0 is the mean of the normalised updates.
        server_step: η_s, learning rate of the server, a number or a schedule.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        local_optimiser: optimiser of the local steps, of `fs.optimisers`; None is SGD, as in the box.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.FedMgda(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), freedom=0.5).server_step
        1.0

    **Deviations from the paper**: written after a public re-implementation of the server. A client that did not move
    has g_i = 0. The server sees every update: it cannot be combined with secure aggregation.
    """

    problem: MinimisationProblem
    freedom: float = 0.1  # ε
    server_step: Step = 1.0  # η_s
    sampled_clients: int | None = None  # m
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: Step = 0.1  # η
    local_optimiser: LocalOptimiser | None = None
    projection: Projection | None = None  # Π_W

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        number("freedom", self.freedom, least=0, most=1)
        check_step("server_step", self.server_step)

    def start(self, clients: Clients) -> FedMgdaState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        return FedMgdaState(self.problem.initial())

    def round(self, server: FedMgdaState, clients: Clients, rng: np.random.Generator) -> FedMgdaState:
        """Lines 2-6 of the box."""
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))  # line 2
        sent = Start(server.w, if_scheduled(self.primal_step, server.rounds))
        S, moved = clients.ask(S, self.local_sgd, sent)  # line 3
        norms = moved.update.norm(dim=1, keepdim=True)
        g = moved.update / torch.where(norms > 0, norms, 1)  # line 4
        λ = mixture_of_least_norm(g.double(), self.freedom)  # line 5
        w = server.w + at(self.server_step, server.rounds) * (λ.to(g.dtype) @ g)  # line 6
        return FedMgdaState(w if self.projection is None else self.projection(w[None])[0], server.rounds + 1)

    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, Moved]:
        """Line 3: τ local steps."""
        w = site.broadcast(sent.w)
        return None, Moved(last_iterate(self, w, site, sent.step) - w)

    def model(self, server: FedMgdaState) -> Tensor:
        """The solution so far."""
        return server.w


def mixture_of_least_norm(g: Tensor, freedom: float) -> Tensor:
    """`argmin |Σ λ_i g_i|²` over the simplex with `|λ_i - 1/m| ≤ freedom`.

    Examples:
        >>> mixture_of_least_norm(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64), 1.0)
        tensor([0.5000, 0.2500, 0.2500], dtype=torch.float64)
    """
    m, products = len(g), g @ g.T
    uniform, low = torch.full((m,), 1 / m, dtype=g.dtype), max(0.0, 1 / m - freedom)
    rest = 1 - m * low  # what is not given to all alike
    if rest <= 0:
        return uniform
    capped = CappedSimplex((min(1.0, 1 / m + freedom) - low) / rest)
    allowed: Projection = lambda λ: low + rest * capped((λ - low) / rest)  # noqa: E731
    return ascend(lambda λ: -(products @ λ), uniform, allowed, TOLERANCE, MOST_STEPS).point

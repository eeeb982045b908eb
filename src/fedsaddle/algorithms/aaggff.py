"""AAggFF: the mixture of clients is learned online, so that their losses become even."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedavg import Start
from fedsaddle.algorithms.local_steps import cohort_size, draw_cohort
from fedsaddle.algorithms.term import LossesFirst
from fedsaddle.arguments import choice, number
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients
from fedsaddle.numerics.projections import Simplex
from fedsaddle.numerics.schedules import if_scheduled
from fedsaddle.numerics.solvers import ascend

NAMED = {
    "AAggFF-S": {
        "class": "AaggFf",
        "about": "even losses by an online mixture; few clients",
        "source": "Hahn, Kim, Lee 2024",
        "kind": "minimisation",
        "fixed": {"update": "newton"},
    },
    "AAggFF-D": {
        "class": "AaggFf",
        "about": "even losses by an online mixture; many clients",
        "source": "Hahn, Kim, Lee 2024",
        "kind": "minimisation",
        "fixed": {"update": "entropy"},
    },
}

RESPONSES: dict[str, Callable[[Tensor], Tensor]] = {  # of u = F_i / mean of F
    "weibull": lambda u: 1 - torch.exp(-u.square()),
    "exponential": lambda u: 1 - torch.exp(-u),
    "frechet": lambda u: torch.exp(-1 / u),
    "normal": lambda u: 0.5 * torch.erfc((1 - u) / math.sqrt(2)),
    "gumbel": lambda u: torch.exp(-torch.exp(1 - u)),
    "logistic": lambda u: torch.sigmoid(u - 1),
}
TOLERANCE, MOST_STEPS = 1e-13, 100_000


@dataclass(frozen=True)
class AaggFfState:
    """The server's state."""

    w: Tensor
    p: Tensor  # the mixture, float64
    slopes: Tensor  # Σ g; Newton: Σ (g - β <g, p> g)
    squares: Tensor | None = None  # Σ g g', of Newton's step
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class AaggFf(LossesFirst):
    """AAggFF-S and AAggFF-D (Hahn, Kim, Lee 2024): `w ← w + η_s Σ_{i in S} p_i (w_i - w) / Σ_{i in S} p_i`.

    The mixture p plays an online game with the losses `-log(1 + <p, r>)`, where the response r_i is larger the larger
    the client's loss is beside the mean. `update="newton"` is AAggFF-S, the online Newton step, which asks all clients;
    `update="entropy"` is AAggFF-D, a softmax of the summed slopes, for cohorts of many clients.

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
        update: "newton" is AAggFF-S, an online Newton step that asks all clients; "entropy" is AAggFF-D.
        response: ρ, the distribution function that maps a loss, as a multiple of the mean loss, to a response:
            "weibull", "exponential", "frechet", "normal", "gumbel" or "logistic".
        server_step: η_s, learning rate of the server; 1 takes the weighted mean of the models.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.AaggFf(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), response="normal").update
        'newton'

    **Deviations from the paper**: written after the authors' code, with four errors of it mended: the estimate of an
    unsampled client's response is unbiased, Newton's step has its cross term and α once, p begins on the simplex, and
    the normal response rises with the loss.
    """

    update: str = "newton"
    response: str = "weibull"  # ρ
    server_step: float = 1.0  # η_s

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("update", self.update, ("newton", "entropy"))
        choice("response", self.response, tuple(RESPONSES))
        number("server_step", self.server_step, above=0)

    def start(self, clients: Clients) -> AaggFfState:
        """The uniform mixture."""
        N = clients.count
        if self.update == "newton" and cohort_size(self.sampled_clients, clients) < N:
            raise BadInput("sampled_clients", self.sampled_clients, "AAggFF-S asks all clients; use AAggFF-D")
        cohort_size(self.sampled_clients, clients)
        zero = torch.zeros(N, dtype=torch.float64)
        squares = zero[:, None] * zero if self.update == "newton" else None
        return AaggFfState(self.problem.initial(), zero + 1 / N, zero, squares)  # line 1

    def round(self, server: AaggFfState, clients: Clients, rng: np.random.Generator) -> AaggFfState:
        """Lines 3-8 of the box."""
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))  # line 3
        S, F = self.ask_losses(clients, S, server.w)  # line 4
        r = RESPONSES[self.response](F / F.mean())  # line 5
        server = self._newton(server, S, r) if self.update == "newton" else self._entropy(server, S, r)  # lines 6-7
        p = server.p.numpy()[S]
        η = if_scheduled(self.primal_step, server.rounds)
        _, local = clients.ask(S, self.local_sgd, Start(server.w, η), weights=p)  # line 8
        w = server.w + self.server_step * (local.final - server.w) if self.server_step != 1 else local.final  # line 8
        return replace(server, w=w, rounds=server.rounds + 1)

    def model(self, server: AaggFfState) -> Tensor:
        """The solution so far."""
        return server.w

    def mixture(self, server: AaggFfState) -> Tensor:
        """P."""
        return server.p

    def _newton(self, server: AaggFfState, S: Ints, response: Tensor) -> AaggFfState:
        """`p ← argmin Σ_s [<g_s, p> + (β/2) <g_s, p - p_s>²] + (α/2) |p|²` over the simplex."""
        assert server.squares is not None
        K, p = len(server.p), server.p
        α, β = 4.0, K / 4
        r = torch.zeros_like(p).index_put((torch.from_numpy(S),), response / K)  # line 6
        g = -r / (1 + p @ r)
        slopes = server.slopes + g - β * (g @ p) * g
        squares = server.squares + torch.outer(g, g)
        solved = ascend(lambda q: -(slopes + β * squares @ q + α * q), p, Simplex(), TOLERANCE, MOST_STEPS)  # line 7
        return replace(server, p=solved.point, slopes=slopes, squares=squares)

    def _entropy(self, server: AaggFfState, S: Ints, response: Tensor) -> AaggFfState:
        """`p ← softmax(-√(log K) / ((2 + C) √(t + 1)) Σ_s g_s)`, g at the mean response."""
        K, p, t = len(server.p), server.p, server.rounds + 1
        C = len(S) / K
        r = C * response  # line 6
        mean = r.mean()
        q = torch.full_like(p, float(mean))
        q[S] += (r - mean) / C
        D = 1 + mean * p.sum()
        slopes = server.slopes - q / D + mean * (p @ (q - mean)) / D**2
        rate = math.sqrt(math.log(K)) / ((2 + C) * math.sqrt(t + 1)) if K > 1 else 0.0
        return replace(server, p=torch.softmax(-rate * slopes, 0), slopes=slopes)  # line 7

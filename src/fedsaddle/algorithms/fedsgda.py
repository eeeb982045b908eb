"""FedSGDA: two exchanges a round, any gradient estimator (Frameworks 1-3)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.estimators import Estimate, Estimator, MiniBatch
from fedsaddle.algorithms.hyperparameters import check_local, check_problem, cohort_size, draw_cohort
from fedsaddle.arguments import choice
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, From
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, per_step, task
from fedsaddle.numerics.averages import Running
from fedsaddle.numerics.schedules import Step, at, check_step
from fedsaddle.problems.protocols import MinimaxProblem

NAMED = {
    "FedSGDA-MB": {
        "class": "FedSgda",
        "about": "corrected min-max steps, two exchanges",
        "source": "Xie, Zhang, Zhang, Shen, Qian",
        "kind": "minimax",
    },
    "FedSGDA-STORM": {
        "class": "FedSgda",
        "about": "the same with the STORM estimator",
        "source": "Xie, Zhang, Zhang, Shen, Qian",
        "kind": "minimax",
        "defaults": {"estimator": {"name": "storm"}},
    },
    "FedSGDA-SPIDER": {
        "class": "FedSgda",
        "about": "the same with the SPIDER estimator",
        "source": "Xie, Zhang, Zhang, Shen, Qian",
        "kind": "minimax",
        "defaults": {"estimator": {"name": "spider"}},
    },
}


@dataclass(frozen=True)
class Points:
    """Server to client: where the full local gradients are wanted."""

    x: Tensor  # x̄_t
    y: Tensor
    x_before: Tensor | None = None  # x̄_{t-1}
    y_before: Tensor | None = None


@dataclass(frozen=True)
class Slopes:
    """Client to server: its full local gradients at the points."""

    x: Averaged
    y: Averaged
    x_before: Averaged | None = None
    y_before: Averaged | None = None


@dataclass(frozen=True)
class Start:
    """Server to client: the model, the global gradient estimate and the steps."""

    x: Tensor  # x̄_t
    y: Tensor
    u: Tensor
    v: Tensor
    primal_step: float  # η_t
    dual_step: float  # γ_t


@dataclass(frozen=True)
class Models:
    """Client to server: the last local iterates, and the mean of them if it is wanted."""

    x: Annotated[Averaged, From("x")]
    y: Annotated[Averaged, From("y")]
    path: Annotated[Averaged, From("x")] | None = None


@dataclass(frozen=True)
class FedSgdaState:
    """The server's memory."""

    x: Tensor  # x̄_t
    y: Tensor
    x_before: Tensor  # x̄_{t-1}
    y_before: Tensor
    u: Tensor | None = None
    v: Tensor | None = None
    rounds: int = 0  # t
    kept: Tensor | None = None  # the average or the random iterate so far


def _gradients_released(how: FedSgda, sent: Points) -> Releases:
    """Gradients of all rows of both players, at one point or at two."""
    return Counter({Release(None, 2 if sent.x_before is None else 4): 1})


@dataclass(frozen=True, kw_only=True)
class FedSgda:
    """FedSGDA (Xie, Zhang, Zhang, Shen, Qian), whose estimators make it FedSGDA-MB, -STORM and -SPIDER.

    The local directions are `∇F_i(x_k, y_k; B) - ∇F_i(x̄, ȳ; B) + u`, and likewise with v in y.

    Raises:
        BadInput: for a hyper-parameter that cannot be, with its name.

    Example:
        >>> import fedsaddle as fs, torch
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: x @ x / 2 + batch.x @ x * y - y @ y / 2,
        ...     start_x=torch.ones(3), start_y=torch.zeros(1),
        ... )
        >>> fs.FedSgda(problem=game, estimator=fs.Storm(alpha=0.5)).estimator
        Storm(alpha=0.5)

    **Deviations from the paper**: both u and v average over S'_t (its text writes S_t once); the two cohorts are drawn
    uniformly without replacement, independently of each other; the iterates are projected where the problem has
    projections; where some clients do not answer, the averages are over those who did; `output="average"` is the mean
    over rounds of the clients' local iterates 1 .. K, and "random" is a random round's start.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None  # S; None: all
    local_steps: int = 10  # K
    batch_size: int = 5
    primal_step: Step = 1e-3  # η_t
    dual_step: Step = 1e-3  # γ_t
    estimator: Estimator = field(default_factory=MiniBatch)
    output: str = "last"  # or "random", or "average" over local iterates

    secret_cohorts = True  # drawn afresh for every exchange, and no message shows who is in one

    def __post_init__(self) -> None:
        check_problem(self, MinimaxProblem)
        check_local(self.local_steps, self.batch_size, self.sampled_clients)
        check_step("primal_step", self.primal_step)
        check_step("dual_step", self.dual_step)
        choice("output", self.output, ("last", "random", "average"))
        if isinstance(self.estimator, type) or not isinstance(self.estimator, Estimator):
            name = getattr(self.estimator, "__name__", type(self.estimator).__name__)
            raise BadInput("estimator", name, "must be an object with the methods wants_before, cohort and estimate")

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """Gradients, then models, of cohorts whose size the estimator chooses."""
        S, found = clients if self.sampled_clients is None else self.sampled_clients, []
        for t in range(rounds):
            gradients = Release(None, 4 if self.estimator.wants_before(t) else 2)
            both = Counter({gradients: 1, Release(self.batch_size, 4): self.local_steps})
            found.append(PlannedExchange(2, both, min(clients, self.estimator.cohort(t, S))))
        return found

    def start(self, clients: Clients) -> FedSgdaState:
        """(x̄_{-1}, ȳ_{-1}) = (x̄_0, ȳ_0)."""
        cohort_size(self.sampled_clients, clients)
        x, y = self.problem.initial()
        return FedSgdaState(x, y, x, y)

    def round(self, server: FedSgdaState, clients: Clients, rng: np.random.Generator) -> FedSgdaState:
        """Lines 2-9 of Framework 1."""
        s, t, N = server, server.rounds, clients.count
        S = cohort_size(self.sampled_clients, clients)
        wants_before = self.estimator.wants_before(t)
        before = (s.x_before, s.y_before) if wants_before else ()
        size = min(N, self.estimator.cohort(t, S))
        if size < 1:
            raise BadInput("estimator", type(self.estimator).__name__, f"asks for {size} clients in round {t}; ask one")
        collecting = draw_cohort(rng, N, size)
        _, g = clients.ask(collecting, self.local_gradients, Points(s.x, s.y, *before))  # lines 3-4
        u, v = self._estimate(t, s, g)  # line 5
        η, γ = at(self.primal_step, t), at(self.dual_step, t)
        updating = draw_cohort(rng, N, size)
        pick = self.output == "random" and rng.random() < 1 / (t + 1)
        _, local = clients.ask(updating, self.local_sgda, Start(s.x, s.y, u, v, η, γ))  # lines 7-8
        kept = s.x if pick else Running.over(s.kept, local.path, t)
        return FedSgdaState(local.x, local.y, s.x, s.y, u, v, t + 1, kept)  # line 9

    @task(releases=_gradients_released)
    def local_gradients(self, own: None, sent: Points, site: Site) -> tuple[None, Slopes]:
        """Framework 2: full local gradients at the present and, if wanted, the previous point."""
        rows = site.everything()
        now = self.problem.gradients(site.broadcast(sent.x), site.broadcast(sent.y), rows)  # line 1
        if sent.x_before is None or sent.y_before is None:
            return None, Slopes(now.x, now.y)
        before = self.problem.gradients(site.broadcast(sent.x_before), site.broadcast(sent.y_before), rows)  # line 1
        return None, Slopes(now.x, now.y, before.x, before.y)  # line 2

    @task(releases=per_step(fields=4))  # of both players, at two points
    def local_sgda(self, own: None, sent: Start, site: Site) -> tuple[None, Models]:
        """Framework 3: K corrected steps."""
        x̄, ȳ = site.broadcast(sent.x), site.broadcast(sent.y)
        x, y = x̄, ȳ  # line 1
        path = Running() if self.output == "average" else None
        for k in range(self.local_steps):  # line 2
            B = site.minibatch(k, self.batch_size)  # line 3
            g_0, g = self.problem.gradients(x̄, ȳ, B), self.problem.gradients(x, y, B)
            x = self.problem.project_x(x - sent.primal_step * (g.x - g_0.x + sent.u))  # line 4
            y = self.problem.project_y(y + sent.dual_step * (g.y - g_0.y + sent.v))  # line 5
            x = self.problem.settle_(x, g.statistics)
            if path is not None:
                path.add(x)
        return None, Models(x, y, path.mean if path is not None else None)  # line 7

    def _estimate(self, t: int, s: FedSgdaState, g: Slopes) -> tuple[Tensor, Tensor]:
        u = self.estimator.estimate(t, Estimate(g.x, g.x_before, s.u))
        v = self.estimator.estimate(t, Estimate(g.y, g.y_before, s.v))
        for name, found, like in (("u", u, s.x), ("v", v, s.y)):
            if not isinstance(found, Tensor) or found.shape != like.shape:
                got = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"type {type(found).__name__}"
                who, want = type(self.estimator).__name__, tuple(like.shape)
                raise BadInput("estimator", who, f"gave {name} of {got}; give a vector of shape {want}")
        return u, v

    def model(self, server: FedSgdaState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.kept is None else server.kept

    def dual(self, server: FedSgdaState) -> Tensor:
        """The last y."""
        return server.y

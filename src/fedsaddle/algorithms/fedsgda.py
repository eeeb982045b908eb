"""FedSGDA: two exchanges a round, any gradient estimator (Frameworks 1-3): MB, STORM, SPIDER."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.local_steps import check_local, check_problem, cohort_size, draw_cohort
from fedsaddle.arguments import choice, number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, UpdateOf
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, per_step, task
from fedsaddle.numerics.schedules import Power, Schedule, Step, at, check_step
from fedsaddle.numerics.tensors import Running
from fedsaddle.problems.protocols import MinimaxProblem


class Estimate(NamedTuple):
    """What an estimator works with.

    Args:
        now: mean gradient at the current point.
        before: mean gradient at the previous point, None if not wanted.
        last: last estimate, None in the first round.
    """

    now: Tensor  # mean of ∇f_i(z̄_t) over S'_t
    before: Tensor | None  # mean of ∇f_i(z̄_{t-1}) over the same clients
    last: Tensor | None  # u_{t-1}


@runtime_checkable
class Estimator(Protocol):
    """A user's own estimator needs these three methods."""

    def wants_before(self, t: int) -> bool:
        """Whether round t needs the gradients at the previous point."""
        ...

    def cohort(self, t: int, sampled: int) -> int:
        """How many clients to ask in round t, where S = `sampled`."""
        ...

    def estimate(self, t: int, given: Estimate) -> Tensor:
        """The estimate of round t."""
        ...


@dataclass(frozen=True)
class MiniBatch:
    """MB: the mean of the sampled clients' gradients."""

    def wants_before(self, t: int) -> bool:
        """Never."""
        return False

    def cohort(self, t: int, sampled: int) -> int:
        """S."""
        return sampled

    def estimate(self, t: int, given: Estimate) -> Tensor:
        """`u_t = mean ∇f_i(z̄_t)`."""
        return given.now


@dataclass(frozen=True)
class Storm:
    """STORM: `u_t = (1 - α_t)(u_{t-1} - mean ∇f_i(z̄_{t-1})) + mean ∇f_i(z̄_t)`.

    α = 1 is MB, α = 0 is SPIDER's inner step.

    Args:
        alpha: α_t, weight of the new gradient; by default min(1, c_α / (t + 1)^{2ρ}).
    """

    alpha: Step = Power(1.0, 2 / 3, at_most=1.0)  # α_t

    def __post_init__(self) -> None:
        if isinstance(self.alpha, type) or not isinstance(self.alpha, Schedule):
            number("alpha", self.alpha, least=0, most=1)

    def wants_before(self, t: int) -> bool:
        """After the first round."""
        return t > 0

    def cohort(self, t: int, sampled: int) -> int:
        """S."""
        return sampled

    def estimate(self, t: int, given: Estimate) -> Tensor:
        """The recursion; u_0 is the mean."""
        if given.last is None or given.before is None:
            return given.now
        return (1 - at(self.alpha, t)) * (given.last - given.before) + given.now


@dataclass(frozen=True)
class Spider:
    """SPIDER: every `period` rounds the mean over a large cohort, otherwise the last estimate plus the difference.

    Args:
        period: m, rounds between two means over a large cohort.
        large_cohort: Ŝ, clients of the large cohort; None is S², as in the paper's Remark 5.
    """

    period: int = 10  # m
    large_cohort: int | None = None  # Ŝ

    def __post_init__(self) -> None:
        whole("period", self.period)
        if self.large_cohort is not None:
            whole("large_cohort", self.large_cohort)

    def wants_before(self, t: int) -> bool:
        """Except where the estimate restarts."""
        return t % self.period != 0

    def cohort(self, t: int, sampled: int) -> int:
        """Ŝ where the estimate restarts, else S."""
        if t % self.period != 0:
            return sampled
        return sampled**2 if self.large_cohort is None else self.large_cohort

    def estimate(self, t: int, given: Estimate) -> Tensor:
        """`u_{t-1} + mean (∇f_i(z̄_t) - ∇f_i(z̄_{t-1}))`, or the mean again."""
        if t % self.period == 0 or given.last is None or given.before is None:
            return given.now
        return given.last + given.now - given.before


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

    x: Annotated[Averaged, UpdateOf("x")]
    y: Annotated[Averaged, UpdateOf("y")]
    path: Annotated[Averaged, UpdateOf("x")] | None = None


@dataclass(frozen=True)
class FedSgdaState:
    """The server's state."""

    x: Tensor  # x̄_t
    y: Tensor
    x_before: Tensor  # x̄_{t-1}
    y_before: Tensor
    u: Tensor | None = None
    v: Tensor | None = None
    rounds: int = 0  # t
    kept: Tensor | None = None  # the average or the random iterate so far


def _gradients_released(algorithm: FedSgda, sent: Points) -> Releases:
    """Gradients of all rows of both players, at one point or at two."""
    return Counter({Release(None, 2 if sent.x_before is None else 4): 1})


@dataclass(frozen=True, kw_only=True)
class FedSgda:
    """FedSGDA (Xie, Zhang, Zhang, Shen, Qian), whose estimators make it FedSGDA-MB, -STORM and -SPIDER.

    The local directions are `∇F_i(x_k, y_k; B) - ∇F_i(x̄, ȳ; B) + u`, and likewise with v in y.

    Args:
        problem: the problem to solve.
        sampled_clients: S, clients sampled in each round; None samples all.
        local_steps: K, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η_t, learning rate of the minimiser, a number or a schedule.
        dual_step: γ_t, learning rate of the maximiser, a number or a schedule.
        estimator: estimator of the global gradient: `fs.MiniBatch()`, `fs.Storm()` or `fs.Spider()`.
        output: "last" returns the last iterate, "random" that of a random round, "average" the mean of the local
            iterates.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
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
    sampled_clients: int | None = None  # S
    local_steps: int = 10  # K
    batch_size: int = 5
    primal_step: Step = 1e-3  # η_t
    dual_step: Step = 1e-3  # γ_t
    estimator: Estimator = field(default_factory=MiniBatch)
    output: str = "last"

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
        S, planned = clients if self.sampled_clients is None else self.sampled_clients, []
        for t in range(rounds):
            gradients = Release(None, 4 if self.estimator.wants_before(t) else 2)
            both = Counter({gradients: 1, Release(self.batch_size, 4): self.local_steps})
            planned.append(PlannedExchange(2, both, min(clients, self.estimator.cohort(t, S))))
        return planned

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
        picked = s.x if pick else Running.over(s.kept, local.path, t)
        return FedSgdaState(local.x, local.y, s.x, s.y, u, v, t + 1, picked)  # line 9

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
            x = self.problem.write_statistics_(x, g.statistics)
            if path is not None:
                path.add(x)
        return None, Models(x, y, path.mean if path is not None else None)  # line 7

    def _estimate(self, t: int, s: FedSgdaState, g: Slopes) -> tuple[Tensor, Tensor]:
        u = self.estimator.estimate(t, Estimate(g.x, g.x_before, s.u))
        v = self.estimator.estimate(t, Estimate(g.y, g.y_before, s.v))
        for name, e, like in (("u", u, s.x), ("v", v, s.y)):
            if not isinstance(e, Tensor) or e.shape != like.shape:
                got = f"shape {tuple(e.shape)}" if isinstance(e, Tensor) else f"type {type(e).__name__}"
                who, want = type(self.estimator).__name__, tuple(like.shape)
                raise BadInput("estimator", who, f"gave {name} of {got}; give a vector of shape {want}")
        return u, v

    def model(self, server: FedSgdaState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.kept is None else server.kept

    def dual(self, server: FedSgdaState) -> Tensor:
        """The last y."""
        return server.y

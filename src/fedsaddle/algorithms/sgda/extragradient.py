"""Extragradient, its one-exchange form with the past gradient, and local extragradient steps with control variates.

With z = (x, y) and F = (∇_x f, -∇_y f), an extragradient step first looks ahead to h = P(z - η F(z)) and then moves
from z along F(h). It converges where plain descent-ascent turns in circles: on games that are nearly bilinear.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_steps import (
    MOST_ROWS,
    MOST_STEPS,
    check_problem,
    cohort_size,
    draw_cohort,
)
from fedsaddle.arguments import choice, flag, whole
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged, Holds, Parameters, UpdateOf
from fedsaddle.federation.tasks import PlannedExchange, Release, Releases, per_minibatch, task
from fedsaddle.numerics.schedules import Step, at, check_step
from fedsaddle.numerics.tensors import Running
from fedsaddle.problems.protocols import MinimaxProblem, Pair

NAMED = {
    "Extragradient": {
        "class": "Extragradient",
        "about": "looks a step ahead; two exchanges",
        "source": "Korpelevich 1976",
        "kind": "minimax",
    },
    "Optimistic": {
        "class": "Optimistic",
        "about": "the same with the past gradient; one exchange",
        "source": "Popov 1980",
        "kind": "minimax",
    },
    "Local Extragradient": {
        "class": "LocalExtragradient",
        "about": "local extragradient steps, averaged",
        "source": "Beznosikov, Samokhin, Gasnikov 2020",
        "kind": "minimax",
    },
}


@dataclass(frozen=True)
class Point:
    """Server to client: where the gradients are wanted."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Slopes:
    """Client to server: its gradients there, and BatchNorm's new running statistics."""

    x: Averaged
    y: Averaged
    statistics: Averaged | None = None


@dataclass(frozen=True)
class PairState:
    """The server's memory of `Extragradient`."""

    x: Tensor
    y: Tensor
    rounds: int = 0
    mean_x: Tensor | None = None  # the mean of the points h, if it is the solution
    mean_y: Tensor | None = None


@dataclass(frozen=True)
class OptimisticState:
    """The server's memory of `Optimistic`: z, and the gradients at the last point h."""

    x: Tensor
    y: Tensor
    rounds: int = 0
    past_x: Tensor | None = None  # F(h) of the round before; None: 0
    past_y: Tensor | None = None
    mean_x: Tensor | None = None
    mean_y: Tensor | None = None


class Hyperparameters(Protocol):
    """Those that the three algorithms share."""

    @property
    def problem(self) -> MinimaxProblem: ...  # noqa: D102
    @property
    def sampled_clients(self) -> int | None: ...  # noqa: D102
    @property
    def batch_size(self) -> int | None: ...  # noqa: D102
    @property
    def primal_step(self) -> Step: ...  # noqa: D102
    @property
    def dual_step(self) -> Step: ...  # noqa: D102


def check(how: Hyperparameters) -> None:
    """Validate the shared hyperparameters."""
    check_problem(how, MinimaxProblem)
    if how.sampled_clients is not None:
        whole("sampled_clients", how.sampled_clients)
    if how.batch_size is not None:
        whole("batch_size", how.batch_size, most=MOST_ROWS)
    check_step("primal_step", how.primal_step)
    check_step("dual_step", how.dual_step)


def rows_at(how: Hyperparameters, site: Site, step: int, stream: int = 0) -> Batch:
    """A minibatch, or all rows where `batch_size` is None."""
    return site.everything() if how.batch_size is None else site.minibatch(step, how.batch_size, stream)


def gradients_at(how: Hyperparameters, sent: Point, site: Site) -> tuple[None, Slopes]:
    """A client's gradients of both players at one point."""
    g = how.problem.gradients(site.broadcast(sent.x), site.broadcast(sent.y), rows_at(how, site, 0))
    return None, Slopes(g.x, g.y, g.statistics)


def moved(how: Hyperparameters, z: Pair, F: Slopes, rounds: int) -> Pair:
    """`P(z - η F)` at the server: descent in x, ascent in y."""
    f, η_x, η_y = how.problem, at(how.primal_step, rounds), at(how.dual_step, rounds)
    x, y = f.project_x((z[0] - η_x * F.x)[None]), f.project_y((z[1] + η_y * F.y)[None])
    return f.write_statistics_(x, None if F.statistics is None else F.statistics[None])[0], y[0]


def planned(how: Hyperparameters, rounds: int, clients: int, exchanges: int, gradients: int) -> list[PlannedExchange]:
    """The exchanges of a round: their number, and the gradients of both players in all of them together."""
    m = clients if how.sampled_clients is None else how.sampled_clients
    released = Counter({Release(how.batch_size, 2): rounds * gradients})
    return [PlannedExchange(rounds * exchanges, released, m)]


@dataclass(frozen=True, kw_only=True)
class Extragradient:
    """Extragradient (Korpelevich 1976) for `min_x max_y (1/N) Σ_i f_i(x, y)`, without local steps.

    The server looks ahead to `h = P(z - η F(z))` and moves `z ← P(z - η F(h))`, with F the mean of the clients'
    gradients: two exchanges a round. With all rows and clients a constant step converges to the saddle point linearly
    where f is strongly convex and concave, and also where it is bilinear.

    Args:
        problem: the min-max problem.
        sampled_clients: clients of an exchange, sampled independently for each; None: all.
        batch_size: rows of a client's gradient; None: all rows, as in the box.
        primal_step: η of x.
        dual_step: η of y.
        output: "last" z, or "average": the mean of the points h, for which the theory of games without strong
            convexity holds.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: batch.x @ x * y.sum(), start_x=torch.ones(3), start_y=torch.zeros(1)
        ... )
        >>> fs.Extragradient(problem=game, primal_step=0.5, dual_step=0.5).output
        'last'

    **Deviations from the paper**: F is a mean over clients, who may be drawn and may use minibatches, different ones at
    z and at h. Each player may have a step of its own. The second exchange is at h even where replies of the first were
    lost; each mean is over the clients that answered.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None
    batch_size: int | None = None
    primal_step: Step = 0.1
    dual_step: Step = 0.1
    output: str = "last"

    local_steps: ClassVar[int] = 1  # a round is one iteration
    secret_cohorts = True  # drawn afresh for every exchange, and no message shows who is in one

    def __post_init__(self) -> None:
        check(self)
        choice("output", self.output, ("last", "average"))

    def planned_exchanges(self, rounds: int, clients: int) -> list[PlannedExchange]:
        """Two a round, with a gradient each."""
        return planned(self, rounds, clients, exchanges=2, gradients=2)

    def start(self, clients: Clients) -> PairState:
        """The problem's own point."""
        cohort_size(self.sampled_clients, clients)
        return PairState(*self.problem.initial())  # line 1

    def round(self, server: PairState, clients: Clients, rng: np.random.Generator) -> PairState:
        """Lines 2-5 of the box."""
        z, r, N, m = (server.x, server.y), server.rounds, clients.count, cohort_size(self.sampled_clients, clients)
        _, F = clients.ask(draw_cohort(rng, N, m), self.slopes, Point(*z))  # line 2: F(z)
        h = moved(self, z, F, r)  # line 3: h = P(z - η F(z))
        _, F = clients.ask(draw_cohort(rng, N, m), self.slopes, Point(*h))  # line 4: F(h)
        x, y = moved(self, z, F, r)  # line 5: z ← P(z - η F(h))
        if self.output == "last":
            return PairState(x, y, r + 1)
        return PairState(x, y, r + 1, Running.over(server.mean_x, h[0], r), Running.over(server.mean_y, h[1], r))

    @task(releases=per_minibatch(fields=2))
    def slopes(self, own: None, sent: Point, site: Site) -> tuple[None, Slopes]:
        """Lines 2 and 4: the client's part of F."""
        return gradients_at(self, sent, site)

    def model(self, server: PairState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.mean_x is None else server.mean_x

    def dual(self, server: PairState) -> Tensor:
        """The y that goes with it."""
        return server.y if server.mean_y is None else server.mean_y


@dataclass(frozen=True, kw_only=True)
class Optimistic:
    """Extragradient with the past gradient (Popov 1980), also known as optimistic descent-ascent.

    The look-ahead `h = P(z - η F(h⁻))` takes the gradient of the round before, so that `z ← P(z - η F(h))` needs one
    exchange. Without projections the points h are those of `h ← h - 2 η F(h) + η F(h⁻)`.

    Args:
        problem: the min-max problem.
        sampled_clients: clients that are asked in a round; None: all.
        batch_size: rows of a client's gradient; None: all rows, as in the box.
        primal_step: η of x; about half of what extragradient bears.
        dual_step: η of y.
        output: "last" z, or "average": the mean of the points h.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: batch.x @ x * y.sum(), start_x=torch.ones(3), start_y=torch.zeros(1)
        ... )
        >>> fs.Optimistic(problem=game).dual_step
        0.1

    **Deviations from the paper**: F is a mean over clients, who may be drawn and may use minibatches. Each player may
    have a step of its own. The first h is z.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None
    batch_size: int | None = None
    primal_step: Step = 0.1
    dual_step: Step = 0.1
    output: str = "last"

    local_steps: ClassVar[int] = 1  # a round is one iteration
    secret_cohorts = True  # drawn afresh for every exchange, and no message shows who is in one

    def __post_init__(self) -> None:
        check(self)
        choice("output", self.output, ("last", "average"))

    def start(self, clients: Clients) -> OptimisticState:
        """The problem's own point."""
        cohort_size(self.sampled_clients, clients)
        return OptimisticState(*self.problem.initial())  # line 1

    def round(self, server: OptimisticState, clients: Clients, rng: np.random.Generator) -> OptimisticState:
        """Lines 2-4 of the box."""
        z, r, m = (server.x, server.y), server.rounds, cohort_size(self.sampled_clients, clients)
        h = z
        if server.past_x is not None and server.past_y is not None:
            h = moved(self, z, Slopes(server.past_x, server.past_y), r)  # line 2: h = P(z - η F(h⁻))
        _, F = clients.ask(draw_cohort(rng, clients.count, m), self.slopes, Point(*h))  # line 3: F(h)
        x, y = moved(self, z, F, r)  # line 4: z ← P(z - η F(h))
        now = OptimisticState(x, y, r + 1, F.x, F.y)
        if self.output == "last":
            return now
        return replace(now, mean_x=Running.over(server.mean_x, h[0], r), mean_y=Running.over(server.mean_y, h[1], r))

    @task(releases=per_minibatch(fields=2))
    def slopes(self, own: None, sent: Point, site: Site) -> tuple[None, Slopes]:
        """Line 3: the client's part of F."""
        return gradients_at(self, sent, site)

    def model(self, server: OptimisticState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.mean_x is None else server.mean_x

    def dual(self, server: OptimisticState) -> Tensor:
        """The y that goes with it."""
        return server.y if server.mean_y is None else server.mean_y


@dataclass(frozen=True)
class Variates:
    """A client's memory: c_i, the means of its last gradients of both players."""

    cx: Tensor
    cy: Tensor


@dataclass(frozen=True)
class Start:
    """Server to client: the pair to start from, the steps, and the mean c of the control variates."""

    x: Parameters
    y: Annotated[Tensor, Holds.OTHER]
    primal_step: float
    dual_step: float
    cx: Tensor | None = None
    cy: Tensor | None = None


@dataclass(frozen=True)
class Local:
    """Client to server: its pair after K steps and, with control variates, how much its c_i changed."""

    x: Annotated[Averaged, UpdateOf("x")]
    y: Annotated[Averaged, UpdateOf("y")]
    change_x: Averaged | None = None
    change_y: Averaged | None = None


@dataclass(frozen=True)
class LocalState:
    """The server's memory of `LocalExtragradient`."""

    x: Tensor
    y: Tensor
    rounds: int = 0
    cx: Tensor | None = None  # c, the mean of all c_i
    cy: Tensor | None = None


def _local_released(how: LocalExtragradient, sent: Start) -> Releases:
    """The gradients of both players, twice a step."""
    return Counter({Release(how.batch_size, 2): 2 * how.local_steps})


@dataclass(frozen=True, kw_only=True)
class LocalExtragradient:
    """Local extragradient steps (Extra Step Local SGD; Beznosikov, Samokhin, Gasnikov 2020).

    Each client takes K extragradient steps on its own f_i, the server averages. For unlike clients, whose own saddle
    points differ, `control_variates` correct both gradients of a step by `c - c_i`, as in SCAFFOLD (Karimireddy et al.
    2020): c_i is the mean of the client's gradients at its points h of the round in which it last took part, and c the
    mean of all c_i. Clients then keep c_i between rounds, and twice as much is sent up.

    Args:
        problem: the min-max problem.
        sampled_clients: clients a round; None: all, as in the box.
        local_steps: K, each with two gradients.
        batch_size: rows of a gradient, sampled independently for each; None: all rows.
        primal_step: η of x.
        dual_step: η of y.
        control_variates: whether steps are corrected by `c - c_i`; False is the box.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: batch.x @ x * y.sum(), start_x=torch.ones(3), start_y=torch.zeros(1)
        ... )
        >>> fs.LocalExtragradient(problem=game, local_steps=5, batch_size=32, control_variates=True).primal_step
        0.02

    **Deviations from the paper**: written after public code of others, the paper's box was not at hand. Each player may
    have a step of its own; a cohort may be drawn; control variates are ours, after SCAFFOLD's option II.
    """

    problem: MinimaxProblem
    sampled_clients: int | None = None
    local_steps: int = 10
    batch_size: int | None = None
    primal_step: Step = 0.02
    dual_step: Step = 0.02
    control_variates: bool = False

    output: ClassVar[str] = "last"

    def __post_init__(self) -> None:
        check(self)
        whole("local_steps", self.local_steps, most=MOST_STEPS)
        flag("control_variates", self.control_variates)

    @property
    def secret_cohorts(self) -> bool:
        """Whether a cohort leaves no trace; with control variates its clients remember."""
        return not self.control_variates

    def start(self, clients: Clients) -> LocalState:
        """The problem's own point; c = 0."""
        cohort_size(self.sampled_clients, clients)
        x, y = self.problem.initial()  # line 1
        return LocalState(x, y, 0, *self._zeros(x, y))

    def round(self, server: LocalState, clients: Clients, rng: np.random.Generator) -> LocalState:
        """Lines 2-7 of the box."""
        s, r = server, server.rounds
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))
        sent = Start(s.x, s.y, at(self.primal_step, r), at(self.dual_step, r), s.cx, s.cy)
        S, local = clients.ask(S, self.local_extragradient, sent)  # lines 2-7: the mean of the z_i
        now = LocalState(local.x, local.y, r + 1, s.cx, s.cy)
        if s.cx is None or s.cy is None or local.change_x is None or local.change_y is None:
            return now
        share = len(S) / clients.count
        return replace(now, cx=s.cx + share * local.change_x, cy=s.cy + share * local.change_y)  # line 8

    def fresh(self, site: Site) -> Variates | None:
        """c_i = 0; clients remember something only with control variates."""
        if not self.control_variates:
            return None
        x, y = self.problem.initial()
        of = len(site.clients)
        return Variates(*(torch.zeros(of, len(v), dtype=v.dtype, device=site.device) for v in (x, y)))

    @task(releases=_local_released)
    def local_extragradient(self, own: Variates | None, sent: Start, site: Site) -> tuple[Variates | None, Local]:
        """Lines 2-6, and the new c_i."""
        f, η_x, η_y = self.problem, sent.primal_step, sent.dual_step
        x, y = site.broadcast(sent.x), site.broadcast(sent.y)
        off_x, off_y = self._corrections(own, sent)
        mean_x, mean_y = Running(), Running()
        for k in range(self.local_steps):  # line 2
            g = f.gradients(x, y, rows_at(self, site, k))  # line 3: F_i(z_i; ξ)
            h_x = f.project_x(x - η_x * (g.x + off_x))  # line 4: h = P(z_i - η F_i(z_i; ξ))
            h_x = f.write_statistics_(h_x, g.statistics)
            h_y = f.project_y(y + η_y * (g.y + off_y))  # line 4
            g = f.gradients(h_x, h_y, rows_at(self, site, k, stream=1))  # line 5: F_i(h; ξ')
            x = f.project_x(x - η_x * (g.x + off_x))  # line 6: z_i ← P(z_i - η F_i(h; ξ'))
            x = f.write_statistics_(x, g.statistics)
            y = f.project_y(y + η_y * (g.y + off_y))  # line 6
            if own is not None:
                mean_x.add(g.x)
                mean_y.add(g.y)
        if own is None:
            return None, Local(x, y)
        new = Variates(mean_x.mean, mean_y.mean)  # line 8: c_i, the mean of the F_i(h; ξ')
        return new, Local(x, y, new.cx - own.cx, new.cy - own.cy)

    def _zeros(self, x: Tensor, y: Tensor) -> tuple[Tensor | None, Tensor | None]:
        return (torch.zeros_like(x), torch.zeros_like(y)) if self.control_variates else (None, None)

    def _corrections(self, own: Variates | None, sent: Start) -> tuple[Tensor | float, Tensor | float]:
        """Line 8: `c - c_i`; 0 without control variates."""
        if own is None or sent.cx is None or sent.cy is None:
            return 0.0, 0.0
        return sent.cx - own.cx, sent.cy - own.cy

    def model(self, server: LocalState) -> Tensor:
        """The last x."""
        return server.x

    def dual(self, server: LocalState) -> Tensor:
        """The last y."""
        return server.y

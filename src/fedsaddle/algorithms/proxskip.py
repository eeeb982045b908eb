"""ProxSkip-VIP: local steps with control variates between communications that a coin decides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_steps import check_problem, cohort_size
from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged, UpdateOf
from fedsaddle.numerics.schedules import Step, at, check_step
from fedsaddle.problems.protocols import MinimaxProblem

NAMED = {
    "ProxSkip-VIP": {
        "class": "ProxSkip",
        "about": "exact by control variates; one exchange",
        "source": "Zhang, Choudhury, Stich, Loizou 2024",
        "kind": "minimax",
    },
}


@dataclass(frozen=True)
class Sent:
    """Server to client: the mean of the last communication, how many steps until the next, and their lengths."""

    x: Tensor
    y: Tensor
    steps: int
    primal_step: float
    dual_step: float


@dataclass(frozen=True)
class Reply:
    """Client to server."""

    x: Annotated[Averaged, UpdateOf("x")]  # ẑ_i - (γ/p) h_i
    y: Annotated[Averaged, UpdateOf("y")]


@dataclass(frozen=True)
class Variates:
    """A client's state: h_i, and where it stood when it last communicated."""

    hx: Tensor
    hy: Tensor
    x: Tensor  # ẑ_i
    y: Tensor
    steps: Tensor  # (C, 2): the lengths γ of both players' steps then; 0: it never communicated


@dataclass(frozen=True)
class ProxSkipState:
    """The server's state."""

    x: Tensor
    y: Tensor
    rounds: int = 0
    iterations: int = 0  # local steps so far


@dataclass(frozen=True, kw_only=True)
class ProxSkip:
    """ProxSkip-VIP-FL (Zhang, Choudhury, Stich, Loizou 2024): `ẑ_i = z_i - γ (F_i(z_i) - h_i)`, mean with chance p.

    With `F_i = (∇_x f_i, -∇_y f_i)`. At a mean `z = mean_i (ẑ_i - (γ/p) h_i)` and `h_i ← h_i + (p/γ) (z - ẑ_i)`. A
    round is a communication with the local steps before it, whose number is drawn at the server. The control variates
    h_i make a constant step exact with full gradients. p = 1 is descent-ascent on the mean.

    Args:
        problem: the problem to solve.
        chance: p, probability of a communication after a local step.
        batch_size: rows of a minibatch; None is all rows, as in the theory.
        primal_step: γ, learning rate of the minimiser, a number or a schedule.
        dual_step: γ, learning rate of the maximiser, a number or a schedule.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: x @ x / 2 + batch.x @ x * y - y @ y / 2,
        ...     start_x=torch.ones(3), start_y=torch.zeros(1),
        ... )
        >>> fs.ProxSkip(problem=game, chance=0.2).chance
        0.2

    **Deviations from the paper**: written after the authors' numpy code. Each player may have a step γ of its own, and
    is projected where the problem says so. All clients take part; one whose reply is lost discards its steps, and
    corrects its old h_i by the mean that it is sent next.
    """

    problem: MinimaxProblem
    chance: float = 0.1  # p
    batch_size: int | None = None
    primal_step: Step = 0.1  # γ
    dual_step: Step = 0.1  # γ

    def __post_init__(self) -> None:
        check_problem(self, MinimaxProblem)
        number("chance", self.chance, above=0, most=1)
        if self.batch_size is not None:
            whole("batch_size", self.batch_size)
        check_step("primal_step", self.primal_step)
        check_step("dual_step", self.dual_step)
        for key in ("primal_step", "dual_step"):
            if at(getattr(self, key), 0) <= 0:
                raise BadInput(key, getattr(self, key), "the control variates divide by it; must be above 0")

    def start(self, clients: Clients) -> ProxSkipState:
        """The problem's own point."""
        cohort_size(None, clients)
        return ProxSkipState(*self.problem.initial())  # line 1

    def round(self, server: ProxSkipState, clients: Clients, rng: np.random.Generator) -> ProxSkipState:
        """Lines 2-7 of the box, until the coin shows a communication."""
        K, r = steps_until_heads(self.chance, rng.random()), server.rounds  # line 2
        sent = Sent(server.x, server.y, K, at(self.primal_step, r), at(self.dual_step, r))
        _, z = clients.ask(np.arange(clients.count), self.local_steps, sent)  # lines 3-5
        f = self.problem
        x, y = f.project_x(z.x[None])[0], f.project_y(z.y[None])[0]  # line 6
        return ProxSkipState(x, y, r + 1, server.iterations + K)

    def fresh(self, site: Site) -> Variates:
        """h_i = 0."""
        x, y = (
            torch.zeros(len(site.clients), *v.shape, dtype=v.dtype, device=site.device) for v in self.problem.initial()
        )
        return Variates(x, y, x, y, x.new_zeros(len(x), 2))

    def local_steps(self, own: Variates, sent: Sent, site: Site) -> tuple[Variates, Reply]:
        """Line 7 of the last communication, then the local steps until the next, lines 3-5."""
        f, p, γ_x, γ_y = self.problem, self.chance, sent.primal_step, sent.dual_step
        x, y = site.broadcast(sent.x), site.broadcast(sent.y)
        began = own.steps > 0
        rate = torch.where(began, p / torch.where(began, own.steps, 1), 0)  # p / γ, 0 before the first
        hx, hy = own.hx + rate[:, :1] * (x - own.x), own.hy + rate[:, 1:] * (y - own.y)  # line 7
        for t in range(sent.steps):
            g = f.gradients(x, y, self._rows(site, t))
            x = f.write_statistics_(f.project_x(x - γ_x * (g.x - hx)), g.statistics)  # line 3
            y = f.project_y(y + γ_y * (g.y + hy))  # line 4
        steps = torch.tensor([γ_x, γ_y], dtype=x.dtype, device=x.device).expand(len(x), 2)
        return Variates(hx, hy, x, y, steps), Reply(x - γ_x / p * hx, y - γ_y / p * hy)  # line 5

    def iterations(self, server: ProxSkipState) -> int:
        """Local steps so far."""
        return server.iterations

    def model(self, server: ProxSkipState) -> Tensor:
        """The last x."""
        return server.x

    def dual(self, server: ProxSkipState) -> Tensor:
        """The last y."""
        return server.y

    def _rows(self, site: Site, t: int) -> Batch:
        return site.everything() if self.batch_size is None else site.minibatch(t, self.batch_size)


def steps_until_heads(p: float, u: float) -> int:
    """How many tosses until a coin shows heads, from one number u, uniform in [0, 1): geometric.

    Examples:
        >>> steps_until_heads(0.5, 0.0), steps_until_heads(0.5, 0.6), steps_until_heads(1.0, 0.9)
        (1, 2, 1)
    """
    return 1 if p == 1 else 1 + int(math.log1p(-u) / math.log1p(-p))

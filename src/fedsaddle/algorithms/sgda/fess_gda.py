"""FESS-GDA: Local SGDA at the clients, and smoothed steps of the server towards a point that trails x."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.sgda import local_sgda
from fedsaddle.algorithms.sgda.local_sgda import Local, LocalSgda, SgdaState, Start
from fedsaddle.arguments import number
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.optimisers import LocalOptimiser, check_local_optimiser
from fedsaddle.numerics.schedules import Step, at
from fedsaddle.problems.protocols import MinimaxProblem

NAMED = {
    "FESS-GDA": {
        "class": "FessGda",
        "about": "Local SGDA with smoothed server steps",
        "source": "Shen, Huang, Zhang, Shen 2024",
        "kind": "minimax",
    },
}


@dataclass(frozen=True)
class SmoothedState:
    """The server's state."""

    x: Tensor
    y: Tensor
    z: Tensor  # trails x
    rounds: int = 0
    kept: Tensor | None = None  # the average or the random iterate so far


@dataclass(frozen=True, kw_only=True)
class FessGda:
    """FESS-GDA (Shen, Huang, Zhang, Shen 2024): descent-ascent on `f(x, y) + (p/2) |x - z|²`, z trailing x.

    Clients take τ plain steps of Local SGDA; the pull towards z is the server's alone:
    `x ← x + γ_x (mean x_i - x) - η_x γ_x τ p (x - z)`, `y ← Π(y + γ_y (mean y_i - y))`, `z ← z + β (x - z)`.
    p = 0, or β = 1, is Local SGDA with steps of the server; with γ = 1 Local SGDA itself.

    Args:
        problem: the problem to solve.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: K, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η_x, learning rate of the minimiser at the clients, a number or a schedule.
        dual_step: η_y, learning rate of the maximiser at the clients, a number or a schedule.
        local_optimiser: optimiser of both players' local steps, of `fs.optimisers`; None is SGD.
        server_primal_step: γ_x, learning rate of the minimiser at the server.
        server_dual_step: γ_y, learning rate of the maximiser at the server.
        smoothing: p, weight of the term that pulls x towards z; the theory uses twice the smoothness of f.
        trailing: β, how far z follows x in each round.
        output: "last" returns the last iterate, "random" that of a random round, "average" the mean of the local
            iterates.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: x @ x / 2 + batch.x @ x * y - y @ y / 2,
        ...     start_x=torch.ones(3), start_y=torch.zeros(1),
        ... )
        >>> fs.FessGda(problem=game, smoothing=2.0).trailing
        0.5

    **Deviations from the paper**: its equations were read in a third party's transcription, its box and step sizes were
    not. A cohort is drawn without replacement, z begins with x; x and y are projected where the problem has
    projections.
    """

    snapshot_every: ClassVar[None] = None

    problem: MinimaxProblem
    sampled_clients: int | None = None  # m
    local_steps: int = 10  # K
    batch_size: int = 32
    primal_step: Step = 0.02  # η_x
    dual_step: Step = 0.016  # η_y
    local_optimiser: LocalOptimiser | None = None
    server_primal_step: float = 1.0  # γ_x
    server_dual_step: float = 1.0  # γ_y
    smoothing: float = 1.0  # p
    trailing: float = 0.5  # β
    output: str = "last"

    def __post_init__(self) -> None:
        local_sgda.check(self)
        check_local_optimiser(self.local_optimiser)
        number("server_primal_step", self.server_primal_step, above=0)
        number("server_dual_step", self.server_dual_step, above=0)
        number("smoothing", self.smoothing, least=0)
        number("trailing", self.trailing, least=0, most=1)

    @cached_property
    def clients_part(self) -> LocalSgda:
        """Local SGDA."""
        return LocalSgda(
            problem=self.problem,
            local_steps=self.local_steps,
            batch_size=self.batch_size,
            local_optimiser=self.local_optimiser,
            output=self.output,
        )

    def start(self, clients: Clients) -> SmoothedState:
        """z_0 is x_0."""
        at_first = local_sgda.start(self, clients)
        return SmoothedState(at_first.x, at_first.y, at_first.x)

    def round(self, server: SmoothedState, clients: Clients, rng: np.random.Generator) -> SmoothedState:
        """Lines 2-5 of the box."""
        f, x, y, z, r = self.problem, server.x, server.y, server.z, server.rounds
        before = SgdaState(x, y, r, kept=server.kept)
        mean = local_sgda.synchronised_round(self, self.local_sgda, before, clients, rng)  # lines 1-2
        γ_x, γ_y, β = self.server_primal_step, self.server_dual_step, self.trailing
        pull = at(self.primal_step, r) * γ_x * self.local_steps * self.smoothing
        x_next = f.project_x((x + γ_x * (mean.x - x) - pull * (x - z))[None])[0]  # line 3
        y_next = f.project_y((y + γ_y * (mean.y - y))[None])[0]  # line 4
        return SmoothedState(x_next, y_next, z + β * (x_next - z), r + 1, mean.kept)  # line 5

    def check_local_layers(self) -> None:
        """The server's step projects all layers, which it does not have where some stay at the clients."""
        remedy = "cannot keep layers at the clients: its server projects whole models"
        raise BadInput("algorithm", type(self).__name__, remedy)

    def local_sgda(self, own: None, sent: Start, site: Site) -> tuple[None, Local]:
        """Line 2: K local steps of both players."""
        return None, self.clients_part.local_sgda(None, sent, site)[1]

    def model(self, server: SmoothedState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.kept is None else server.kept

    def dual(self, server: SmoothedState) -> Tensor:
        """The last y."""
        return server.y

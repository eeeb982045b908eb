"""FedSGDA+: Local SGDA+ with a step of the server on both players."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.sgda import local_sgda
from fedsaddle.algorithms.sgda.local_sgda import Local, LocalSgda, SgdaState, Start
from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.schedules import Step
from fedsaddle.problems.protocols import MinimaxProblem

NAMED = {
    "FedSGDA+": {
        "class": "FedSgdaPlus",
        "about": "Local SGDA+ with a server step",
        "source": "Wu, Sun, Hu, Zhang, Huang 2023",
        "kind": "minimax",
    },
}


@dataclass(frozen=True, kw_only=True)
class FedSgdaPlus:
    """FedSGDA+ (Wu, Sun, Hu, Zhang, Huang 2023): `(x, y) ← (x, y) + γ (mean (x_i, y_i) - (x, y))`.

    Clients take Q steps of Local SGDA+, with ∇_y at a snapshot of x that is S rounds old at the most. γ = 1 is Local
    SGDA+ with snapshots every S Q iterations.

    Args:
        problem: the problem to solve.
        sampled_clients: clients sampled in each round; None samples all.
        local_steps: Q, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the minimiser, a number or a schedule.
        dual_step: η_y, learning rate of the maximiser, a number or a schedule.
        server_step: γ, learning rate of the server; 1 takes the mean.
        snapshot_rounds: S, rounds between two snapshots of x.
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
        >>> fs.FedSgdaPlus(problem=game, server_step=1.5).snapshot_rounds
        1

    **Deviations from the paper**: written after the authors' code. There y is clamped at 0 and divided by its sum; here
    the problem's projection is used, after local steps and after the server's, which the code leaves unprojected. A
    cohort may be drawn.
    """

    snapshot_every: ClassVar[None] = None  # rounds are not cut

    problem: MinimaxProblem
    sampled_clients: int | None = None
    local_steps: int = 10  # Q
    batch_size: int = 100
    primal_step: Step = 1e-3  # η
    dual_step: Step = 1e-4  # η_y
    server_step: float = 1.0  # γ
    snapshot_rounds: int = 1  # S
    output: str = "last"

    def __post_init__(self) -> None:
        local_sgda.check(self)
        number("server_step", self.server_step, above=0)
        whole("snapshot_rounds", self.snapshot_rounds)

    @cached_property
    def clients_part(self) -> LocalSgda:
        """Local SGDA+."""
        return LocalSgda(
            problem=self.problem, local_steps=self.local_steps, batch_size=self.batch_size, output=self.output
        )

    def start(self, clients: Clients) -> SgdaState:
        """x_0 is the first snapshot."""
        at_first = local_sgda.start(self, clients)
        return replace(at_first, anchor=at_first.x)  # line 1

    def round(self, server: SgdaState, clients: Clients, rng: np.random.Generator) -> SgdaState:
        """Lines 2-6 of the box."""
        f, γ, x, y = self.problem, self.server_step, server.x, server.y
        mean = local_sgda.synchronised_round(self, self.local_sgda, server, clients, rng)  # lines 2-4
        x_next = f.project_x((x + γ * (mean.x - x))[None])[0]  # line 5
        y_next = f.project_y((y + γ * (mean.y - y))[None])[0]  # line 5
        x̃ = x_next if mean.rounds % self.snapshot_rounds == 0 else server.anchor  # line 6
        return replace(mean, x=x_next, y=y_next, anchor=x̃)

    def check_local_layers(self) -> None:
        """The server's step projects all layers, which it does not have where some stay at the clients."""
        remedy = "cannot keep layers at the clients: its server projects whole models"
        raise BadInput("algorithm", type(self).__name__, remedy)

    def local_sgda(self, own: None, sent: Start, site: Site) -> tuple[None, Local]:
        """Lines 3-4: Q local steps, the ascent at the snapshot."""
        return None, self.clients_part.local_sgda(None, sent, site)[1]

    def model(self, server: SgdaState) -> Tensor:
        """x, as `output` says."""
        return server.x if server.kept is None else server.kept

    def dual(self, server: SgdaState) -> Tensor:
        """The last y."""
        return server.y

"""What methods share that first ask clients for their losses, and then weigh the clients' models by them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fedsaddle.algorithms.drfa import LocalLoss, Probe
from fedsaddle.algorithms.fedavg import LocalModel, Start
from fedsaddle.algorithms.local_steps import check, last_iterate, without_outliers
from fedsaddle.arguments import number
from fedsaddle.array_types import Ints
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.optimisers import LocalOptimiser
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Step
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

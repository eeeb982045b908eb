"""`fs.Private`: an algorithm whose clients clip every row and add noise; a wrapper around algorithms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.algorithms.protocols import dual_of, mixture_of
from fedsaddle.arguments import instance
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Ints, R, Remembers, Site, Task
from fedsaddle.federation.tasks import Releases, WrappedTask
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.privacy.accountant import epsilon_of, noise_for, require_accountant
from fedsaddle.privacy.problems import Limits, PrivateMinimax, PrivateMinimisation
from fedsaddle.privacy.releases import check_algorithm, events_of, planned_releases, task_releases, within
from fedsaddle.privacy.settings import Privacy
from fedsaddle.privacy.site import PrivateSite
from fedsaddle.problems.protocols import MinimaxProblem, Problem

PRIVACY = "give fs.Privacy(epsilon=8)"
MANY = 64  # clients, of whom each may have noise of its own; more share it with those of about as many rows


@dataclass(frozen=True, kw_only=True)
class Private:
    """An algorithm with differential privacy of rows or patients, made by each client before anything leaves it.

    In every local step the client draws a Poisson sample, shortens each row's gradient to the norm C (of each player on
    its own), sums them, adds `N(0, (z C)²)` to every coordinate and divides by the expected number of rows. DRFA's
    losses are cut at `loss_bound` row by row, and have noise of z times that bound. The noise z is the same for all
    fields of a client, and the least for which all of the planned rounds together are (ε, δ)-private; clients with
    fewer rows need more of it. What else an algorithm does with noisy gradients costs no privacy: momentum, control
    variates, averages, optimisers.

    Args:
        algorithm: one whose tasks state what they release (`fs.task`): FedAvg and its kin, the DRFA family, Local SGDA
            and Momentum Local SGDA (with +), FedSGDA, CODA+, CODA, CODASCA, or your own.
        privacy: such as `fs.Privacy(epsilon=8)`, with `rounds`.

    Raises:
        BadInput: for what cannot be private, with the reason: FedX, BatchNorm, dropout, weighted losses.

    Example:
        >>> import fedsaddle as fs
        >>> fedavg = fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3)), local_steps=5)
        >>> private = fs.Private(algorithm=fedavg, privacy=fs.Privacy(epsilon=8, rounds=20))
        >>> round(private.noise(1000), 2) < round(private.noise(200), 2)
        True
    """

    algorithm: Any
    privacy: Privacy
    inner: Any = field(init=False, repr=False, compare=False)
    plan: Releases = field(init=False, repr=False, compare=False)
    known: dict[int, float] = field(init=False, repr=False, compare=False, default_factory=dict)  # rows -> noise

    def __post_init__(self) -> None:
        check_algorithm(self.algorithm)
        instance("privacy", self.privacy, Privacy, PRIVACY)
        if self.privacy.unit == "client":
            raise BadInput("unit", "client", "is made by the server; give it to fs.run, with the algorithm as it is")
        if self.privacy.rounds is None:
            raise BadInput("rounds", None, "say for how many rounds the noise is meant: fs.Privacy(..., rounds=100)")
        require_accountant()
        limits = Limits(self.privacy.clip, self.privacy.clip_y, self.privacy.loss_bound)
        problem = self.algorithm.problem
        make = PrivateMinimax if isinstance(problem, MinimaxProblem) else PrivateMinimisation
        object.__setattr__(self, "inner", replace(self.algorithm, problem=make(problem, limits)))
        object.__setattr__(self, "plan", planned_releases(self.algorithm, self.privacy.rounds))

    @property
    def problem(self) -> Problem:
        """What is solved, as it is measured: without noise."""
        found: Problem = self.algorithm.problem
        return found

    @property
    def sampled_clients(self) -> int | None:
        """Clients a round; None: all."""
        found: int | None = self.algorithm.sampled_clients
        return found

    @property
    def local_steps(self) -> Any:
        """Steps at a client between two exchanges; for stages perhaps a schedule."""
        return self.algorithm.local_steps

    @property
    def batch_size(self) -> int:
        """Rows of a sample in the mean."""
        return int(self.algorithm.batch_size)

    @property
    def output(self) -> str:
        """Which iterate is the solution."""
        return str(self.algorithm.output)

    def noise(self, units: int) -> float:
        """z of a client with so many rows, or patients: its noise as a multiple of what one of them contributes."""
        if units not in self.known:
            self.known[units] = noise_for(events_of(self.plan, units), self.privacy.epsilon, self.privacy.delta)
        return self.known[units]

    def epsilon(self, spent: Releases, units: int, many: bool = False) -> float:
        """ε of what such a client has released so far, one of `many` clients or of a few."""
        return epsilon_of(events_of(spent, units), self.noise(rounded(units, many)), self.privacy.delta)

    def start(self, clients: Clients) -> Any:
        """The state of the algorithm."""
        return self.inner.start(clients)

    def round(self, server: Any, clients: Clients, rng: np.random.Generator) -> Any:
        """A round of the algorithm."""
        return self.inner.round(server, _AskPrivate(clients, self), rng)

    def fresh(self, site: Site) -> Any:
        """What the algorithm's own clients begin with."""
        return self.inner.fresh(site) if isinstance(self.inner, Remembers) else None

    def model(self, server: Any) -> Tensor:
        """The solution so far."""
        found: Tensor = self.inner.model(server)
        return found

    def dual(self, server: Any) -> Tensor | None:
        """The y that goes with the solution, if there is one."""
        return dual_of(self.inner, server)

    def mixture(self, server: Any) -> Tensor | None:
        """λ, if there is one."""
        return mixture_of(self.inner, server)

    def releases(self, task: str, sent: Any) -> Releases:
        """What a client releases by that task."""
        return task_releases(self.algorithm, task, sent)

    def run_task(self, name: str, own: Any, sent: Any, site: Site) -> tuple[Any, Any]:
        """A task of the algorithm on private samples; it may not release more than it said."""
        many = cast(Any, site).rows.count > MANY
        seen = PrivateSite(site, lambda n: self.noise(rounded(n, many)), self.privacy.unit == "patient")
        own, reply = getattr(self.inner, name)(own, sent, cast(Site, seen))
        if not within(seen.released(), self.releases(name, sent)):
            told, meant = dict(seen.released()), dict(self.releases(name, sent))
            raise BadInput("algorithm", type(self.algorithm).__name__, f"released {told} in place of {meant}")
        return own, reply


@dataclass
class _AskPrivate(Wrapper):
    """The clients as the algorithm's server sees them: they run the private task of the same name."""

    private: Private

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Ask for the private task."""
        mine: Task[R] = WrappedTask(self.private, task.__name__)
        return self.inner.ask(cohort, mine, sent, weights=weights)


def rounded(units: int, many: bool) -> int:
    """The number of rows whose noise a client takes: its own or, of many clients, rounded down to two digits."""
    step = 10 ** max(0, len(str(units)) - 2)
    return units // step * step if many else units

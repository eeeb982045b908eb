"""`fs.Private`: a wrapper that makes an algorithm's clients clip per-example gradients and add noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.algorithms.protocols import AnyAlgorithm, Wraps
from fedsaddle.arguments import instance
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, ClientsState, Own, Remembers, Sent, Site, Task, merge_repeats
from fedsaddle.federation.records import R, Record, replaced
from fedsaddle.federation.tasks import Releases, WrappedTask, task_of
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.files import Json, JsonObject
from fedsaddle.privacy.accountant import (
    check_algorithm,
    epsilon_of,
    events_of,
    from_plain,
    noise_for,
    planned_releases,
    require_accountant,
    task_releases,
    to_plain,
    within,
)
from fedsaddle.privacy.problems import PrivateMinimax, PrivateMinimisation, Sensitivities, check_model
from fedsaddle.privacy.settings import Privacy
from fedsaddle.privacy.site import CheckedRows, PrivateSite, RowsSite, UnitRows
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem

PRIVACY = "give fs.Privacy(epsilon=8)"
MANY = 64  # clients that each have their own noise multiplier; beyond, clients with about as many rows share one


@dataclass(frozen=True, kw_only=True)
class Private(Wraps):
    """An algorithm with differential privacy of rows or patients, applied by each client before anything leaves it.

    In every local step the client draws a Poisson sample, clips each per-example gradient to norm C (of each player
    separately), sums them, adds `N(0, (z C)²)` to every coordinate and divides by the expected number of rows. DRFA's
    losses are clipped to `loss_bound` row by row, with noise of z times that bound. The noise multiplier z is the same
    for all fields of a client, and the smallest for which the planned rounds together are (ε, δ)-private; clients with
    fewer rows need more noise. Post-processing of noisy gradients costs no privacy: momentum, control variates,
    averages, optimisers.

    Args:
        algorithm: One whose tasks state what they release (`fs.task`): FedAvg and its variants, the DRFA family, Local
            SGDA and Momentum Local SGDA (with +), FedSGDA, CODA+, CODA, CODASCA, or your own.
        privacy: Such as `fs.Privacy(epsilon=8)`, with `rounds`.

    Raises:
        BadInput: if the algorithm, model or problem has no private form: FedX, BatchNorm, dropout, weighted losses.

    Examples:
        >>> import fedsaddle as fs
        >>> fedavg = fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3)), local_steps=5)
        >>> private = fs.Private(algorithm=fedavg, privacy=fs.Privacy(epsilon=8, rounds=20))
        >>> round(private.noise(1000), 2) < round(private.noise(200), 2)
        True
    """

    algorithm: AnyAlgorithm
    privacy: Privacy
    inner: AnyAlgorithm = field(init=False, repr=False, compare=False)
    plan: Releases = field(init=False, repr=False, compare=False)
    known: dict[int, float] = field(init=False, repr=False, compare=False, default_factory=dict)  # rows -> noise

    def __post_init__(self) -> None:
        check_algorithm(self.algorithm)
        instance("privacy", self.privacy, Privacy, PRIVACY)
        if self.privacy.unit == "client":
            raise BadInput("unit", "client", "is applied by the server; give it to fs.run, without fs.Private")
        if self.privacy.rounds is None:
            raise BadInput(
                "rounds", None, "give the number of rounds to plan the noise for: fs.Privacy(..., rounds=100)"
            )
        require_accountant()
        limits = Sensitivities(self.privacy.clip, self.privacy.clip_y, self.privacy.loss_bound)
        problem = self.algorithm.problem
        assert isinstance(problem, MinimaxProblem | MinimisationProblem)
        private: PrivateMinimax | PrivateMinimisation
        if isinstance(problem, MinimaxProblem):
            private = PrivateMinimax(problem, limits)
        else:
            private = PrivateMinimisation(problem, limits)
        object.__setattr__(self, "inner", replaced(self.algorithm, problem=private))
        object.__setattr__(self, "plan", planned_releases(self.algorithm, self.privacy.rounds))

    def noise(self, units: int) -> float:
        """z, the noise multiplier of a client with that many rows, or patients."""
        if units not in self.known:
            self.known[units] = noise_for(events_of(self.plan, units), self.privacy.epsilon, self.privacy.delta)
        return self.known[units]

    def epsilon(self, spent: Releases, units: int, many: bool = False) -> float:
        """ε of what a client with that many units has released so far; `many`: the run has many clients."""
        return epsilon_of(events_of(spent, units), self.noise(rounded(units, many)), self.privacy.delta)

    def start(self, clients: Clients) -> Record:
        """The state of the algorithm."""
        state: Record = self.inner.start(clients)
        return state

    def round(self, server: Record, clients: Clients, rng: np.random.Generator) -> Record:
        """A round of the algorithm."""
        state: Record = self.inner.round(server, _AskPrivate(clients, self), rng)
        return state

    def fresh(self, site: Site) -> Record | None:
        """The initial memory of a client of the algorithm."""
        return self.inner.fresh(site) if isinstance(self.inner, Remembers) else None

    def releases(self, task: str, sent: object) -> Releases:
        """What a client releases by that task."""
        return task_releases(self.algorithm, task, sent)

    def run_task(self, name: str, own: Record | None, sent: Record, site: Site) -> tuple[Record | None, Record]:
        """Run a task of the algorithm on private samples; an error if it releases more than declared."""
        many = cast(RowsSite, site).rows.count > MANY
        seen = PrivateSite(cast(RowsSite, site), lambda n: self.noise(rounded(n, many)), self.privacy.unit == "patient")
        own, reply = task_of(self.inner, name)(own, sent, seen)
        if not within(seen.released(), self.releases(name, sent)):
            actual, declared = dict(seen.released()), dict(self.releases(name, sent))
            raise BadInput("algorithm", type(self.algorithm).__name__, f"released {actual} instead of {declared}")
        return own, reply


@dataclass
class _AskPrivate(Wrapper):
    """The same clients, which run the private version of each task."""

    private: Private

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask for the private task."""
        mine = WrappedTask[Sent, R](self.private, task.__name__)
        return self.inner.ask(cohort, mine, sent, weights=weights)


def rounded(units: int, many: bool) -> int:
    """The number of rows that a client's noise is computed for: its own or, with many clients, two digits of it."""
    step = 10 ** max(0, len(str(units)) - 2)
    return units // step * step if many else units


NOTES = "privacy"  # the key of a checkpoint's notes, and of a summary


@dataclass
class Accounted(Wrapper):
    """The same clients, with an account of what each was asked to release, even if its reply is lost.

    A repeated round counts once: its draws and its noise are keyed, so that it releases nothing new.
    """

    private: Private
    units: Ints | None  # rows, or patients, of every client; None: they alone know
    spent: dict[int, Releases] = field(default_factory=dict)
    pending: dict[int, Releases] = field(default_factory=dict)

    def begin(self, round: int) -> None:
        """Begin a round."""
        self.pending.clear()
        super().begin(round)

    def commit(self) -> None:
        """End the round: what it released is spent."""
        super().commit()
        for client, released in self.pending.items():
            self.spent[client] = self.spent.get(client, Counter()) + released
        self.pending.clear()

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask, if the budget of every client suffices."""
        clients, _ = merge_repeats(cohort, weights, self.count)
        released, plan = self.private.releases(task.__name__, sent), self.private.plan
        for client in clients.tolist():
            now = self.pending.get(client, Counter()) + released
            if not within(self.spent.get(client, Counter()) + now, plan):
                privacy = self.private.privacy
                spent = f"is planned for {privacy.rounds} rounds, and client {client} has spent it"
                raise BadInput("privacy.epsilon", privacy.epsilon, f"{spent}; start a new run with more rounds")
            self.pending[client] = now
        return self.inner.ask(cohort, task, sent, weights=weights)

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint, with what was spent."""
        inner = self.inner.state()
        spent = {str(client): to_plain(released) for client, released in self.spent.items()}
        return ClientsState(inner.records, {**inner.notes, NOTES: {"spent": spent, **self.private.privacy.to_dict()}})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: JsonObject, algorithm: object) -> None:
        """Restore the clients and what was spent from a checkpoint."""
        super().restore(records, notes, algorithm)
        self.spent = {int(client): from_plain(stored) for client, stored in notes[NOTES]["spent"].items()}
        self.pending.clear()

    def report(self) -> dict[str, Json]:
        """Entries about the clients for the summary, with the budget."""
        return {**self.inner.report(), NOTES: self.budget()}

    def budget(self) -> dict[str, Json]:
        """The largest ε spent so far by a client, the budget, and the range of noise."""
        privacy, many = self.private.privacy, self.count > MANY
        about: dict[str, Json] = {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "unit": privacy.unit,
            "clip": privacy.clip,
            "planned_rounds": privacy.rounds,
            "accountant": "dp-accounting, privacy loss distributions",
        }
        if self.units is None:  # each site counts for itself; more than epsilon it does not spend
            return {"epsilon_spent": privacy.epsilon if self.spent else 0.0, **about}
        kinds = {
            (int(self.units[c]), tuple(sorted(map(tuple, to_plain(r)), key=str))): r for c, r in self.spent.items()
        }
        each = [self.private.epsilon(released, units, many) for (units, _), released in kinds.items()]
        noise = [self.private.noise(rounded(int(n), many)) for n in (self.units.max(), self.units.min())]
        return {"epsilon_spent": max(each, default=0.0), **about, "least_noise": noise[0], "most_noise": noise[1]}


def large_delta(account: Accounted) -> str:
    """A warning if δ is not below one over the units of a client, so that a whole record may be published."""
    privacy, most = account.private.privacy, 0 if account.units is None else int(account.units.max())
    if privacy.delta * most < 1:
        return ""
    which = f"privacy.delta = {privacy.delta:g} with {most:,} of unit {privacy.unit!r} at a client"
    return (
        f"{which}: publishing one whole record at random would satisfy the definition; give less than {0.1 / most:.1g}"
    )


def units_of(private: Private, rows: CheckedRows | None, sizes: Ints) -> Ints | None:
    """Rows, or patients, of every client; `BadInput` if they cannot be sampled privately. A server has no `rows`."""
    if rows is not None:
        if rows.positives is not None:
            remedy = "samples rows by label and so leaks labels; leave it out with privacy"
            raise BadInput("positives_per_batch", rows.positives, remedy)
        check_model(private.problem, *(v[:2] for v in rows.client(0)))
    if private.privacy.unit == "row":
        return np.asarray(sizes, dtype=np.int64)
    if rows is None:
        return None
    if not isinstance(rows, UnitRows) or getattr(rows, "units", None) is None:
        remedy = "the data have no patient column; name it with `together`, or use unit = 'row'"
        raise BadInput("privacy.unit", "patient", remedy)
    return np.array([len(rows.unit_rows(c)) for c in range(rows.count)], dtype=np.int64)

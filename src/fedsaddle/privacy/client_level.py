"""Privacy of whole clients, made by the server: it clips what each sends and adds noise to the mean."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.algorithms.coda.coda import CodaPlus
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.errors import BadInput, Diverged, NobodyAnswered
from fedsaddle.federation.clients import ClientsState, Floats, Ints, R, Task
from fedsaddle.federation.randomness import hash_words
from fedsaddle.federation.records import From, Visibility, bounds_marks, tensors, visibility
from fedsaddle.federation.reduction import NOBODY, finite_clients, first_not_finite
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.numerics.clipping import clip_factors
from fedsaddle.privacy.accountant import Event, Events, epsilon_of, noise_for
from fedsaddle.privacy.accounted import NOTES
from fedsaddle.privacy.noise import SecretKeys
from fedsaddle.privacy.settings import Privacy

KINDS = (FedAvg, LocalSgda, CodaPlus)
FEW = 100  # clients a round, below which noise drowns them


def check_client_level(algorithm: Any) -> None:
    """Refuse what the server cannot make private, with the reason."""
    name = type(algorithm).__name__
    if type(algorithm) not in KINDS:
        known = ", ".join(kind.__name__ for kind in KINDS)
        reason = "its clients are drawn by their losses, keep variates, or send more than a model"
        raise BadInput("algorithm", name, f"cannot be private for whole clients: {reason}; choose one of {known}")
    if getattr(algorithm, "weighting", "uniform") != "uniform":
        remedy = "lets a client count by its rows, without a bound; with privacy of clients it is 'uniform'"
        raise BadInput("weighting", algorithm.weighting, remedy)
    if algorithm.output != "last":
        raise BadInput(
            "output", algorithm.output, "would have clients send more than a model; with privacy it is 'last'"
        )
    if getattr(algorithm, "snapshot_every", None) is not None:
        raise BadInput("snapshot_every", algorithm.snapshot_every, "more than one exchange a round is not there yet")


def planned_events(algorithm: Any, count: int, rounds: int) -> Events:
    """The exchanges of so many rounds: all clients, or a sample of a fixed size."""
    asked = count if algorithm.sampled_clients is None else algorithm.sampled_clients
    return (Event(asked / count, 1, rounds, population=count if asked < count else 0),)


@dataclass
class ClientPrivate(Wrapper):
    """The same clients, of whom the server sees the noisy mean of clipped updates."""

    privacy: Privacy
    algorithm: Any
    seed: int | None = None  # of the noise in a simulation; None: the system's secure source
    asked: int = 0  # exchanges so far
    pending: int = 0

    def __post_init__(self) -> None:
        check_client_level(self.algorithm)
        engine: Any = self.inner
        while not hasattr(engine, "reduce") and isinstance(engine, Wrapper):
            engine = engine.inner
        if not hasattr(engine, "reduce"):
            raise BadInput("engine", type(engine).__name__, "reduces replies by itself, and cannot add noise")
        self._engine = engine
        assert self.privacy.rounds is not None
        self.plan = planned_events(self.algorithm, self.count, self.privacy.rounds)
        self.noise = noise_for(self.plan, self.privacy.epsilon, self.privacy.delta)
        self._round = 0

    def begin(self, round: int) -> None:
        """Begin a round."""
        self._round, self.pending = round, 0
        super().begin(round)

    def commit(self) -> None:
        """End the round: its exchange is spent."""
        super().commit()
        self.asked, self.pending = self.asked + self.pending, 0

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Ask; the engine reduces the replies to a noisy mean."""
        if self.asked + self.pending >= self.plan[0].count:
            told = f"is planned for {self.privacy.rounds} rounds, which are over"
            raise BadInput("privacy.epsilon", self.privacy.epsilon, f"{told}; begin anew, planned for more rounds")
        self.pending += 1
        size = len(np.unique(np.asarray(cohort)))
        self._engine.reduce = lambda task, sent: ClippedMean(self, sent, size)
        return self.inner.ask(cohort, task, sent)

    def normal(self, name: str, like: Tensor) -> Tensor:
        """Standard normal numbers: in a simulation keyed by the round, otherwise from the system's secure source."""
        if self.seed is None:
            return SecretKeys(secrets.token_bytes(32), b"")(0, 0, 0, like.numel(), like).view(like.shape)
        key = hash_words(self.seed, self._round, *name.encode())
        generator = np.random.Generator(np.random.Philox(key=[key, 0xD1FF]))
        return torch.from_numpy(generator.standard_normal(like.numel())).to(like.dtype).view(like.shape)

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint, with what was spent."""
        inner = self.inner.state()
        return ClientsState(inner.records, {**inner.notes, NOTES: {"asked": self.asked, **self.privacy.to_dict()}})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Restore the clients and what was spent from a checkpoint."""
        super().restore(records, notes, algorithm)
        self.asked, self.pending = int(notes[NOTES]["asked"]), 0

    def report(self) -> dict[str, Any]:
        """Entries about the clients for the summary, with the budget."""
        event, privacy = self.plan[0], self.privacy
        spent = Event(event.rate, event.fields, self.asked, event.population)
        fixed = "Rényi divergences of samples of a fixed size" if event.population else "privacy loss distributions"
        budget = {
            "epsilon_spent": epsilon_of((spent,), self.noise, privacy.delta),
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "unit": privacy.unit,
            "clip": privacy.clip,
            "planned_rounds": privacy.rounds,
            "least_noise": self.noise,
            "most_noise": self.noise,
            "accountant": f"dp-accounting, {fixed}",
        }
        return {**self.inner.report(), NOTES: budget}


@dataclass
class ClippedMean:
    """A reduction: the updates of all fields together, each client's shortened to C, summed, noised, and divided by
    the number of clients that were asked. Who does not answer counts as no change."""

    of: ClientPrivate
    sent: Any
    asked: int
    sums: dict[str, Tensor] = field(default_factory=dict)
    clients: list[Ints] = field(default_factory=list)
    kind: type | None = None

    def add(self, clients: Ints, weights: Floats, reply: Any) -> None:
        """Add the replies of `clients`; nothing is added if `Diverged` is raised."""
        if not bool(finite_clients(reply).all()):
            name, value = next((n, v) for n, v in tensors(reply) if not bool(torch.isfinite(v).all()))
            raise Diverged(first_not_finite(clients, value), name)
        changes = {name: _change(reply, name, value, self.sent) for name, value in tensors(reply)}
        squares = torch.stack([v.double().flatten(1).square().sum(1) for v in changes.values()]).sum(0)
        factors = clip_factors(squares, self.of.privacy.clip)
        for name, change in changes.items():
            total = (change * factors.to(change.dtype).view(-1, *[1] * (change.ndim - 1))).sum(0)
            self.sums[name] = total if name not in self.sums else self.sums[name] + total
        self.kind = type(reply)
        self.clients.append(clients)

    def answer(self) -> tuple[Ints, Any]:
        """The clients that answered, and the reduced record."""
        if self.kind is None:
            raise NobodyAnswered(NOBODY)
        found, scale = {}, self.of.noise * self.of.privacy.clip
        for name, total in self.sums.items():
            change = (total + scale * self.of.normal(name, total)) / self.asked
            start = _origin(self.kind, name, self.sent)
            found[name] = change if start is None else start + change
        return np.concatenate(self.clients), self.kind(**found)


def _origin(kind: type, name: str, sent: Any) -> Tensor | None:
    mark = bounds_marks(kind).get(name)
    return getattr(sent, mark.field) if isinstance(mark, From) else None


def _change(reply: Any, name: str, value: Tensor, sent: Any) -> Tensor:
    """What a client changed of what was sent."""
    if visibility(type(reply))[name] is not Visibility.AVERAGED:
        raise BadInput("algorithm", type(reply).__name__, f"shows {name!r} of each client, which cannot be private")
    start = _origin(type(reply), name, sent)
    return value if start is None else value - start


def few_clients(algorithm: Any, count: int, noise: float, clip: float) -> str:
    """A warning that noise drowns what so few clients learn; empty if there are enough."""
    asked = count if algorithm.sampled_clients is None else algorithm.sampled_clients
    if asked >= FEW:
        return ""
    told = (
        f"privacy.unit = 'client' with {asked} clients a round: the noise of every number is {noise * clip / asked:.2g}"
    )
    return f"{told}; it is for {FEW} clients and more, for fewer use unit = 'row' or 'patient'"

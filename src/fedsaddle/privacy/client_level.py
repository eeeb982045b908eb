"""Privacy of whole clients, made by the server: it clips what each sends and adds noise to the mean."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadCheckpoint, BadInput, Diverged, NobodyAnswered
from fedsaddle.federation import tasks
from fedsaddle.federation.clients import ClientsState, Own, Sent, Task, merge_repeats
from fedsaddle.federation.randomness import hash_words
from fedsaddle.federation.records import R, Record, UpdateOf, Visibility, bounds_marks, tensors, visibility
from fedsaddle.federation.reduction import NOBODY, Reduces, finite_clients, first_not_finite
from fedsaddle.federation.wrappers import Wrapper, engine_of
from fedsaddle.files import Json, JsonObject, write_atomically
from fedsaddle.numerics.tensors import clip_factors
from fedsaddle.privacy.accountant import Event, Events, epsilon_of, noise_for
from fedsaddle.privacy.private import NOTES
from fedsaddle.privacy.settings import Privacy
from fedsaddle.privacy.site import SecretKeys, digest_of


class Exchange(NamedTuple):
    """One noisy sum over clients, for the accountant."""

    rate: float = 1.0  # probability of a client to be in it; 1 also if the server's next message shows who was
    population: int = 0  # clients that a sample of a fixed size is drawn from; 0: no sample


Exchanges = Counter[Exchange]


def check_client_level(algorithm: object) -> None:
    """Raise `BadInput` for an algorithm that the server cannot make private."""
    name = type(algorithm).__name__
    if not isinstance(getattr(algorithm, "secret_cohorts", None), bool):
        reason = "what one client may change in what others are sent is not known"
        raise BadInput("algorithm", name, f"has no client-level privacy: {reason}; it has no secret_cohorts")
    if getattr(algorithm, "weighting", "uniform") == "size":
        remedy = "has unbounded sensitivity; client-level privacy needs weighting = 'uniform'"
        raise BadInput("weighting", "size", remedy)
    if (output := getattr(algorithm, "output", "last")) != "last":
        remedy = "makes clients send more than a model; client-level privacy needs output = 'last'"
        raise BadInput("output", output, remedy)


def exchange_of(algorithm: object, count: int, asked: int) -> Exchange:
    """The exchange with `asked` of `count` clients.

    A sample makes it more private only where the algorithm has `secret_cohorts`: one is drawn for every exchange, no
    message shows who is in it, and clients remember nothing. Otherwise a client is taken to be in every exchange:
    DRFA's mixture shows whose losses were asked for, CODASCA's clients keep variates.
    """
    if asked >= count or not getattr(algorithm, "secret_cohorts", False):
        return Exchange()
    return Exchange(asked / count, count)


def planned_exchanges(algorithm: object, count: int, rounds: int) -> Exchanges:
    """The exchanges of `rounds` rounds."""
    exchanges: Exchanges = Counter()
    for planned in tasks.planned_exchanges(algorithm, rounds, count):
        exchanges[exchange_of(algorithm, count, planned.clients)] += planned.times
    return exchanges


def events(exchanges: Exchanges) -> Events:
    """The exchanges for the accountant."""
    return tuple(Event(e.rate, 1, n, e.population) for e, n in sorted(exchanges.items()) if n)


def to_plain(exchanges: Exchanges) -> list[list[float]]:
    """For JSON."""
    return [[e.rate, e.population, n] for e, n in sorted(exchanges.items())]


def from_plain(stored: Iterable[tuple[float, float, float]]) -> Exchanges:
    """The exchanges of a JSON document."""
    return Counter({Exchange(float(rate), int(population)): int(n) for rate, population, n in stored})


FILE = "privacy-server.json"
OWNER = 0o600


@dataclass
class ServerLedger:
    """The noisy sums of a run so far, each by a digest of its content."""

    path: Path | None  # None: this process alone remembers
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    released: dict[str, Exchange] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path | None) -> ServerLedger:
        """The ledger of a folder; new if there is none."""
        path = None if folder is None else folder / FILE
        if path is None or not path.exists():
            return cls(path)
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            released = {name: Exchange(float(rate), int(n)) for name, rate, n in stored["released"]}
            return cls(path, bytes.fromhex(stored["secret"]), released)
        except (OSError, ValueError, KeyError, TypeError) as reason:
            raise BadCheckpoint(f"{path} is damaged ({type(reason).__name__}); nothing more is released") from None

    @property
    def spent(self) -> Exchanges:
        """How many of each kind."""
        return Exchanges(self.released.values())

    def add(self, digest: bytes, exchange: Exchange) -> None:
        """Count the sum with this digest, on the disk as well."""
        self.released[digest.hex()] = exchange
        if self.path is None:
            return
        listed = [[name, e.rate, e.population] for name, e in self.released.items()]
        content = {"secret": self.secret.hex(), "released": listed}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps(content).encode(), OWNER)


FEW = 100  # clients a round, below which the noise exceeds their signal


@dataclass
class ClientPrivate(Wrapper):
    """The same clients, whose updates reach the server as a noisy mean of clipped ones."""

    privacy: Privacy
    algorithm: object
    seed: int | None = None  # of the noise in a simulation; None: a secret of the server
    ledger: ServerLedger | None = None  # of a deployed run
    pending: Exchanges = field(default_factory=Counter)
    committed: Exchanges = field(default_factory=Counter)  # in a simulation

    def __post_init__(self) -> None:
        check_client_level(self.algorithm)
        engine = engine_of(self.inner)
        if not isinstance(engine, Reduces):
            raise BadInput("engine", type(engine).__name__, "reduces replies itself, and so cannot add noise")
        self._engine: Reduces = engine
        self._asked: tuple[Exchange, tuple[int, int], Floats]  # of the present exchange
        assert self.privacy.rounds is not None
        self.plan = planned_exchanges(self.algorithm, self.count, self.privacy.rounds)
        self.noise = noise_for(events(self.plan), self.privacy.epsilon, self.privacy.delta)
        self._round = self._exchange = 0
        if self.seed is None and self.ledger is None:
            self.ledger = ServerLedger(None)

    @property
    def spent(self) -> Exchanges:
        """The exchanges so far; those of a deployed run by its ledger."""
        return self.committed if self.ledger is None else self.ledger.spent

    def begin(self, round: int) -> None:
        """Begin a round."""
        self._round, self._exchange = round, 0
        self.pending.clear()
        super().begin(round)

    def commit(self) -> None:
        """End the round: its exchanges are spent."""
        super().commit()
        self.committed, self.pending = self.committed + self.pending, Counter()

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask; the engine reduces the replies to a noisy mean."""
        clients, each = merge_repeats(cohort, weights, self.count)
        exchange = exchange_of(self.algorithm, self.count, len(clients))
        if self.ledger is None:
            self.pending[exchange] += 1
            self._require(self.committed + self.pending)
        self._asked = exchange, (self._round, self._exchange), each
        self._exchange += 1
        self._engine.reduce = self._reduction
        return self.inner.ask(cohort, task, sent, weights=weights)

    def _reduction(self, task: Task[Own, Sent, R], sent: Sent) -> ClippedMean[R]:
        return ClippedMean(self, sent, *self._asked)

    def keys(self, exchange: Exchange, where: tuple[int, int], sums: Mapping[str, Tensor]) -> SecretKeys | None:
        """The source of an exchange's noise, which is counted first; None in a simulation."""
        if self.ledger is None:
            return None
        digest = digest_of(exchange, *where, sums, self.noise, self.privacy.to_dict())
        if digest.hex() not in self.ledger.released:
            self._require(self.ledger.spent + Counter({exchange: 1}))
            self.ledger.add(digest, exchange)
        return SecretKeys(self.ledger.secret, digest)

    def normal(self, keys: SecretKeys | None, where: tuple[int, int], field: int, like: Tensor) -> Tensor:
        """Standard normal numbers: in a simulation keyed by the exchange, otherwise from the server's secret."""
        if keys is not None:
            return keys(0, 0, field, like.numel(), like).view(like.shape)
        assert self.seed is not None
        generator = np.random.Generator(np.random.Philox(key=[hash_words(self.seed, *where, field), 0xD1FF]))
        return torch.from_numpy(generator.standard_normal(like.numel())).to(like.dtype).view(like.shape)

    def _require(self, exchanges: Exchanges) -> None:
        if any(n > self.plan[kind] for kind, n in exchanges.items()):
            spent = f"is planned for {self.privacy.rounds} rounds, which are over"
            raise BadInput("privacy.epsilon", self.privacy.epsilon, f"{spent}; start a new run with more rounds")

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint, with what was spent."""
        inner, spent = self.inner.state(), to_plain(self.spent)
        return ClientsState(inner.records, {**inner.notes, NOTES: {"spent": spent, **self.privacy.to_dict()}})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: JsonObject, algorithm: object) -> None:
        """Restore the clients and what was spent from a checkpoint; a deployed run's ledger is newer, and stays."""
        super().restore(records, notes, algorithm)
        self.committed = from_plain(notes[NOTES]["spent"])
        self.pending.clear()

    def report(self) -> dict[str, Json]:
        """Entries about the clients for the summary, with the budget."""
        privacy, sampled = self.privacy, any(e.population for e in self.plan)
        fixed = "Rényi divergences of samples of a fixed size" if sampled else "privacy loss distributions"
        budget: dict[str, Json] = {
            "epsilon_spent": epsilon_of(events(self.spent), self.noise, privacy.delta) if self.spent else 0.0,
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
class ClippedMean(Generic[R]):
    """A reduction: the update of each client, all fields together, is clipped to norm C; the weighted sum is noised and
    divided by the weight of the cohort. A client that does not answer counts as no change. The noise is z C times the
    largest weight. Fields per client, such as DRFA's losses, are clipped to the bound, with noise of z times that."""

    of: ClientPrivate
    sent: Record
    exchange: Exchange
    where: tuple[int, int]
    asked: Floats  # the weights of those who were asked
    sums: dict[str, Tensor] = field(default_factory=dict)
    lists: dict[str, list[Tensor]] = field(default_factory=dict)
    clients: list[Ints] = field(default_factory=list)
    kind: type[R] | None = None

    def add(self, clients: Ints, weights: Floats, reply: R) -> None:
        """Add the replies of `clients`; nothing is added if `Diverged` is raised."""
        if not bool(finite_clients(reply).all()):
            name, value = next((n, v) for n, v in tensors(reply) if not bool(torch.isfinite(v).all()))
            raise Diverged(first_not_finite(clients, value), name)
        seen = visibility(type(reply))
        averaged = {n: _change(reply, n, v, self.sent) for n, v in tensors(reply) if seen[n] is Visibility.AVERAGED}
        for name, value in tensors(reply):
            if name not in averaged:
                if seen[name] is not Visibility.PER_CLIENT or value.ndim != 1:
                    remedy = f"shows {name!r} of each client, which has no private form"
                    raise BadInput("algorithm", type(reply).__name__, remedy)
                self.lists.setdefault(name, []).append(value.clamp(0.0, self.of.privacy.loss_bound))
        if averaged:
            squares = torch.stack([v.double().flatten(1).square().sum(1) for v in averaged.values()]).sum(0)
            counted = torch.as_tensor(weights, dtype=torch.float64, device=squares.device)
            factors = clip_factors(squares, self.of.privacy.clip, counted)
            for name, change in averaged.items():
                total = (change * factors.to(change.dtype).view(-1, *[1] * (change.ndim - 1))).sum(0)
                self.sums[name] = total if name not in self.sums else self.sums[name] + total
        self.kind = type(reply)
        self.clients.append(clients)

    def answer(self) -> tuple[Ints, R]:
        """The clients that answered, and the reduced record."""
        if self.kind is None:
            raise NobodyAnswered(NOBODY)
        of, total = self.of, float(self.asked.sum()) or 1.0
        exact = self.sums | {name: torch.cat(parts) for name, parts in self.lists.items()}
        keys, noisy = of.keys(self.exchange, self.where, exact), {}
        for number, (name, value) in enumerate(exact.items()):
            noise = of.noise * of.normal(keys, self.where, number, value).to(value.device)
            if name in self.lists:
                noisy[name] = value + of.privacy.loss_bound * noise
                continue
            change = (value + of.privacy.clip * float(self.asked.max()) * noise) / total
            start = _origin(self.kind, name, self.sent)
            noisy[name] = change if start is None else start.to(change.device) + change
        return np.concatenate(self.clients), self.kind(**noisy)


def _origin(kind: type, name: str, sent: object) -> Tensor | None:
    mark = bounds_marks(kind).get(name)
    return getattr(sent, mark.field) if isinstance(mark, UpdateOf) else None


def _change(reply: Record, name: str, value: Tensor, sent: object) -> Tensor:
    """The change of a field by a client."""
    start = _origin(type(reply), name, sent)
    return value if start is None else value - start.to(value.device)


def few_clients(private: ClientPrivate) -> str:
    """A warning if the noise exceeds the signal of so few clients; empty if there are enough."""
    sampled: int | None = getattr(private.algorithm, "sampled_clients", None)
    asked = private.count if sampled is None else sampled
    if asked >= FEW:
        return ""
    size = private.noise * private.privacy.clip / asked
    noise = f"privacy.unit = 'client' with {asked} clients a round: the noise of every number is {size:.2g}"
    return f"{noise}; it is for {FEW} clients and more, for fewer use unit = 'row' or 'patient'"

"""Privacy of whole clients, made by the server: it clips what each sends and adds noise to the mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.errors import BadInput, Diverged, NobodyAnswered
from fedsaddle.federation.clients import ClientsState, Floats, Ints, R, Task, merge_repeats
from fedsaddle.federation.randomness import hash_words
from fedsaddle.federation.records import From, Visibility, bounds_marks, tensors, visibility
from fedsaddle.federation.reduction import NOBODY, finite_clients, first_not_finite
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.numerics.clipping import clip_factors
from fedsaddle.privacy.accountant import epsilon_of, noise_for
from fedsaddle.privacy.accounted import NOTES
from fedsaddle.privacy.digests import digest_of
from fedsaddle.privacy.exchanges import (
    Exchange,
    Exchanges,
    check_client_level,
    events,
    exchange_of,
    from_plain,
    planned_exchanges,
    to_plain,
)
from fedsaddle.privacy.noise import SecretKeys
from fedsaddle.privacy.server_ledger import ServerLedger
from fedsaddle.privacy.settings import Privacy

FEW = 100  # clients a round, below which noise drowns them


@dataclass
class ClientPrivate(Wrapper):
    """The same clients, of whom the server sees the noisy mean of clipped updates."""

    privacy: Privacy
    algorithm: Any
    seed: int | None = None  # of the noise in a simulation; None: a secret of the server
    ledger: ServerLedger | None = None  # of a deployed run
    pending: Exchanges = field(default_factory=Counter)
    committed: Exchanges = field(default_factory=Counter)  # in a simulation

    def __post_init__(self) -> None:
        check_client_level(self.algorithm)
        engine: Any = self.inner
        while not hasattr(engine, "reduce") and isinstance(engine, Wrapper):
            engine = engine.inner
        if not hasattr(engine, "reduce"):
            raise BadInput("engine", type(engine).__name__, "reduces replies by itself, and cannot add noise")
        self._engine = engine
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

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Ask; the engine reduces the replies to a noisy mean."""
        clients, each = merge_repeats(cohort, weights, self.count)
        exchange = exchange_of(self.algorithm, self.count, len(clients))
        if self.ledger is None:
            self.pending[exchange] += 1
            self._require(self.committed + self.pending)
        where = (self._round, self._exchange)
        self._exchange += 1
        self._engine.reduce = lambda task, sent: ClippedMean(self, sent, exchange, where, each)
        return self.inner.ask(cohort, task, sent, weights=weights)

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
            told = f"is planned for {self.privacy.rounds} rounds, which are over"
            raise BadInput("privacy.epsilon", self.privacy.epsilon, f"{told}; begin anew, planned for more rounds")

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint, with what was spent."""
        inner, spent = self.inner.state(), to_plain(self.spent)
        return ClientsState(inner.records, {**inner.notes, NOTES: {"spent": spent, **self.privacy.to_dict()}})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Restore the clients and what was spent from a checkpoint; a deployed run's ledger is newer, and stays."""
        super().restore(records, notes, algorithm)
        self.committed = from_plain(notes[NOTES]["spent"])
        self.pending.clear()

    def report(self) -> dict[str, Any]:
        """Entries about the clients for the summary, with the budget."""
        privacy, sampled = self.privacy, any(e.population for e in self.plan)
        fixed = "Rényi divergences of samples of a fixed size" if sampled else "privacy loss distributions"
        budget = {
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
class ClippedMean:
    """A reduction: the updates of all fields together, each client's shortened to C, summed by weight, noised, and
    divided by the weight of all that were asked. Who does not answer counts as no change. The noise is z C times the
    largest weight. What is of each client, as DRFA's losses, is cut at the bound and has noise of z times that."""

    of: ClientPrivate
    sent: Any
    exchange: Exchange
    where: tuple[int, int]
    asked: Floats  # the weights of those who were asked
    sums: dict[str, Tensor] = field(default_factory=dict)
    lists: dict[str, list[Tensor]] = field(default_factory=dict)
    clients: list[Ints] = field(default_factory=list)
    kind: type | None = None

    def add(self, clients: Ints, weights: Floats, reply: Any) -> None:
        """Add the replies of `clients`; nothing is added if `Diverged` is raised."""
        if not bool(finite_clients(reply).all()):
            name, value = next((n, v) for n, v in tensors(reply) if not bool(torch.isfinite(v).all()))
            raise Diverged(first_not_finite(clients, value), name)
        seen = visibility(type(reply))
        averaged = {n: _change(reply, n, v, self.sent) for n, v in tensors(reply) if seen[n] is Visibility.AVERAGED}
        for name, value in tensors(reply):
            if name not in averaged:
                if seen[name] is not Visibility.PER_CLIENT or value.ndim != 1:
                    told = f"shows {name!r} of each client, which cannot be private"
                    raise BadInput("algorithm", type(reply).__name__, told)
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

    def answer(self) -> tuple[Ints, Any]:
        """The clients that answered, and the reduced record."""
        if self.kind is None:
            raise NobodyAnswered(NOBODY)
        of, total = self.of, float(self.asked.sum()) or 1.0
        exact = self.sums | {name: torch.cat(parts) for name, parts in self.lists.items()}
        keys, found = of.keys(self.exchange, self.where, exact), {}
        for number, (name, value) in enumerate(exact.items()):
            noise = of.noise * of.normal(keys, self.where, number, value).to(value.device)
            if name in self.lists:
                found[name] = value + of.privacy.loss_bound * noise
                continue
            change = (value + of.privacy.clip * float(self.asked.max()) * noise) / total
            start = _origin(self.kind, name, self.sent)
            found[name] = change if start is None else start.to(change.device) + change
        return np.concatenate(self.clients), self.kind(**found)


def _origin(kind: type, name: str, sent: Any) -> Tensor | None:
    mark = bounds_marks(kind).get(name)
    return getattr(sent, mark.field) if isinstance(mark, From) else None


def _change(reply: Any, name: str, value: Tensor, sent: Any) -> Tensor:
    """What a client changed of what was sent."""
    start = _origin(type(reply), name, sent)
    return value if start is None else value - start.to(value.device)


def few_clients(private: ClientPrivate) -> str:
    """A warning that noise drowns what so few clients learn; empty if there are enough."""
    algorithm, count = private.algorithm, private.count
    asked = count if algorithm.sampled_clients is None else algorithm.sampled_clients
    if asked >= FEW:
        return ""
    size = private.noise * private.privacy.clip / asked
    told = f"privacy.unit = 'client' with {asked} clients a round: the noise of every number is {size:.2g}"
    return f"{told}; it is for {FEW} clients and more, for fewer use unit = 'row' or 'patient'"

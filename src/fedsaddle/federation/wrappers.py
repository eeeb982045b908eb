"""Wrappers around clients, one that counts costs and one that loses replies, and around a task's view of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.arguments import number
from fedsaddle.array_types import Bools, Ints
from fedsaddle.errors import NobodyAnswered
from fedsaddle.federation.clients import Batch, Clients, ClientsState, Own, Sent, Site, Task, merge_repeats
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.records import R, Record, Visibility, nbytes, tensors, visibility
from fedsaddle.files import Json, JsonObject


@dataclass
class Wrapper:
    """Base class that delegates everything to the inner clients.

    Args:
        inner: the clients that are wrapped.
    """

    inner: Clients

    @property
    def count(self) -> int:
        """Number of clients N."""
        return self.inner.count

    @property
    def sizes(self) -> Ints:
        """Rows per client."""
        return self.inner.sizes

    @property
    def samples(self) -> int:
        """Samples that clients have processed."""
        return self.inner.samples

    def begin(self, round: int) -> None:
        """Begin a round."""
        self.inner.begin(round)

    def commit(self) -> None:
        """End the round."""
        self.inner.commit()

    def settings(self) -> dict[str, Json]:
        """Settings that affect the rounding of a run."""
        return self.inner.settings()

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint."""
        return self.inner.state()

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: JsonObject, algorithm: object) -> None:
        """Restore the clients from a checkpoint."""
        self.inner.restore(records, notes, algorithm)

    def checkpointed(self) -> None:
        """Called after a checkpoint was written."""
        self.inner.checkpointed()

    def report(self) -> dict[str, Json]:
        """Entries about the clients for the summary."""
        return self.inner.report()


@dataclass
class SiteWrapper:
    """Base class of a task's view that delegates everything to the inner one.

    Args:
        site: the view that is wrapped.
    """

    site: Site

    @property
    def clients(self) -> Ints:
        """Client numbers, (C,)."""
        return self.site.clients

    @property
    def sizes(self) -> Tensor:
        """Rows per client, (C,)."""
        return self.site.sizes

    @property
    def device(self) -> torch.device:
        """Where the tensors of the exchange are."""
        return self.site.device

    def broadcast(self, v: Tensor) -> Tensor:
        """The same vector for every client."""
        return self.site.broadcast(v)

    def minibatch(self, step: int, size: int, stream: int = 0, label: int | None = None) -> Batch:
        """Rows drawn uniformly with replacement."""
        return self.site.minibatch(step, size, stream, label)

    def minibatches(self, step: int, draws: Sequence[tuple[int, int, int | None]]) -> tuple[Tensor, list[Batch]]:
        """Several minibatches."""
        return self.site.minibatches(step, draws)

    def everything(self) -> Batch:
        """All rows of each client."""
        return self.site.everything()

    def discount_samples(self, rows: int) -> None:
        """Subtract rows that were drawn but not used."""
        self.site.discount_samples(rows)

    def labelled(self, label: int) -> Tensor:
        """The number of rows with that label, (C,)."""
        return self.site.labelled(label)

    def uniforms(self, step: int, size: int, stream: int = 0) -> Tensor:
        """Numbers uniform on [0, 1) for each client."""
        return self.site.uniforms(step, size, stream)


def engine_of(clients: Clients) -> Clients:
    """The clients inside of all wrappers."""
    while isinstance(clients, Wrapper):
        clients = clients.inner
    return clients


@dataclass
class Ledger:
    """Totals since the start of the run.

    Args:
        exchanges: exchanges.
        bytes_down: bytes from server to clients.
        bytes_up: bytes from clients to server.
        asked: clients asked.
        answered: clients that answered.
        samples: samples processed.
        fields: visibility of each field of a reply, such as `LocalModels.final`: averaged.
    """

    exchanges: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    asked: int = 0
    answered: int = 0
    samples: int = 0
    fields: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Json]:
        """For JSON."""
        return asdict(self)

    def copy(self) -> Ledger:
        """An independent copy."""
        return replace(self, fields=dict(self.fields))


def reply_bytes(reply: Record, answered: int) -> int:
    """The bytes that all clients together sent, computed from the reduced reply."""
    visible = visibility(type(reply))
    total = 0
    for name, value in tensors(reply):
        size = value.numel() * value.element_size()
        total += size * answered if visible[name] is Visibility.AVERAGED else size
    return total


@dataclass
class Metered(Wrapper):
    """Adds the cost of every exchange to a ledger.

    Args:
        inner: the clients that are wrapped.
        ledger: where the cost is added up.
    """

    ledger: Ledger = field(default_factory=Ledger)

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask, and add the cost to the ledger."""
        asked, _ = merge_repeats(cohort, weights, self.count)
        self.ledger.exchanges += 1
        self.ledger.asked += len(asked)
        self.ledger.bytes_down += nbytes(sent) * len(asked)
        before = self.inner.samples
        clients, reply = self.inner.ask(cohort, task, sent, weights=weights)
        self.ledger.samples += self.inner.samples - before
        self.ledger.answered += len(clients)
        self.ledger.bytes_up += reply_bytes(reply, len(clients))
        for name, visible in visibility(type(reply)).items():
            if getattr(reply, name) is not None:
                self.ledger.fields[f"{type(reply).__name__}.{name}"] = visible.value
        return clients, reply


@dataclass
class Lossy(Wrapper):
    """Loses each reply with probability `share`; the client of a lost reply keeps its old state.

    Args:
        inner: the clients that are wrapped.
        share: probability that a reply is lost.
        seed: seed of the losses.
    """

    share: float
    seed: int = 0
    _round: int = field(default=0, repr=False)
    _exchange: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        number("share", self.share, least=0, below=1)

    def begin(self, round: int) -> None:
        """Begin a round."""
        self._round, self._exchange = round, 0
        super().begin(round)

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask only the clients whose replies will arrive."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        keys = ClientKeys.of(self.seed, self._round, self._exchange, clients)
        self._exchange += 1
        arrives: Bools = keys.uniforms(stream=99)[:, 0] >= self.share
        if not arrives.any():
            raise NobodyAnswered(f"all {len(clients)} replies of the exchange were lost")
        return self.inner.ask(clients[arrives], task, sent, weights=total_weights[arrives])

"""The engine whose blocks run in other processes, on this machine or on others; a carrier brings them there.

The driver keeps the state of clients, and sums what comes back in cohort order. So the result does not depend on how
many workers there are, which of them answers what, or whether some are lost on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from numpy.typing import ArrayLike

from fedsaddle.array_types import Ints
from fedsaddle.engines.simulated import Simulated, blocks_of
from fedsaddle.engines.worker import Exchange, Worker, pack_block, read_answer
from fedsaddle.errors import BadInput, BadMessage
from fedsaddle.federation.clients import R, Task, merge_repeats
from fedsaddle.federation.reduction import Reduction
from fedsaddle.federation.tasks import records_of, task_of
from fedsaddle.federation.wire import Kinds, Message, pack


class Carrier(Protocol):
    """Brings blocks to workers and their answers back."""

    def answers(self, sent: bytes, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The answers, in the order of the blocks; raise `WorkersFailed` if the workers cannot go on."""
        ...

    def report(self) -> dict[str, Any]:
        """Entries about the workers for the summary."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


@dataclass
class Loopback:
    """Workers in this process, in turn; for tests."""

    workers: list[Worker]

    def answers(self, sent: bytes, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The answers, in the order of the blocks."""
        return (self.workers[n % len(self.workers)].answer(sent, block) for n, block in enumerate(blocks))

    def report(self) -> dict[str, Any]:
        """How many there are."""
        return {"workers": {"count": len(self.workers)}}

    def close(self) -> None:
        """Nothing to do."""


@dataclass(kw_only=True)
class Distributed(Simulated):
    """Runs a cohort in blocks of `chunk` clients at the workers of a carrier."""

    carrier: Carrier
    name: str
    chunk: int = 10
    device: str = "cpu"  # the kind that tasks run on
    precision: str = "full"  # of the network's layers
    _number: int = field(default=0, init=False)
    _kinds: tuple[Any, Kinds] = field(default=(None, {}), init=False)  # of which algorithm

    def settings(self) -> dict[str, Any]:
        """The engine's name and chunk, and where tasks run, if that is not the CPU in full precision."""
        found = {"name": self.name, "chunk": self.chunk}
        kind = {} if self.device == "cpu" else {"device": self.device}
        return found | kind | ({} if self.precision == "full" else {"precision": self.precision})

    def report(self) -> dict[str, Any]:
        """The clients that were left out, and the workers."""
        return {**super().report(), **self.carrier.report()}

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Have the workers run the task for each block, and reduce the replies in cohort order."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        self._number += 1
        reduction, (owner, name) = self.reduce(task, sent), _named(task)
        of = Exchange(self._number, self.round, exchange, self.seed, name, isinstance(reduction, Reduction))
        parts, kinds = blocks_of(len(clients), self.chunk), self._kinds_of(owner)
        packed = (pack_block(of, clients[s], total_weights[s], self.memory, task) for s in parts)
        answers = self.carrier.answers(pack(Message({}, sent)), packed)
        for s, content in zip(parts, answers, strict=True):
            who = clients[s]
            self._take(reduction, read_answer(content, kinds, who, self.sizes[who], total_weights[s]))
        return self._answer(reduction, exchange)

    def _kinds_of(self, owner: Any) -> Kinds:
        """The records of the algorithm, looked up once."""
        if self._kinds[0] is not owner:
            self._kinds = owner, records_of(owner)
        return self._kinds[1]

    def close(self) -> None:
        """End the workers."""
        self.carrier.close()


def _named(task: Task[Any]) -> tuple[Any, str]:
    """The algorithm and the name of its task."""
    owner, name = getattr(task, "__self__", None), str(getattr(task, "__name__", task))
    try:
        task_of(owner, name)
    except BadMessage:
        remedy = "workers know an algorithm's public methods (own, sent, site) only; make it one, or use vectorised"
        raise BadInput("task", name, remedy) from None
    return owner, name

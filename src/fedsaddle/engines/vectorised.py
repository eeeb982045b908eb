"""The fast engine: a chunk of the cohort in one step, chunks on every core.

A chunk is a block of clients whose models live in one `(C, d)` tensor, so that a local step of all of them is a few
large tensor operations. Chunks run on `workers` threads; their sums are taken in cohort order, so that the result
depends on `chunk` and `workers` alone, never on timing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch
from numpy.typing import ArrayLike

from fedsaddle.data.store import ClientRows
from fedsaddle.engines.memory import Memory
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Floats, Ints, R, Task, merged
from fedsaddle.federation.randomness import ClientKeys, Draw
from fedsaddle.federation.reduction import Reduction


@dataclass
class Vectorised:
    """Asks a cohort chunk by chunk. `chunk` clients share one step; `workers` chunks run at a time."""

    rows: ClientRows
    seed: int = 0
    chunk: int = 10
    workers: int = 1
    draw: Draw = ClientKeys.of  # every draw of a client; tests hand in sequences of their own
    memory: Memory = field(default_factory=Memory)
    samples: int = 0
    round: int = 0
    exchange: int = 0

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise BadInput("chunk", self.chunk, "a chunk holds at least one client")
        if self.workers < 1:
            raise BadInput("workers", self.workers, "use at least one thread")
        self._pool = ThreadPoolExecutor(self.workers, initializer=_one_thread) if self.workers > 1 else None

    @property
    def count(self) -> int:
        """Number of clients N."""
        return self.rows.count

    @property
    def sizes(self) -> Ints:
        """Rows per client."""
        return self.rows.sizes

    def begin(self, round: int) -> None:
        """Open a round."""
        self.round, self.exchange = round, 0
        self.memory.begin()

    def commit(self) -> None:
        """Close the round."""
        self.memory.commit()

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task for chunk after chunk and add up the replies in cohort order."""
        clients, each = merged(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        size = min(self.chunk, -(-len(clients) // self.workers))  # no worker without work
        chunks = [slice(a, a + size) for a in range(0, len(clients), size)]
        sites = [
            LocalSite(self.rows, clients[s], self.draw(self.seed, self.round, exchange, clients[s])) for s in chunks
        ]
        reduction = Reduction()
        for s, site, (own, reply) in zip(chunks, sites, self._run(task, sent, sites), strict=True):
            self._take(reduction, each[s], site, own, reply)
        return reduction.answer()

    def _take(self, reduction: Reduction, weights: Floats, site: LocalSite, own: Any, reply: Any) -> None:
        reduction.add(site.clients, weights, reply)
        self.memory.write(site.clients, site.sizes, own)
        self.samples += site.samples

    def _run(self, task: Task[R], sent: Any, sites: list[LocalSite]) -> Iterator[tuple[Any, R]]:
        if self._pool is None or len(sites) == 1:
            return (task(self.memory.read(task, site), sent, site) for site in sites)
        return self._pool.map(lambda site: task(self.memory.read(task, site), sent, site), sites)


def _one_thread() -> None:
    torch.set_num_threads(1)

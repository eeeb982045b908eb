"""The fast engine: a chunk of the cohort in one step, chunks on every core.

A chunk is a block of clients whose models live in one `(C, d)` tensor, so that a local step of all of them is a few
large tensor operations. Chunks run on `workers` threads; their sums are taken in cohort order, so that the result
depends on `chunk` and `workers` alone, never on timing.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike

from fedsaddle.engines.simulated import Simulated
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Ints, R, Task, merge_repeats
from fedsaddle.federation.reduction import Reduction


@dataclass(kw_only=True)
class Vectorised(Simulated):
    """Asks a cohort chunk by chunk. `chunk` clients share one step; `workers` chunks run at a time."""

    chunk: int = 10
    workers: int = 1

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise BadInput("chunk", self.chunk, "a chunk holds at least one client")
        if self.workers < 1:
            raise BadInput("workers", self.workers, "use at least one thread")
        self._pool = ThreadPoolExecutor(self.workers, initializer=_one_thread) if self.workers > 1 else None

    def settings(self) -> dict[str, Any]:
        """Chunks and threads shape the rounding of sums."""
        return {**super().settings(), "chunk": self.chunk, "workers": self.workers}

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task for chunk after chunk and add up the replies in cohort order."""
        clients, own_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        size = min(self.chunk, -(-len(clients) // self.workers))  # no worker without work
        chunks = [slice(a, a + size) for a in range(0, len(clients), size)]
        sites = [self._site(clients[s], exchange) for s in chunks]
        reduction = Reduction()
        for s, site, (own, reply) in zip(chunks, sites, self._run(task, sent, sites), strict=True):
            self._take(reduction, own_weights[s], site, own, reply)
        return reduction.answer()

    def _run(self, task: Task[R], sent: Any, sites: list[LocalSite]) -> Iterator[tuple[Any, R]]:
        if self._pool is None or len(sites) == 1:
            return (task(self.memory.read(task, site), sent, site) for site in sites)
        return self._pool.map(lambda site: task(self.memory.read(task, site), sent, site), sites)


def _one_thread() -> None:
    torch.set_num_threads(1)

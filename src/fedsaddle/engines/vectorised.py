"""The fast engine: all clients of a chunk take a local step together, and chunks run in parallel.

The models of a chunk are one `(C, d)` tensor, so a local step of all its clients is a few large tensor operations.
Chunks run on `workers` threads. Their replies are summed in cohort order, so the result depends on `chunk` and
`workers` only, not on timing.
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


@dataclass(kw_only=True)
class Vectorised(Simulated):
    """Runs a cohort in chunks of `chunk` clients; `workers` chunks run at a time."""

    chunk: int = 10
    workers: int = 1

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise BadInput("chunk", self.chunk, "use at least one client per chunk")
        if self.workers < 1:
            raise BadInput("workers", self.workers, "use at least one thread")
        self._pool = ThreadPoolExecutor(self.workers, initializer=_one_thread) if self.workers > 1 else None

    def settings(self) -> dict[str, Any]:
        """The engine's name, chunk and workers: they affect the rounding of sums."""
        return {**super().settings(), "chunk": self.chunk, "workers": self.workers}

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task for each chunk and reduce the replies in cohort order."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        size = min(self.chunk, -(-len(clients) // self.workers))  # so that every worker has a chunk
        chunks = [slice(a, a + size) for a in range(0, len(clients), size)]
        sites = [self._site(clients[s], exchange) for s in chunks]
        reduction = self.reduce(task, sent)
        for s, site, (own, reply) in zip(chunks, sites, self._run(task, sent, sites), strict=True):
            self._add(reduction, total_weights[s], site, own, reply)
        return self._answer(reduction, exchange)

    def _run(self, task: Task[R], sent: Any, sites: list[LocalSite]) -> Iterator[tuple[Any, R]]:
        if self._pool is None or len(sites) == 1:
            return (task(self.memory.read(task, site), sent, site) for site in sites)
        return self._pool.map(lambda site: task(self.memory.read(task, site), sent, site), sites)


def _one_thread() -> None:
    torch.set_num_threads(1)

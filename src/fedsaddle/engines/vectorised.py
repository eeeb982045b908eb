"""The fast engine: all clients of a block take a local step together, and blocks run in parallel.

The models of a block are one `(C, d)` tensor, so a local step of all its clients is a few large tensor operations.
Blocks of `chunk` clients run on `workers` threads. Their replies are summed in cohort order, so the result does not
depend on timing. With several workers each has one torch thread, and the result does not depend on their number; with
one, torch's own threads work on each operation, and matrix products round by how many these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike

from fedsaddle.engines.block import BlockAnswer, blocks_of, run_block
from fedsaddle.engines.simulated import Simulated
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Floats, Ints, R, Task, merge_repeats
from fedsaddle.federation.reduction import Reduction


@dataclass(kw_only=True)
class Vectorised(Simulated):
    """Runs a cohort in blocks of `chunk` clients; `workers` blocks run at a time."""

    chunk: int = 10
    workers: int = 1

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise BadInput("chunk", self.chunk, "use at least one client per chunk")
        if self.workers < 1:
            raise BadInput("workers", self.workers, "use at least one thread")
        self._pool = ThreadPoolExecutor(self.workers, initializer=_one_thread) if self.workers > 1 else None

    def settings(self) -> dict[str, Any]:
        """The engine's name and chunk: they affect the rounding of sums."""
        return {**super().settings(), "chunk": self.chunk}

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task for each block and reduce the replies in cohort order."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        reduction = self.reduce(task, sent)
        work = [(self._site(clients[s], exchange), total_weights[s]) for s in blocks_of(len(clients), self.chunk)]
        for answer in self._run(task, sent, work, isinstance(reduction, Reduction)):
            self._take(reduction, answer)
        return self._answer(reduction, exchange)

    def _run(
        self, task: Task[Any], sent: Any, work: list[tuple[LocalSite, Floats]], summed: bool
    ) -> Iterator[BlockAnswer]:
        def answer(block: tuple[LocalSite, Floats]) -> BlockAnswer:
            site, weights = block
            return run_block(task, self.memory.read(task, site), sent, site, weights, summed)

        return map(answer, work) if self._pool is None else self._pool.map(answer, work)


def _one_thread() -> None:
    torch.set_num_threads(1)

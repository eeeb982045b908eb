"""The fast engine: all clients of a block take a local step together, and blocks run in parallel.

The models of a block are one `(C, d)` tensor, so a local step of all its clients is a few large tensor operations.
Blocks of `chunk` clients run on `workers` threads with one torch thread each. Their replies are summed in cohort order,
so the result depends neither on timing nor on the number of threads. A client that is alone in its data set has torch's
own threads, as there is nothing else to share out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from fedsaddle.engines.block import BlockAnswer, blocks_of, run_block
from fedsaddle.engines.simulated import Simulated
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Floats, Ints, R, Task, merge_repeats
from fedsaddle.federation.reduction import Reduction
from fedsaddle.threads import mapped, one_thread_pool, one_torch_thread


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
        self._pool = one_thread_pool(self.workers) if self.workers > 1 else None

    def settings(self) -> dict[str, Any]:
        """The engine's name and chunk: they affect the rounding of sums."""
        return {**super().settings(), "chunk": self.chunk}

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task for each block and reduce the replies in cohort order."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        reduction = self.reduce(task, sent)
        work = [(self._site(clients[s], exchange), total_weights[s]) for s in blocks_of(len(clients), self.chunk)]
        with nullcontext() if self.count == 1 else one_torch_thread():
            for answer in self._run(task, sent, work, isinstance(reduction, Reduction)):
                self._take(reduction, answer)
        return self._answer(reduction, exchange)

    def _run(
        self, task: Task[Any], sent: Any, work: list[tuple[LocalSite, Floats]], summed: bool
    ) -> Iterator[BlockAnswer]:
        def answer(block: tuple[LocalSite, Floats]) -> BlockAnswer:
            site, weights = block
            return run_block(task, self.memory.read(task, site), sent, site, weights, summed)

        return map(answer, work) if self._pool is None else mapped(self._pool, answer, work)

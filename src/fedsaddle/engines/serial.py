"""The reference engine: one client after the other. Tests compare every other engine with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from fedsaddle.engines.block import run_block
from fedsaddle.engines.simulated import Simulated
from fedsaddle.federation.clients import Ints, R, Task, merge_repeats
from fedsaddle.federation.reduction import Reduction


@dataclass
class Serial(Simulated):
    """Runs clients one after the other, in this process."""

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task at each client in turn and reduce the replies."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        reduction = self.reduce(task, sent)
        summed = isinstance(reduction, Reduction)
        for c in range(len(clients)):
            one = slice(c, c + 1)
            site = self._site(clients[one], exchange)
            own = self.memory.read(task, site)
            self._take(reduction, run_block(task, own, sent, site, total_weights[one], summed))
        return self._answer(reduction, exchange)

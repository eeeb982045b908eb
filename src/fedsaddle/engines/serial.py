"""The reference engine: one client after the other. Tests compare every other engine with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from fedsaddle.engines.simulated import Simulated
from fedsaddle.federation.clients import Ints, R, Task, merge_repeats


@dataclass
class Serial(Simulated):
    """Runs clients one after the other, in this process."""

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task at each client in turn and reduce the replies."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        reduction = self.reduce(task, sent)
        for c in range(len(clients)):
            one = slice(c, c + 1)
            site = self._site(clients[one], exchange)
            own, reply = task(self.memory.read(task, site), sent, site)
            self._add(reduction, total_weights[one], site, own, reply)
        return self._answer(reduction, exchange)

"""The obvious engine: one client after the other. It is the oracle of every other engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from fedsaddle.engines.simulated import Simulated
from fedsaddle.federation.clients import Ints, R, Task, merge_repeats
from fedsaddle.federation.reduction import Reduction


@dataclass
class Serial(Simulated):
    """Asks clients one by one, in this process."""

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task at each client in turn."""
        clients, own_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        reduction = Reduction()
        for c in range(len(clients)):
            one = slice(c, c + 1)
            site = self._site(clients[one], exchange)
            own, reply = task(self.memory.read(task, site), sent, site)
            self._take(reduction, own_weights[one], site, own, reply)
        return reduction.answer()

"""The obvious engine: one client after the other. It is the oracle of every other engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from fedsaddle.data.store import ClientRows
from fedsaddle.engines.memory import Memory
from fedsaddle.engines.site import LocalSite
from fedsaddle.federation.clients import Ints, R, Task, merged
from fedsaddle.federation.randomness import ClientKeys, Draw
from fedsaddle.federation.reduction import Reduction


@dataclass
class Serial:
    """Asks clients one by one, in this process."""

    rows: ClientRows
    seed: int = 0
    draw: Draw = ClientKeys.of  # every draw of a client; tests hand in sequences of their own
    memory: Memory = field(default_factory=Memory)
    samples: int = 0
    round: int = 0
    exchange: int = 0

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
        """Run the task at each client in turn."""
        clients, each = merged(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        reduction = Reduction()
        for c in range(len(clients)):
            one = slice(c, c + 1)
            site = LocalSite(self.rows, clients[one], self.draw(self.seed, self.round, exchange, clients[one]))
            own, reply = task(self.memory.read(task, site), sent, site)
            reduction.add(site.clients, each[one], reply)
            self.memory.write(site.clients, site.sizes, own)
            self.samples += site.samples
        return reduction.answer()

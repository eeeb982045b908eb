"""The common part of both simulation engines: the rows, the draws and the state of all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedsaddle.data.store import ClientRows
from fedsaddle.engines.memory import Memory
from fedsaddle.engines.site import LocalSite
from fedsaddle.federation.clients import ClientsState, Floats, Ints
from fedsaddle.federation.randomness import ClientKeys, Draw
from fedsaddle.federation.reduction import Reduction


@dataclass(kw_only=True)
class Simulated:
    """Clients whose rows are all in this process."""

    rows: ClientRows = field(kw_only=False)
    seed: int = field(default=0, kw_only=False)
    draw: Draw = ClientKeys.of  # keys of all client draws; tests substitute fixed sequences
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
        """Begin a round."""
        self.round, self.exchange = round, 0
        self.memory.begin()

    def commit(self) -> None:
        """End the round."""
        self.memory.commit()

    def settings(self) -> dict[str, Any]:
        """The engine's name."""
        return {"name": type(self).__name__.lower()}

    def state(self) -> ClientsState:
        """The clients' state, for a checkpoint."""
        return ClientsState(self.memory.kept)

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Restore the clients' state from a checkpoint."""
        self.memory.restore(algorithm, lambda i: LocalSite.alone(self.rows, i), records)

    def checkpointed(self) -> None:
        """Nothing to do: the state is in this process."""

    def report(self) -> dict[str, Any]:
        """Nothing: simulated clients add no entries to the summary."""
        return {}

    def _site(self, clients: Ints, exchange: int) -> LocalSite:
        return LocalSite(self.rows, clients, self.draw(self.seed, self.round, exchange, clients))

    def _add(self, reduction: Reduction, weights: Floats, site: LocalSite, own: Any, reply: Any) -> None:
        reduction.add(site.clients, weights, reply)
        self.memory.write(site.clients, site.sizes, own)
        self.samples += site.samples

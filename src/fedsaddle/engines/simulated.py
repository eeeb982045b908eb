"""What both engines of one machine share: the rows of all clients, their draws and what they remember."""

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
    """All clients in this process."""

    rows: ClientRows = field(kw_only=False)
    seed: int = field(default=0, kw_only=False)
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

    def settings(self) -> dict[str, Any]:
        """The engine's name."""
        return {"name": type(self).__name__.lower()}

    def state(self) -> ClientsState:
        """What clients remember."""
        return ClientsState(self.memory.kept)

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """What clients remember, as it was."""
        self.memory.restore(algorithm, lambda i: LocalSite.alone(self.rows, i), records)

    def checkpointed(self) -> None:
        """Memory in this process needs no care."""

    def report(self) -> dict[str, Any]:
        """Simulated clients have nothing to report."""
        return {}

    def _site(self, clients: Ints, exchange: int) -> LocalSite:
        return LocalSite(self.rows, clients, self.draw(self.seed, self.round, exchange, clients))

    def _take(self, reduction: Reduction, weights: Floats, site: LocalSite, own: Any, reply: Any) -> None:
        reduction.add(site.clients, weights, reply)
        self.memory.write(site.clients, site.sizes, own)
        self.samples += site.samples

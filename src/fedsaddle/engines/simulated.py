"""The common part of both simulation engines: the rows, the draws and the state of all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedsaddle.data.store import ClientRows
from fedsaddle.engines.left_out import LeftOut
from fedsaddle.engines.memory import Memory
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import Diverged, NobodyAnswered
from fedsaddle.federation.clients import ClientsState, Floats, Ints
from fedsaddle.federation.randomness import ClientKeys, Draw
from fedsaddle.federation.records import only, tensors
from fedsaddle.federation.reduction import MakeReduction, Reducing, finite_clients, streaming


@dataclass(kw_only=True)
class Simulated:
    """Clients whose rows are all in this process."""

    rows: ClientRows = field(kw_only=False)
    seed: int = field(default=0, kw_only=False)
    draw: Draw = ClientKeys.of  # keys of all client draws; tests substitute fixed sequences
    memory: Memory = field(default_factory=Memory)
    reduce: MakeReduction = streaming  # how replies become one; robust aggregation substitutes its own
    left_out: LeftOut = field(default_factory=LeftOut)
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
        self.left_out.begin()

    def commit(self) -> None:
        """End the round."""
        self.memory.commit()
        self.left_out.commit()

    def settings(self) -> dict[str, Any]:
        """The engine's name."""
        return {"name": type(self).__name__.lower()}

    def state(self) -> ClientsState:
        """The clients' state, for a checkpoint."""
        return ClientsState(self.memory.kept, self.left_out.to_dict())

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Restore the clients' state from a checkpoint."""
        self.memory.restore(algorithm, lambda i: LocalSite.alone(self.rows, i), records)
        self.left_out.restore(notes)

    def checkpointed(self) -> None:
        """Nothing to do: the state is in this process."""

    def report(self) -> dict[str, Any]:
        """The clients whose replies were left out, and why, if there are any."""
        return self.left_out.to_dict()

    def _site(self, clients: Ints, exchange: int) -> LocalSite:
        return LocalSite(self.rows, clients, self.draw(self.seed, self.round, exchange, clients))

    def _add(self, reduction: Reducing, weights: Floats, site: LocalSite, own: Any, reply: Any) -> None:
        """Add the replies of a chunk; those that are not finite are left out, and their clients keep their state."""
        clients, sizes = site.clients, site.sizes
        self.samples += site.samples
        try:
            reduction.add(clients, weights, reply)
        except Diverged:
            finite = finite_clients(reply)
            if finite.all():  # only their sum is not
                raise
            for c in (~finite).nonzero()[:, 0].tolist():
                self.left_out.note(self.exchange - 1, Diverged(int(clients[c]), _not_finite(reply, c)))
            if not finite.any():
                return
            kept = finite.numpy()
            clients, sizes, own = clients[kept], sizes[finite], None if own is None else only(own, finite)
            reduction.add(clients, weights[kept], only(reply, finite))
        self.memory.write(clients, sizes, own)

    def _answer(self, reduction: Reducing, exchange: int) -> tuple[Ints, Any]:
        """The reduced reply; if no reply of the exchange was finite, the run has diverged."""
        try:
            return reduction.answer()
        except NobodyAnswered:
            for of, fault in self.left_out.pending:
                if of == exchange:
                    raise fault from None
            raise


def _not_finite(reply: Any, c: int) -> str:
    """The first field of a client's reply that is not finite."""
    return next(name for name, value in tensors(reply) if not bool(value[c].isfinite().all()))

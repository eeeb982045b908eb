"""The common part of the simulation engines: the rows, the draws and the state of all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fedsaddle.data.store import ClientRows
from fedsaddle.engines.block import BlockAnswer
from fedsaddle.engines.left_out import LeftOut
from fedsaddle.engines.memory import Memory
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import NobodyAnswered
from fedsaddle.federation.clients import ClientsState, Ints
from fedsaddle.federation.randomness import ClientKeys, Draw
from fedsaddle.federation.reduction import MakeReduction, Part, Reducing, Reduction, streaming


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

    def _take(self, reduction: Reducing, answer: BlockAnswer) -> None:
        """Add the replies of a block; clients that were left out keep their state."""
        self.samples += answer.samples
        for fault in answer.left_out:
            self.left_out.note(self.exchange - 1, fault)
        if answer.answered is None:
            return
        if isinstance(answer.answered, Part):
            assert isinstance(reduction, Reduction)
            reduction.merge(answer.answered)
        else:
            reduction.add(answer.clients, answer.weights, answer.answered)
        self.memory.write(answer.clients, answer.sizes, answer.own)

    def _answer(self, reduction: Reducing, exchange: int) -> tuple[Ints, Any]:
        """The reduced reply; if no reply of the exchange was finite, the run has diverged."""
        try:
            return reduction.answer()
        except NobodyAnswered:
            for of, fault in self.left_out.pending:
                if of == exchange:
                    raise fault from None
            raise

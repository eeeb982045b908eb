"""The fast engine on a GPU or another device: tasks, rows and clients' state are there, the server is here.

An exchange sends the message once and gets the reduced reply once. Whether all replies are finite is asked once, of
their sums; only if one is not, the exchange is repeated block by block, with the same draws, to find whose it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.engines.block import blocks_of, brought
from fedsaddle.engines.device import CPU, ResidentRows, moved, resident
from fedsaddle.engines.device_site import site_on
from fedsaddle.engines.simulated import Simulated
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import ClientsState, Floats, Ints, R, Task, merge_repeats
from fedsaddle.federation.reduction import Reduction, streaming
from fedsaddle.numerics.bare_module import in_precision


@dataclass(kw_only=True)
class OnDevice(Simulated):
    """Runs a cohort in blocks of `chunk` clients on a device."""

    device: torch.device
    chunk: int = 10
    precision: str = "full"  # or "bf16": of the network's layers

    def __post_init__(self) -> None:
        if self.chunk < 1:
            raise BadInput("chunk", self.chunk, "use at least one client per chunk")
        self._resident: ResidentRows | None = resident(self.rows, self.device)

    def settings(self) -> dict[str, Any]:
        """The engine's name and chunk, which affect the rounding of sums, and the kind of device, which may."""
        found = {"name": "vectorised", "chunk": self.chunk, "device": self.device.type}
        return found if self.precision == "full" else {**found, "precision": self.precision}

    def state(self) -> ClientsState:
        """The clients' state, for a checkpoint that any device can load."""
        inner = super().state()
        return ClientsState({i: moved(record, CPU) for i, record in inner.records.items()}, inner.notes)

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Restore the clients' state from a checkpoint."""
        super().restore(records, notes, algorithm)
        self.memory.kept = {i: moved(record, self.device) for i, record in self.memory.kept.items()}

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Run the task for each block and reduce the replies in cohort order."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        blocks = blocks_of(len(clients), self.chunk)
        message, before = moved(sent, self.device), (dict(self.memory.pending), self.samples)
        if self.reduce is streaming:
            together = Reduction(checks=False)
            for s, site, own, reply in self._run(clients, blocks, exchange, task, message):
                together.add(site.clients, total_weights[s], reply)
                self._remember(site, own)
                self.samples += site.samples
            if together.finite():
                # divided here, as with workers: devices may round quotients otherwise
                together.sums = {name: value.to(CPU) for name, value in together.sums.items()}
                answered, reduced = together.answer()
                return answered, moved(reduced, CPU)
            self.memory.pending, self.samples = before
        return self._one_by_one(clients, total_weights, blocks, exchange, task, sent, message)

    def _one_by_one(
        self,
        clients: Ints,
        weights: Floats,
        blocks: list[slice],
        exchange: int,
        task: Task[R],
        sent: Any,
        message: Any,
    ) -> tuple[Ints, R]:
        """The replies of each block here: for robust aggregation, and to find those that are not finite."""
        reduction = self.reduce(task, sent)
        for s, site, own, reply in self._run(clients, blocks, exchange, task, message):
            self._take(reduction, brought(own, reply, site, weights[s], isinstance(reduction, Reduction)))
            self.memory.pending = {i: moved(record, self.device) for i, record in self.memory.pending.items()}
        return self._answer(reduction, exchange)

    def _run(
        self, clients: Ints, blocks: list[slice], exchange: int, task: Task[R], message: Any
    ) -> Iterator[tuple[slice, LocalSite, Any, Any]]:
        for s in blocks:
            site = self._site(clients[s], exchange)
            with in_precision(self.precision):
                own, reply = task(self.memory.read(task, site), message, site)
            yield s, site, own, reply

    def _remember(self, site: LocalSite, own: Any) -> None:
        self.memory.write(site.clients, torch.from_numpy(self.rows.sizes[site.clients]), own)

    def _site(self, clients: Ints, exchange: int) -> LocalSite:
        keys = self.draw(self.seed, self.round, exchange, clients)
        return site_on(self.device, self.rows, clients, keys, self._resident)

"""The fast engine: the clients of a block take each local step together, on this machine's cores or a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.engines.device import CPU, ResidentRows, moved, resident, site_on
from fedsaddle.engines.simulated import BlockAnswer, Simulated, blocks_of, brought, run_block
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import ClientsState, R, Task, merge_repeats
from fedsaddle.federation.reduction import Reduction, streaming
from fedsaddle.numerics.modules import in_precision
from fedsaddle.threads import mapped, one_thread_pool, one_torch_thread


@dataclass(kw_only=True)
class VectorisedEngine(Simulated):
    """Runs a cohort in blocks of `chunk` clients; `workers` blocks run at a time.

    Args:
        rows: the rows of all clients.
        seed: of all draws of the clients.
        draw: makes the keys of a client's draws; tests substitute fixed sequences.
        memory: what clients keep between rounds.
        reduce: how replies become one; robust aggregation substitutes its own.
        left_out: whose replies were left out, and why.
        samples: rows that have been drawn so far.
        round: the current round.
        exchange: the next exchange of the round.
        chunk: clients of a block, which take each local step together.
        workers: threads; each runs a block at a time.

    Raises:
        BadInput: if `chunk` or `workers` is less than 1.
    """

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


@dataclass(kw_only=True)
class DeviceEngine(Simulated):
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

"""Simulation engines: the serial engine, the slow reference, and the vectorised one, on cores or on a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Generic

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.store import ClientRows
from fedsaddle.engines.device import CPU, ResidentRows, moved, resident, site_on
from fedsaddle.engines.site import LocalSite, Memory
from fedsaddle.errors import BadInput, Diverged, NobodyAnswered
from fedsaddle.federation.clients import ClientsState, Own, Sent, Task, merge_repeats
from fedsaddle.federation.randomness import ClientKeys, Draw
from fedsaddle.federation.records import R, Record, select_clients, tensors
from fedsaddle.federation.reduction import MakeReduction, Part, Reducing, Reduction, finite_clients, part_of, streaming
from fedsaddle.files import Json, JsonObject
from fedsaddle.numerics.modules import in_precision
from fedsaddle.processes import mapped, one_thread_pool, one_torch_thread


def blocks_of(count: int, size: int) -> list[slice]:
    """A cohort of `count` clients in blocks of `size`."""
    return [slice(a, a + size) for a in range(0, count, size)]


@dataclass(frozen=True)
class BlockAnswer(Generic[R]):
    """What the clients of a block answered; those whose replies are not finite are left out of all but `left_out`."""

    clients: Ints
    sizes: Tensor
    weights: Floats
    own: Record | None  # their new state, stacked
    answered: Part[R] | R | None  # their replies: as one part of a sum, or stacked
    left_out: tuple[Diverged, ...]
    samples: int


def run_block(
    task: Task[Own, Sent, R], own: Own, sent: Sent, site: LocalSite, weights: Floats, summed: bool
) -> BlockAnswer[R]:
    """Run the task for the block; with `summed` the replies are summed, else returned one by one.

    Raises:
        Diverged: if every reply is finite, but their sum is not.
    """
    return replied(*task(own, sent, site), site, weights, summed)


def replied(own: Record | None, reply: R, site: LocalSite, weights: Floats, summed: bool) -> BlockAnswer[R]:
    """What the clients of a block answered, from their new state and their replies, stacked."""
    clients, sizes = site.clients, site.sizes
    try:
        answered = part_of(clients, weights, reply) if summed else _all_finite(clients, reply)
        return BlockAnswer(clients, sizes, weights, own, answered, (), site.samples)
    except Diverged:
        finite = finite_clients(reply)
        if finite.all():  # only their sum is not
            raise
    here = finite.cpu()  # the replies may be on a device
    lost = tuple(Diverged(int(clients[c]), _not_finite(reply, c)) for c in (~here).nonzero()[:, 0].tolist())
    finite_here, sizes = here.numpy(), sizes[here]
    if not finite_here.any():
        return BlockAnswer(clients[finite_here], sizes, weights[finite_here], None, None, lost, site.samples)
    clients, weights, reply = clients[finite_here], weights[finite_here], select_clients(reply, finite)
    own = None if own is None else select_clients(own, finite)
    answered = part_of(clients, weights, reply) if summed else reply
    return BlockAnswer(clients, sizes, weights, own, answered, lost, site.samples)


def replied_on_device(own: Record | None, reply: R, site: LocalSite, weights: Floats, summed: bool) -> BlockAnswer[R]:
    """The answer of a block that ran on a device, moved to the host; replies are summed on the device."""
    here = LocalSite(site.rows, site.clients, site.keys, site.samples)
    if not summed:
        return replied(moved(own, CPU), moved(reply, CPU), here, weights, summed)
    part = _part_here(part_of(site.clients, weights, reply, checks=False))
    if all(bool(torch.isfinite(value).all()) for value in part.fields.values()):
        return BlockAnswer(here.clients, here.sizes, weights, moved(own, CPU), part, (), here.samples)
    answer = replied(own, reply, here, weights, summed)
    answered = _part_here(answer.answered) if isinstance(answer.answered, Part) else None
    return replace(answer, own=moved(answer.own, CPU), answered=answered)


def _part_here(part: Part[R]) -> Part[R]:
    return replace(part, fields={name: value.to(CPU) for name, value in part.fields.items()})


def _all_finite(clients: Ints, reply: R) -> R:
    """The replies, or raise `Diverged`."""
    finite = finite_clients(reply)
    if not finite.all():
        c = int((~finite).nonzero()[0, 0])
        raise Diverged(int(clients[c]), _not_finite(reply, c))
    return reply


def _not_finite(reply: Record, c: int) -> str:
    """The first field of a client's reply that is not finite."""
    return next(name for name, value in tensors(reply) if not bool(value[c].isfinite().all()))


@dataclass
class RejectedReplies:
    """Client -> why its replies were left out, and how often. Counts of a round become valid when it is committed."""

    counts: dict[int, Counter[str]] = field(default_factory=dict)
    pending: list[tuple[int, Diverged]] = field(default_factory=list)

    def begin(self) -> None:
        """Discard the counts of an unfinished round."""
        self.pending.clear()

    def note(self, exchange: int, fault: Diverged) -> None:
        """Count a reply that is not finite, of that exchange of the round."""
        self.pending.append((exchange, fault))

    def commit(self) -> None:
        """Make the counts of the round valid."""
        for _, fault in self.pending:
            self.counts.setdefault(fault.client, Counter())[f"sent a '{fault.field}' that is not finite"] += 1
        self.pending.clear()

    def to_dict(self) -> dict[str, Json]:
        """`{"left_out": {client: {reason: count}}}`, or nothing, for JSON."""
        counts = {str(i): dict(reasons) for i, reasons in sorted(self.counts.items())}
        return {"left_out": counts} if counts else {}

    def restore(self, notes: JsonObject) -> None:
        """Restore the counts from a checkpoint."""
        self.counts = {int(i): Counter(reasons) for i, reasons in notes.get("left_out", {}).items()}
        self.pending.clear()


@dataclass(kw_only=True)
class Simulated:
    """Clients whose rows are all in this process."""

    rows: ClientRows = field(kw_only=False)
    seed: int = field(default=0, kw_only=False)
    draw: Draw = ClientKeys.of  # keys of all client draws; tests substitute fixed sequences
    memory: Memory = field(default_factory=Memory)
    reduce: MakeReduction = streaming  # how replies become one; robust aggregation substitutes its own
    left_out: RejectedReplies = field(default_factory=RejectedReplies)
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

    def settings(self) -> dict[str, Json]:
        """The engine's name."""
        return {"name": type(self).__name__.removesuffix("Engine").lower()}

    def state(self) -> ClientsState:
        """The clients' state, for a checkpoint."""
        return ClientsState(self.memory.kept, self.left_out.to_dict())

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: JsonObject, algorithm: object) -> None:
        """Restore the clients' state from a checkpoint."""
        self.memory.restore(algorithm, lambda i: LocalSite.alone(self.rows, i), records)
        self.left_out.restore(notes)

    def checkpointed(self) -> None:
        """Nothing to do: the state is in this process."""

    def report(self) -> dict[str, Json]:
        """The clients whose replies were left out, and why, if there are any."""
        return self.left_out.to_dict()

    def _site(self, clients: Ints, exchange: int) -> LocalSite:
        return LocalSite(self.rows, clients, self.draw(self.seed, self.round, exchange, clients))

    def _take(self, reduction: Reducing[R], answer: BlockAnswer[R]) -> None:
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

    def _answer(self, reduction: Reducing[R], exchange: int) -> tuple[Ints, R]:
        """The reduced reply; if no reply of the exchange was finite, the run has diverged."""
        try:
            return reduction.answer()
        except NobodyAnswered:
            for of, fault in self.left_out.pending:
                if of == exchange:
                    raise fault from None
            raise


@dataclass
class SerialEngine(Simulated):
    """Runs clients one after the other, in this process.

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
    """

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
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

    def settings(self) -> dict[str, Json]:
        """The engine's name and chunk: they affect the rounding of sums."""
        return {**super().settings(), "chunk": self.chunk}

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
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
        self, task: Task[Own, Sent, R], sent: Sent, work: list[tuple[LocalSite, Floats]], summed: bool
    ) -> Iterator[BlockAnswer[R]]:
        def answer(block: tuple[LocalSite, Floats]) -> BlockAnswer[R]:
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

    def settings(self) -> dict[str, Json]:
        """The engine's name and chunk, which affect the rounding of sums, and the kind of device, which may."""
        settings: dict[str, Json] = {"name": "vectorised", "chunk": self.chunk, "device": self.device.type}
        return settings if self.precision == "full" else {**settings, "precision": self.precision}

    def state(self) -> ClientsState:
        """The clients' state, for a checkpoint that any device can load."""
        inner = super().state()
        return ClientsState({i: moved(record, CPU) for i, record in inner.records.items()}, inner.notes)

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: JsonObject, algorithm: object) -> None:
        """Restore the clients' state from a checkpoint."""
        super().restore(records, notes, algorithm)
        self.memory.kept = {i: moved(record, self.device) for i, record in self.memory.kept.items()}

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Run the task for each block and reduce the replies in cohort order."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        blocks = blocks_of(len(clients), self.chunk)
        message, before = moved(sent, self.device), (dict(self.memory.pending), self.samples)
        if self.reduce is streaming:
            together: Reduction[R] = Reduction(checks=False)
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
        task: Task[Own, Sent, R],
        sent: Sent,
        message: Sent,
    ) -> tuple[Ints, R]:
        """The replies of each block here: for robust aggregation, and to find those that are not finite."""
        reduction = self.reduce(task, sent)
        for s, site, own, reply in self._run(clients, blocks, exchange, task, message):
            self._take(reduction, replied_on_device(own, reply, site, weights[s], isinstance(reduction, Reduction)))
            self.memory.pending = {i: moved(record, self.device) for i, record in self.memory.pending.items()}
        return self._answer(reduction, exchange)

    def _run(
        self, clients: Ints, blocks: list[slice], exchange: int, task: Task[Own, Sent, R], message: Sent
    ) -> Iterator[tuple[slice, LocalSite, Own | None, R]]:
        for s in blocks:
            site = self._site(clients[s], exchange)
            with in_precision(self.precision):
                own, reply = task(self.memory.read(task, site), message, site)
            yield s, site, own, reply

    def _remember(self, site: LocalSite, own: Record | None) -> None:
        self.memory.write(site.clients, torch.from_numpy(self.rows.sizes[site.clients]), own)

    def _site(self, clients: Ints, exchange: int) -> LocalSite:
        keys = self.draw(self.seed, self.round, exchange, clients)
        return site_on(self.device, self.rows, clients, keys, self._resident)

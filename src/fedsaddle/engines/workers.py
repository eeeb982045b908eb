"""Work for other processes: the engine that sends blocks of clients to workers, and the worker that answers them."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import ArrayLike

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.store import ClientRows
from fedsaddle.engines.device import CPU, moved, resident, site_on
from fedsaddle.engines.simulated import BlockAnswer, Simulated, blocks_of, replied, replied_on_device
from fedsaddle.engines.site import Memory, remembering, stacked
from fedsaddle.errors import BadInput, BadMessage, Diverged, FedSaddleError
from fedsaddle.federation.clients import Own, Sent, Task, merge_repeats
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.records import R, Record
from fedsaddle.federation.reduction import Part, Reduction
from fedsaddle.federation.tasks import AnyTask, records_of, task_of
from fedsaddle.federation.wire import Kinds, Limits, Message, name_of, pack, require_record, unpack
from fedsaddle.files import Json, JsonObject
from fedsaddle.numerics.modules import in_precision

OURS = Limits(json_bytes=1 << 30, tensors=10**7, trusted=True)  # both ends are this run's own


class WorkersFailed(FedSaddleError):
    """Workers that cannot go on: one failed at its work, or too many were lost."""

    exit_code = 3


@dataclass(frozen=True)
class WorkerExchange:
    """What all blocks of an exchange have in common; `number` identifies the exchange within the run."""

    number: int
    round: int
    exchange: int
    seed: int
    task: str
    summed: bool  # whether replies are added up where they are made

    def to_dict(self) -> dict[str, Json]:
        """For JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Block:
    """The clients of a block, their weights, and their state: stacked, or of each client that has some."""

    of: WorkerExchange
    clients: Ints
    weights: Floats
    whole: Record | None
    each: Mapping[int, Record]


def pack_block(of: WorkerExchange, clients: Ints, weights: Floats, memory: Memory, task: Task[Own, Sent, R]) -> bytes:
    """A block as bytes."""
    state: dict[str, object] = {}
    if remembering(task) is not None:
        known = memory.known(clients)
        whole = stacked(known)
        each = {i: record for i, record in zip(clients.tolist(), known, strict=True) if record is not None}
        state = {"each": each} if whole is None else {"whole": whole}
    return pack(Message({**of.to_dict(), "clients": clients.tolist(), "weights": weights.tolist()}, state))


def read_block(content: bytes, kinds: Kinds) -> Block:
    """The block that `pack_block` has packed."""
    message = unpack(content, kinds, OURS)
    state = message.record
    assert isinstance(state, dict)
    clients, weights = message.about.pop("clients"), message.about.pop("weights")
    return Block(
        WorkerExchange(**message.about),
        np.array(clients, dtype=np.int64),
        np.array(weights, dtype=np.float64),
        state.get("whole"),
        state.get("each", {}),
    )


def pack_answer(answer: BlockAnswer[R]) -> bytes:
    """An answer as bytes; the sizes and weights of clients are known where it goes."""
    left_out = [[fault.client, fault.field] for fault in answer.left_out]
    about = {"samples": answer.samples, "left_out": left_out, "clients": answer.clients.tolist()}
    record: dict[str, object] = {"own": answer.own}
    if isinstance(answer.answered, Part):
        part = answer.answered
        record["part"] = {"kind": name_of(part.kind), "total": part.total, "fields": part.fields}
    else:
        record["replies"] = answer.answered
    return pack(Message(about, record))


def pack_failure(reason: BaseException, where: str = "") -> bytes:
    """The answer of a worker that failed."""
    text = str(reason) if isinstance(reason, FedSaddleError) else f"{type(reason).__name__}: {reason}"
    about: JsonObject = {"failure": text[:4000] + where, "exit_code": getattr(reason, "exit_code", 3)}
    if isinstance(reason, Diverged):
        about["diverged"] = [reason.client, reason.field]
    return pack(Message(about))


def read_answer(content: bytes, kinds: Kinds, asked: Ints, sizes: Ints, weights: Floats) -> BlockAnswer[Record]:
    """The answer for the clients asked, with their sizes and weights; raises the error of a worker that failed."""
    message = unpack(content, kinds, OURS)
    about, record = message.about, message.record
    if "failure" in about:
        raise failure_of(about)
    assert isinstance(record, dict)
    clients, answered = np.array(about["clients"], dtype=np.int64), record.get("replies")
    if (part := record.get("part")) is not None:
        answered = Part(kinds[part["kind"]], clients, part["total"], part["fields"])
    answered_at = np.isin(asked, clients) if len(clients) < len(asked) else slice(None)
    lost = tuple(Diverged(client, field) for client, field in about["left_out"])
    return BlockAnswer(
        clients,
        torch.from_numpy(sizes[answered_at]),
        weights[answered_at],
        record["own"],
        answered,
        lost,
        about["samples"],
    )


def failure_of(about: JsonObject) -> FedSaddleError:
    """The error in a worker's message."""
    if "diverged" in about:
        return Diverged(*about["diverged"])
    failed = WorkersFailed(about["failure"])
    failed.exit_code = about["exit_code"]
    return failed


@dataclass
class Worker:
    """Answers blocks; between them it keeps only its rows and what the last exchange sent."""

    algorithm: object
    rows: ClientRows
    change: Callable[[AnyTask], AnyTask] = lambda task: task  # of hostile clients
    device: torch.device = CPU  # where its tasks run
    precision: str = "full"  # or "bf16": of the network's layers
    _sent: tuple[int, Record] | None = field(default=None, init=False)  # the exchange's number, and what it sent

    def __post_init__(self) -> None:
        self.kinds: Kinds = records_of(self.algorithm)
        self._there = resident(self.rows, self.device)

    def answer(self, sent: bytes, content: bytes) -> bytes:
        """Run the task of a block; a failure is an answer too."""
        try:
            return pack_answer(self._run(sent, read_block(content, self.kinds)))
        except FedSaddleError as reason:
            return pack_failure(reason)
        except Exception as reason:
            traceback.print_exc(file=sys.stderr)
            last = traceback.extract_tb(reason.__traceback__)[-1]
            return pack_failure(reason, f" ({last.filename}, line {last.lineno})")

    def _run(self, sent: bytes, block: Block) -> BlockAnswer[Record]:
        of = block.of
        if self._sent is None or self._sent[0] != of.number:
            self._sent = of.number, moved(require_record(unpack(sent, self.kinds, OURS).record), self.device)
        task = task_of(self.algorithm, of.task)
        keys = ClientKeys.of(of.seed, of.round, of.exchange, block.clients)
        site = site_on(self.device, self.rows, block.clients, keys, self._there)
        own = moved(block.whole, self.device)
        if own is None:
            each = {i: moved(record, self.device) for i, record in block.each.items()}
            own = Memory(each).read(task, site)
        with in_precision(self.precision):
            result = self.change(task)(own, self._sent[1], site)
        here = self.device.type == "cpu"
        return (replied if here else replied_on_device)(*result, site, block.weights, of.summed)


def one_thread() -> None:
    """A worker's torch works on one thread, so that products round alike however many workers there are."""
    torch.set_num_threads(1)


class Carrier(Protocol):
    """Transports blocks to workers and their answers back."""

    def answers(self, sent: bytes, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The answers, in the order of the blocks; raise `WorkersFailed` if the workers cannot go on."""
        ...

    def report(self) -> dict[str, Json]:
        """Entries about the workers for the summary."""
        ...

    def close(self) -> None:
        """End the workers."""
        ...


@dataclass
class Loopback:
    """Workers in this process, in turn; for tests."""

    workers: list[Worker]

    def answers(self, sent: bytes, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The answers, in the order of the blocks."""
        return (self.workers[n % len(self.workers)].answer(sent, block) for n, block in enumerate(blocks))

    def report(self) -> dict[str, Json]:
        """How many there are."""
        return {"workers": {"count": len(self.workers)}}

    def close(self) -> None:
        """Nothing to do."""


@dataclass(kw_only=True)
class Distributed(Simulated):
    """Runs a cohort in blocks of `chunk` clients at the workers of a carrier."""

    carrier: Carrier
    name: str
    chunk: int = 10
    device: str = "cpu"  # the kind that tasks run on
    precision: str = "full"  # of the network's layers
    _number: int = field(default=0, init=False)
    _kinds: tuple[object, Kinds] = field(default=(None, {}), init=False)  # of which algorithm

    def settings(self) -> dict[str, Json]:
        """The engine's name and chunk, and where tasks run, if that is not the CPU in full precision."""
        settings: dict[str, Json] = {"name": self.name, "chunk": self.chunk}
        kind: dict[str, Json] = {} if self.device == "cpu" else {"device": self.device}
        return settings | kind | ({} if self.precision == "full" else {"precision": self.precision})

    def report(self) -> dict[str, Json]:
        """The clients that were left out, and the workers."""
        return {**super().report(), **self.carrier.report()}

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Have the workers run the task for each block, and reduce the replies in cohort order."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        self._number += 1
        reduction, (owner, name) = self.reduce(task, sent), _named(task)
        of = WorkerExchange(self._number, self.round, exchange, self.seed, name, isinstance(reduction, Reduction))
        parts, kinds = blocks_of(len(clients), self.chunk), self._kinds_of(owner)
        packed = (pack_block(of, clients[s], total_weights[s], self.memory, task) for s in parts)
        answers = self.carrier.answers(pack(Message({}, sent)), packed)
        for s, content in zip(parts, answers, strict=True):
            who = clients[s]
            answer = read_answer(content, kinds, who, self.sizes[who], total_weights[s])
            self._take(reduction, cast(BlockAnswer[R], answer))
        return self._answer(reduction, exchange)

    def _kinds_of(self, owner: object) -> Kinds:
        """The records of the algorithm, looked up once."""
        if self._kinds[0] is not owner:
            self._kinds = owner, records_of(owner)
        return self._kinds[1]

    def close(self) -> None:
        """End the workers."""
        self.carrier.close()


def _named(task: Task[Own, Sent, R]) -> tuple[object, str]:
    """The algorithm and the name of its task."""
    owner, name = getattr(task, "__self__", None), str(getattr(task, "__name__", task))
    try:
        task_of(owner, name)
    except BadMessage:
        remedy = "workers know an algorithm's public methods (own, sent, site) only; make it one, or use vectorised"
        raise BadInput("task", name, remedy) from None
    return owner, name

"""A worker: it has rows and an algorithm of its own, and answers blocks of clients, bytes in and bytes out."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from fedsaddle.data.store import ClientRows
from fedsaddle.engines.block import BlockAnswer, brought, replied
from fedsaddle.engines.block_messages import OURS, Block, pack_answer, pack_failure, read_block
from fedsaddle.engines.device import CPU, moved, resident
from fedsaddle.engines.device_site import site_on
from fedsaddle.engines.memory import Memory
from fedsaddle.errors import FedSaddleError
from fedsaddle.federation.clients import Task
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.tasks import records_of, task_of
from fedsaddle.federation.wire import Kinds, unpack
from fedsaddle.numerics.bare_module import in_precision


@dataclass
class Worker:
    """Answers blocks; keeps nothing between them but its rows and what the last exchange sent."""

    algorithm: Any
    rows: ClientRows
    change: Callable[[Task[Any]], Task[Any]] = lambda task: task  # of hostile clients
    device: torch.device = CPU  # where its tasks run
    precision: str = "full"  # or "bf16": of the network's layers
    _sent: tuple[int, Any] = field(default=(-1, None), init=False)  # the exchange's number, and what it sent

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

    def _run(self, sent: bytes, block: Block) -> BlockAnswer:
        of = block.of
        if self._sent[0] != of.number:
            self._sent = of.number, moved(unpack(sent, self.kinds, OURS).record, self.device)
        task = task_of(self.algorithm, of.task)
        keys = ClientKeys.of(of.seed, of.round, of.exchange, block.clients)
        site = site_on(self.device, self.rows, block.clients, keys, self._there)
        own = moved(block.state.get("whole"), self.device)
        if own is None:
            each = {i: moved(record, self.device) for i, record in block.state.get("each", {}).items()}
            own = Memory(each).read(task, site)
        with in_precision(self.precision):
            found = self.change(task)(own, self._sent[1], site)
        here = self.device.type == "cpu"
        return (replied if here else brought)(*found, site, block.weights, of.summed)


def one_thread() -> None:
    """A worker's torch works on one thread, so that products round alike however many workers there are."""
    torch.set_num_threads(1)

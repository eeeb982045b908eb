"""The carrier of `engine = "processes"`: a thread for each worker process, which starts it and hands it blocks."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from fedsaddle.engines.block_messages import OURS, WorkersFailed, failure_of
from fedsaddle.engines.frames import BLOCK, READY, SENT, WorkerLost, read_frame, write_frame
from fedsaddle.engines.worker_starts import Process, Start
from fedsaddle.federation.wire import about

TRIES = 3  # times that a block may take a worker with it
MOST_LOST = 20  # workers in a run, after which it ends
AHEAD = 3  # blocks for each worker that are at work or wait for their turn in the sum


@dataclass
class Live:
    """A worker process that is ready, and the number of the exchange whose record it has."""

    process: Process
    sent: int = -1

    def ask(self, number: int, sent: bytes, block: bytes) -> bytes:
        """The answer to a block."""
        if self.sent != number:
            write_frame(self.process.to, SENT, sent)
            self.sent = number
        write_frame(self.process.to, BLOCK, block)
        return read_frame(self.process.source)[1]


@dataclass
class WorkerProcesses:
    """Up to `count` worker processes, started when they are first needed; one that is lost is started again."""

    start: Start
    count: int
    warn: Callable[[str], None] = lambda text: None
    lost: int = 0
    _closed: bool = field(default=False, init=False)
    _number: int = field(default=0, init=False)
    _told: deque[str] = field(default_factory=deque, init=False)
    _live: dict[int, Live] = field(default_factory=dict, init=False)  # by place

    def __post_init__(self) -> None:
        self._free: queue.LifoQueue[int] = queue.LifoQueue()  # places; the one used last is asked first
        for place in reversed(range(self.count)):
            self._free.put(place)
        self._threads = ThreadPoolExecutor(self.count, "fedsaddle-worker")

    @property
    def pids(self) -> list[int]:
        """The processes at work."""
        return [live.process.pid for live in list(self._live.values())]

    def answers(self, sent: bytes, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The answers, in the order of the blocks."""
        self._number += 1
        waiting: deque[Future[bytes]] = deque()
        try:
            for block in blocks:
                waiting.append(self._threads.submit(self._ask, self._number, sent, block))
                if len(waiting) >= AHEAD * self.count:
                    yield self._next(waiting)
            while waiting:
                yield self._next(waiting)
        finally:
            for future in waiting:
                future.cancel()

    def _next(self, waiting: deque[Future[bytes]]) -> bytes:
        try:
            return waiting.popleft().result()
        finally:
            while self._told:
                self.warn(self._told.popleft())

    def _ask(self, number: int, sent: bytes, block: bytes) -> bytes:
        """The answer to a block, from the first free worker, or from one that is started in place of a lost one."""
        place = self._free.get()
        try:
            for _ in range(TRIES):
                try:
                    live = self._live.get(place) or self._started(place)
                    return live.ask(number, sent, block)
                except WorkerLost as reason:
                    ended = self._drop(place, str(reason))
            raise WorkersFailed(f"{TRIES} workers in a row were lost over the same clients; the last one {ended}")
        finally:
            self._free.put(place)

    def _started(self, place: int) -> Live:
        """A new worker that has loaded its rows."""
        if self._closed:
            raise WorkersFailed("the workers were ended")
        try:
            live = self._live[place] = Live(self.start(place))
        except OSError as reason:
            raise WorkersFailed(f"a worker process cannot be started: {reason}") from None
        kind, content = read_frame(live.process.source)
        if kind != READY:
            self._live.pop(place).process.end()
            raise failure_of(about(content, OURS))
        return live

    def _drop(self, place: int, reason: str) -> str:
        """Forget a lost worker, and tell why."""
        live = self._live.pop(place, None)
        ended = reason if live is None else live.process.end()
        if self._closed:
            raise WorkersFailed("the workers were ended")
        self.lost += 1
        if self.lost > MOST_LOST:
            raise WorkersFailed(f"{self.lost} workers were lost in this run; the last one {ended}")
        self._told.append(f"worker {place + 1} {ended}; its clients are asked again")
        return ended

    def report(self) -> dict[str, Any]:
        """How many there are, and how many were lost."""
        return {"workers": {"count": self.count, "lost": self.lost}}

    def close(self) -> None:
        """End the workers."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for live in list(self._live.values()):
            live.process.kill()
        self._threads.shutdown(wait=True)
        for live in list(self._live.values()):
            live.process.end()
        self._live.clear()

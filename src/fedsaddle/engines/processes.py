"""The carrier of `engine = "processes"`: starts worker processes, and sends them blocks as frames of bytes."""

from __future__ import annotations

import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from fedsaddle.engines.workers import OURS, Worker, WorkersFailed, failure_of, one_thread, pack_failure
from fedsaddle.errors import FedSaddleError
from fedsaddle.federation.wire import about
from fedsaddle.files import Json

_HEAD = struct.Struct("<cQ")
RECIPE, SENT, BLOCK, READY, ANSWER = b"R", b"S", b"B", b"K", b"A"


class WorkerLost(Exception):
    """A worker process that ended, or a broken pipe to it."""


def write_frame(to: BinaryIO, kind: bytes, content: bytes) -> None:
    """Send one frame."""
    try:
        to.write(_HEAD.pack(kind, len(content)))
        to.write(content)
        to.flush()
    except (OSError, ValueError) as reason:  # ValueError: it was closed
        raise WorkerLost(str(reason)) from None


def read_frame(source: BinaryIO) -> tuple[bytes, bytes]:
    """Receive one frame."""
    kind, length = _HEAD.unpack(_exactly(source, _HEAD.size))
    return kind, _exactly(source, length)


def _exactly(source: BinaryIO, size: int) -> bytes:
    try:
        piece = source.read(size)
    except (OSError, ValueError) as reason:
        raise WorkerLost(str(reason)) from None
    if len(piece) < size:
        raise WorkerLost("its pipe was closed")
    return piece


def serve(source: BinaryIO, to: BinaryIO, make: Callable[[bytes], Worker], recipe: bytes | None = None) -> None:
    """Run as a worker until the driver ends or closes the pipe; `make` builds the worker from the recipe."""
    one_thread()
    arrived: queue.SimpleQueue[tuple[bytes, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_follow, args=(source, arrived), daemon=True).start()
    try:
        worker = make(arrived.get()[1] if recipe is None else recipe)
    except (FedSaddleError, OSError, ImportError, MemoryError) as reason:
        write_frame(to, ANSWER, pack_failure(reason))
        return
    write_frame(to, READY, b"")
    sent = b""
    while True:
        kind, content = arrived.get()
        if kind == SENT:
            sent = content
        else:
            write_frame(to, ANSWER, worker.answer(sent, content))


def _follow(source: BinaryIO, arrived: queue.SimpleQueue[tuple[bytes, bytes]]) -> None:
    """Read what the driver sends; when it is gone, end this process in the middle of whatever it does."""
    try:
        while True:
            arrived.put(read_frame(source))
    except WorkerLost:
        os._exit(0)


class Process(Protocol):
    """A worker process, and the two ends of the pipe to it."""

    source: BinaryIO
    to: BinaryIO
    pid: int

    def kill(self) -> None:
        """Kill it if it is alive."""
        ...

    def end(self) -> str:
        """Kill it if it is alive, and return how it ended."""
        ...


Start = Callable[[int], Process]  # of the worker at a place: 0, 1, ...


@dataclass
class Spawned:
    """A new Python process."""

    inner: subprocess.Popen[bytes]

    def __post_init__(self) -> None:
        assert self.inner.stdout is not None
        assert self.inner.stdin is not None
        self.source: BinaryIO = self.inner.stdout  # type: ignore[assignment]
        self.to: BinaryIO = self.inner.stdin  # type: ignore[assignment]
        self.pid = self.inner.pid

    def kill(self) -> None:
        """Kill it if it is alive."""
        self.inner.kill()

    def end(self) -> str:
        """Kill it if it is alive, and return how it ended."""
        try:
            self.inner.wait(0.2)  # it may be about to end by itself, and its own reason is the better one
        except subprocess.TimeoutExpired:
            self.inner.kill()
        code = self.inner.wait()
        _close(self.to)
        self.source.close()
        return exit_text(code)


def spawner(module: str, recipes: Sequence[bytes]) -> Start:
    """Starts `python -m module`, which is sent the recipe of its place, modulo their number.

    It sees the same modules as this process.
    """

    def start(place: int) -> Spawned:
        paths = os.pathsep.join(path for path in sys.path if path)
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # Ctrl-C is the driver's
        )
        worker = Spawned(process)
        write_frame(worker.to, RECIPE, recipes[place % len(recipes)])
        return worker

    return start


@dataclass
class Forked:
    """A copy of this process."""

    pid: int
    link: socket.socket
    _code: int | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self.source: BinaryIO = self.link.makefile("rb")
        self.to: BinaryIO = self.link.makefile("wb")

    def kill(self) -> None:
        """Kill it if it is alive."""
        with self._lock:
            if self._code is None:  # after that the number may be another's
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> str:
        """Kill it if it is alive, and return how it ended."""
        with self._lock:
            if self._code is None:
                ended, status = os.waitpid(self.pid, os.WNOHANG)
                if not ended:
                    os.kill(self.pid, signal.SIGKILL)
                    _, status = os.waitpid(self.pid, 0)
                self._code = os.waitstatus_to_exitcode(status)
        _close(self.to)
        self.source.close()
        self.link.close()
        return exit_text(self._code)


def forker(worker: Worker) -> Start:
    """Starts copies of this process, which share its algorithm and its rows."""
    lock, ours = threading.Lock(), list[socket.socket]()

    def start(place: int) -> Forked:
        with lock, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads: the copy uses none of them
            here, there = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                _be(worker, there, [here, *ours])
            there.close()
            ours[:] = [link for link in ours if link.fileno() >= 0] + [here]
        return Forked(pid, here)

    return start


def _be(worker: Worker, link: socket.socket, others: list[socket.socket]) -> None:
    """Main of a fork: the drivers' ends of all pipes are closed here, so that they close when the driver ends."""
    try:
        os.setsid()  # Ctrl-C is the driver's
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            if other.fileno() >= 0:
                os.close(other.fileno())  # not `close`: files made from it keep it open
        serve(link.makefile("rb"), link.makefile("wb"), lambda _: worker, b"")
    finally:
        os._exit(1)


def exit_text(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"ended with code {code}"
    names = {number.value: number.name for number in signal.Signals}
    hint = " (is there enough memory?)" if -code == 9 else ""
    return f"was killed by {names.get(-code, f'signal {-code}')}{hint}"


def _close(file: BinaryIO) -> None:
    with suppress(OSError):  # what was not sent yet cannot be
        file.close()


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
        """Remove a lost worker, and return why it ended."""
        live = self._live.pop(place, None)
        ended = reason if live is None else live.process.end()
        if self._closed:
            raise WorkersFailed("the workers were ended")
        self.lost += 1
        if self.lost > MOST_LOST:
            raise WorkersFailed(f"{self.lost} workers were lost in this run; the last one {ended}")
        self._told.append(f"worker {place + 1} {ended}; its clients are asked again")
        return ended

    def report(self) -> dict[str, Json]:
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

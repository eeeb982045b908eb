"""Starting worker processes: as new Python processes, or as forks of this one that share its rows."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from fedsaddle.engines.frames import RECIPE, serve, write_frame
from fedsaddle.engines.worker import Worker


class Process(Protocol):
    """A worker process, and the two ends of the pipe to it."""

    source: BinaryIO
    to: BinaryIO
    pid: int

    def kill(self) -> None:
        """Kill it, if it lives."""
        ...

    def end(self) -> str:
        """Kill it, if it lives; how it ended."""
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
        """Kill it, if it lives."""
        self.inner.kill()

    def end(self) -> str:
        """Kill it, if it lives; how it ended."""
        try:
            self.inner.wait(0.2)  # it may be about to end by itself, and its own reason is the better one
        except subprocess.TimeoutExpired:
            self.inner.kill()
        code = self.inner.wait()
        _close(self.to)
        self.source.close()
        return told(code)


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
        found = Spawned(process)
        write_frame(found.to, RECIPE, recipes[place % len(recipes)])
        return found

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
        """Kill it, if it lives."""
        with self._lock:
            if self._code is None:  # after that the number may be another's
                os.kill(self.pid, signal.SIGKILL)

    def end(self) -> str:
        """Kill it, if it lives; how it ended."""
        with self._lock:
            if self._code is None:
                found, status = os.waitpid(self.pid, os.WNOHANG)
                if not found:
                    os.kill(self.pid, signal.SIGKILL)
                    _, status = os.waitpid(self.pid, 0)
                self._code = os.waitstatus_to_exitcode(status)
        _close(self.to)
        self.source.close()
        self.link.close()
        return told(self._code)


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
    """The life of a fork: the drivers' ends of all pipes are closed here, so that they close when the driver ends."""
    try:
        os.setsid()  # Ctrl-C is the driver's
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for other in others:
            if other.fileno() >= 0:
                os.close(other.fileno())  # not `close`: files made from it keep it open
        serve(link.makefile("rb"), link.makefile("wb"), lambda _: worker, b"")
    finally:
        os._exit(1)


def told(code: int) -> str:
    """How a process ended."""
    if code >= 0:
        return f"ended with code {code}"
    names = {number.value: number.name for number in signal.Signals}
    hint = " (is there enough memory?)" if -code == 9 else ""
    return f"was killed by {names.get(-code, f'signal {-code}')}{hint}"


def _close(file: BinaryIO) -> None:
    with suppress(OSError):  # what was not sent yet cannot be
        file.close()

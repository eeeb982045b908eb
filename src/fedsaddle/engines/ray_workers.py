"""The carrier of `engine = "ray"`: workers are actors of a Ray cluster; Ray moves only our own bytes.

_Actors hold rows that they loaded themselves. One that is lost, with its process or with its whole machine, is started
again wherever there is room, and its block is asked again elsewhere.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

import torch

from fedsaddle.engines.workers import OURS, Worker, WorkersFailed, failure_of, one_thread, pack_failure
from fedsaddle.errors import BadInput, FedSaddleError, install
from fedsaddle.federation.wire import Message, about, pack
from fedsaddle.files import Json

TRIES = 3  # times that a block may take a worker with it
MOST = 1 << 20  # workers
MOST_LOST = 100  # workers lost in a run, after which it ends
AHEAD = 3  # blocks for each worker that are at work or wait for their turn in the sum
PATIENCE = 1800.0  # seconds that a run waits for a cluster that has no CPU at all
SOON = 30.0  # seconds without any worker, after which the user is informed
LOOK = 10.0  # seconds between looks at whether the cluster has grown
INLINE = 50_000  # bytes of a message that go with each call; Ray stores larger ones once for all


class RayWorker:
    """The actor: a worker that is built from a recipe where it runs."""

    def __init__(self, build: str, recipe: str) -> None:
        one_thread()
        self.worker: Worker | None = None
        try:
            module, _, name = build.partition(":")
            self.worker = getattr(import_module(module), name)(recipe)
            self.said = pack(Message({"torch": torch.__version__, "pid": os.getpid()}))
        except (FedSaddleError, OSError, ImportError, MemoryError) as reason:
            self.said = pack_failure(reason)

    def begin(self) -> bytes:
        """Whether it can work, and with which torch."""
        return self.said

    def answer(self, sent: bytes, block: bytes) -> bytes:
        """The answer to a block."""
        assert self.worker is not None
        return self.worker.answer(sent, block)


def require_ray() -> None:
    """Say how to install Ray, where it is missing."""
    if find_spec("ray") is None:
        raise BadInput("engine", "ray", f"needs Ray; {install('ray')}")


class _Remote(Protocol):
    """A method of an actor, or the class of one."""

    def remote(self, *args: object) -> Hashable: ...


class _Actor(Protocol):
    """A `RayWorker` in its own process; its methods give references of their answers."""

    begin: _Remote
    answer: _Remote


class _Actors(Protocol):
    """Starts an actor."""

    def remote(self, *args: object) -> _Actor: ...


class _RayErrors(Protocol):
    """`ray.exceptions`."""

    RayError: type[Exception]


class _RayModule(Protocol):
    """The part of the package Ray that is used; Ray has no types."""

    exceptions: _RayErrors

    def is_initialized(self) -> bool: ...
    def init(self, *, address: str, **options: object) -> object: ...
    def put(self, value: bytes) -> Hashable: ...
    def get(self, reference: Hashable) -> bytes: ...
    def wait(
        self, references: Sequence[Hashable], *, num_returns: int, timeout: float
    ) -> tuple[list[Hashable], list[Hashable]]: ...
    def remote(self, **options: object) -> Callable[[type], _Actors]: ...
    def kill(self, actor: _Actor) -> None: ...
    def cluster_resources(self) -> dict[str, float]: ...
    def shutdown(self) -> None: ...


def connect(address: str, workers: int | None) -> tuple[_RayModule, bool]:
    """Ray, and whether this call has connected it: to the cluster at `address`, or to a new one on this machine."""
    import ray

    if ray.is_initialized():
        return ray, False
    with _signals_kept():
        _connect(ray, address, workers)
    return ray, True


def _connect(ray: _RayModule, address: str, workers: int | None) -> None:
    quiet: dict[str, object] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address != "local":
        try:
            ray.init(address=address, **quiet)
            return
        except (ConnectionError, RuntimeError, ValueError, OSError) as reason:
            if address != "auto":
                remedy = 'no Ray cluster answers there; start one with `ray start --head`, or use "local"'
                raise BadInput("engine.address", address, f"{remedy} ({_brief(reason)})") from None
    ray.init(address="local", num_cpus=workers, include_dashboard=False, **quiet)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Ray replaces what a terminate signal does; here it still ends the run after the current round."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _brief(reason: Exception) -> str:
    return str(reason).strip().split("\n")[0][:200]


@dataclass
class Flight:
    """A block at work: its place in the order, the bytes, and how often it was tried."""

    place: int
    block: bytes
    tries: int = 0


@dataclass
class RayWorkers:
    """Up to `wanted` actors, started at the first ask; None: one for each CPU, or GPU, of the cluster."""

    build: str  # "module:function", which makes a worker from the recipe
    recipe: str
    address: str = "auto"
    wanted: int | None = None
    warn: Callable[[str], None] = lambda text: None
    gpus: bool = False  # whether each takes a GPU
    lost: int = 0
    count: int = 0
    _connected: _RayModule | None = field(default=None, init=False)
    _make: _Actors = field(init=False)
    _ours: bool = field(default=False, init=False)
    _idle: list[_Actor] = field(default_factory=list, init=False)
    _starting: dict[Hashable, _Actor] = field(default_factory=dict, init=False)  # reference of `begin` -> actor
    # reference of an answer -> the actor at work, and its block
    _busy: dict[Hashable, tuple[_Actor, Flight]] = field(default_factory=dict, init=False)
    _stale: dict[Hashable, _Actor] = field(default_factory=dict, init=False)  # answers that are dropped -> actor
    _alone: float | None = field(default=None, init=False)  # since when there is no worker
    _looked: float = field(default=float("-inf"), init=False)
    _told: set[str] = field(default_factory=set, init=False)

    @property
    def _ray(self) -> _RayModule:
        assert self._connected is not None
        return self._connected

    def answers(self, sent: bytes, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """The answers, in the order of the blocks."""
        self._begin()
        reference = sent if len(sent) <= INLINE else self._ray.put(sent)
        source, waiting, answered = enumerate(blocks), deque[Flight](), dict[int, bytes]()
        turn, ended = 0, False
        try:
            while True:
                while not ended and not waiting and self._idle and self._room(turn, answered):
                    if (pair := next(source, None)) is None:
                        ended = True
                    else:
                        waiting.append(Flight(*pair))
                        self._hand_out(waiting, reference)
                self._hand_out(waiting, reference)
                while turn in answered:
                    yield answered.pop(turn)
                    turn += 1
                if ended and not waiting and not self._busy:
                    return
                if ended or not self._idle or not self._room(turn, answered):
                    self._wait(waiting, answered)
        finally:
            self._forget_busy()

    def _room(self, turn: int, answered: dict[int, bytes]) -> bool:
        """Whether another block may be sent; answers that wait for their turn take memory."""
        return len(self._busy) + len(answered) < AHEAD * self.count

    def _hand_out(self, waiting: deque[Flight], reference: Hashable) -> None:
        while waiting and self._idle:
            flight = waiting.popleft()
            actor = self._idle.pop()
            self._busy[actor.answer.remote(reference, flight.block)] = actor, flight

    def _wait(self, waiting: deque[Flight], answered: dict[int, bytes]) -> None:
        """Wait until a worker answers, begins or is lost."""
        done, _ = self._ray.wait([*self._busy, *self._starting, *self._stale], num_returns=1, timeout=1.0)
        for reference in done:
            self._take(reference, waiting, answered)
        self._grow()
        self._check_patience()

    def _take(self, reference: Hashable, waiting: deque[Flight], answered: dict[int, bytes]) -> None:
        """A worker's answer, or its first message; a lost worker is replaced, and its block is queued again."""
        fresh = reference in self._starting
        if reference in self._busy:
            actor, flight = self._busy.pop(reference)
        else:
            actor, flight = (self._starting if fresh else self._stale).pop(reference), None
        try:
            content: bytes = self._ray.get(reference)
        except self._ray.exceptions.RayError as reason:
            self._replace(actor, flight, reason)
            if flight is not None:
                waiting.appendleft(flight)
            return
        self._idle.append(actor)
        if flight is not None:
            answered[flight.place] = content
        elif fresh:
            self._ready(content)

    def _ready(self, content: bytes) -> None:
        """Read the first message of a worker: it may have failed, or have another version of torch."""
        header = about(content, OURS)
        if "failure" in header:
            raise failure_of(header)
        if header["torch"] != torch.__version__:
            self._tell(f"a worker has torch {header['torch']}, the driver {torch.__version__}: last digits may differ")

    def _replace(self, actor: _Actor, flight: Flight | None, reason: Exception) -> None:
        """Start another worker in place of a lost one."""
        self.lost += 1
        if flight is not None:
            flight.tries += 1
            if flight.tries >= TRIES:
                raise WorkersFailed(f"{TRIES} workers were lost over the same clients; the last one: {_brief(reason)}")
        if self.lost > MOST_LOST:
            raise WorkersFailed(f"{self.lost} workers were lost in this run; the last one: {_brief(reason)}")
        self.warn(f"a worker was lost ({_brief(reason)}); its clients are asked again")
        self._end(actor)
        self._start()

    def _check_patience(self) -> None:
        """Warn, and in the end raise `WorkersFailed`, if no worker can start."""
        if self._idle or self._busy:
            self._alone = None
            return
        now = time.monotonic()
        self._alone = now if self._alone is None else self._alone
        unit = self._unit
        if now - self._alone > PATIENCE and not self._places():
            raise WorkersFailed(f"the Ray cluster has had no {unit} for {PATIENCE:.0f} s; add a machine, then resume")
        if now - self._alone > SOON:
            room = f"the cluster has {self._places()} {unit}s, and each worker takes one"
            self._tell(f"waiting for a worker to load its rows, or for a free {unit}; {room}")

    @property
    def _unit(self) -> str:
        return "GPU" if self.gpus else "CPU"

    def _places(self) -> int:
        """The CPUs, or GPUs, of the cluster."""
        return int(self._ray.cluster_resources().get(self._unit, 0))

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.warn(text)

    def _begin(self) -> None:
        """Connect and start the workers."""
        if self._connected is None:
            self._connected, self._ours = connect(self.address, self.wanted)
            takes: dict[str, object] = {"num_cpus": 1, "num_gpus": int(self.gpus)}
            options: dict[str, object] = {"max_restarts": 0, "max_task_retries": 0, "enable_task_events": False}
            self._make = self._ray.remote(**takes, **options)(RayWorker)
        self._grow()

    def _grow(self) -> None:
        """Start workers up to those wanted; by default one for each CPU or GPU, also of new machines."""
        if self.count >= (self.wanted or MOST) or time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        while self.count < (self.wanted or max(1, self._places())):
            self.count += 1
            self._start()

    def _start(self) -> None:
        actor = self._make.remote(self.build, self.recipe)
        self._starting[actor.begin.remote()] = actor

    def _end(self, actor: _Actor) -> None:
        with suppress(self._ray.exceptions.RayError, ValueError):  # it may be gone already
            self._ray.kill(actor)

    def _forget_busy(self) -> None:
        """After an exchange that did not end, its workers are busy until their answers, now dropped, are there."""
        self._stale |= {reference: actor for reference, (actor, _) in self._busy.items()}
        self._busy.clear()

    def report(self) -> dict[str, Json]:
        """How many there are, and how many were lost."""
        return {"workers": {"count": self.count, "lost": self.lost}}

    def close(self) -> None:
        """End the workers, and Ray if it was started here."""
        if self._connected is None:
            return
        self._forget_busy()
        for actor in [*self._idle, *self._starting.values(), *self._stale.values()]:
            self._end(actor)
        self._idle, self._starting, self._stale = [], {}, {}
        if self._ours:
            self._ray.shutdown()
        self._connected = None

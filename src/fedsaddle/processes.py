"""Processes: Ctrl-C and terminate signals, workers that end with their parent, quick imports, cores and memory."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from multiprocessing import active_children, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import TypeVar


def exit_with_parent() -> None:
    """Initialise a process: it exits when its parent does."""
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Processes that start in this context ignore Ctrl-C and a closed terminal; the parent handles both."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    of_terminals = [s for s in signal.Signals if s.name in ("SIGINT", "SIGHUP")]  # Windows has no SIGHUP
    before = {number: signal.signal(number, signal.SIG_IGN) for number in of_terminals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def children_killed() -> Iterator[None]:
    """Processes that start in this context are killed at its end."""
    before: set[BaseProcess] = set(active_children())
    try:
        yield
    finally:
        for process in set(active_children()) - before:
            process.kill()


@contextmanager
def loading() -> Iterator[None]:
    """While torch is imported, look for no garbage; what was made by then is never looked through again.

    Imports make many objects and hardly any cycles, but Python looks through all of them again and again.
    Where torch is there already, nothing is changed: what is garbage by then must not be kept.

    Ctrl-C ends the process at once meanwhile: nothing is written yet, and an exception in the middle of an import gets
    lost, or makes torch abort.
    """
    was_on, first = gc.isenabled(), "torch" not in sys.modules
    if first:
        gc.disable()
    handled = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        if handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if first:
            gc.freeze()
            if was_on:
                gc.enable()


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return max(1, len(affinity(0)) if affinity is not None else os.cpu_count() or 1)


UNKNOWN = 64 << 30  # bytes to assume if the system does not report them


def available_memory() -> int:
    """Bytes that a program may still use: what is free or can be freed, as far as the system reports it."""
    sizes = [_meminfo(), _control_group()]
    known = [size for size in sizes if size is not None]
    if known:
        return min(known)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return UNKNOWN


def _meminfo() -> int | None:
    """What Linux reports as available."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    return None


def _control_group() -> int | None:
    """What a container leaves, on Linux."""
    here = Path("/sys/fs/cgroup")
    try:
        return int((here / "memory.max").read_text()) - int((here / "memory.current").read_text())
    except (OSError, ValueError):  # no container, or "max"
        return None


Handler = Callable[[int, FrameType | None], object] | int | None  # as `signal.signal` gives it back
TERMINATING = {"SIGTERM", "SIGHUP"}  # Windows has no SIGHUP


class Interruption:
    """A first Ctrl-C or terminate signal ends the run after the current round; a second one ends it at once.

    A closed terminal (SIGHUP) ends it after the current round as well, however often the signal comes.
    """

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Handler] = {}
        self._terminals: list[int] = []

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._terminals = _terminals()
            for number in _handled(TERMINATING | {"SIGINT"}):
                self._before[number] = signal.signal(number, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        hung_up = signal.Signals(number).name == "SIGHUP"
        if hung_up:
            _write_nowhere(self._terminals)
        elif self.requested:
            raise KeyboardInterrupt
        self.requested = True


def _handled(names: set[str]) -> list[signal.Signals]:
    """The signals of those names; nohup ignores SIGHUP, and so do we then."""
    known = [s for s in signal.Signals if s.name in names]
    return [s for s in known if s.name != "SIGHUP" or signal.getsignal(s) != signal.SIG_IGN]


def _terminals() -> list[int]:
    """Which of standard output and standard error are terminals."""
    return [number for number in (1, 2) if os.isatty(number)]


def _write_nowhere(terminals: list[int]) -> None:
    """Drop what is written to a terminal that has been closed: writing would fail, and the run with it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in terminals:
        os.dup2(nowhere, number)
    os.close(nowhere)


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt for a terminate signal or a closed terminal, so that clean-up code runs."""

    terminals = _terminals()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if signal.Signals(number).name == "SIGHUP":
            _write_nowhere(terminals)
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in _handled(TERMINATING):
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# torch is imported where it is used: `loading` is there before it, and a command's help without it.

Piece = TypeVar("Piece")
Done = TypeVar("Done")

_BUDGET: ContextVar[int | None] = ContextVar("threads", default=None)  # torch's number outside of `one_torch_thread`
_pools: dict[int, ThreadPoolExecutor] = {}


def thread_budget() -> int:
    """How many threads this process may use: as many as torch has, within `one_torch_thread` had."""
    import torch

    return _BUDGET.get() or torch.get_num_threads()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Within this context torch has one thread; `in_parallel` still has as many as torch had."""
    import torch

    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    token = _BUDGET.set(threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        _BUDGET.reset(token)


def one_thread_pool(workers: int) -> ThreadPoolExecutor:
    """Threads with one torch thread each."""
    import torch

    return ThreadPoolExecutor(workers, "fedsaddle", initializer=lambda: torch.set_num_threads(1))


def in_parallel(work: Callable[[Piece], Done], pieces: Iterable[Piece]) -> Iterator[Done]:
    """`work` of each piece, in order."""
    listed, threads = list(pieces), thread_budget()
    if threads == 1 or len(listed) < 2:
        return map(work, listed)
    if threads not in _pools:
        _pools[threads] = one_thread_pool(threads)
    return mapped(_pools[threads], work, listed)


def mapped(pool: ThreadPoolExecutor, work: Callable[[Piece], Done], pieces: Iterable[Piece]) -> Iterator[Done]:
    """`work` of each piece on the threads of `pool`, in order and with the caller's context variables."""
    context = copy_context()
    context.run(_BUDGET.set, 1)  # what a piece shares out in turn stays on its thread, or all would wait for each other
    return pool.map(lambda piece: context.copy().run(work, piece), pieces)


if hasattr(os, "register_at_fork"):  # threads do not outlive a fork
    os.register_at_fork(after_in_child=_pools.clear)

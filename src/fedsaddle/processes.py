"""Worker processes that end with their parent, and leave Ctrl-C and a closed terminal to it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children, parent_process
from multiprocessing.process import BaseProcess


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


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return max(1, len(affinity(0)) if affinity is not None else os.cpu_count() or 1)

"""Worker processes that end with their parent, and leave Ctrl-C to it."""

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
    """Processes that start in this context ignore Ctrl-C; the parent handles it and kills them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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

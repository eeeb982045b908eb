"""Worker processes that end with their parent and leave Ctrl-C to it; quick imports; cores and memory."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import active_children, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path


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

    Imports make many objects and hardly any cycles, but every so many new objects Python looks through all of them.
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


UNKNOWN = 64 << 30  # bytes to assume where the system does not tell


def available_memory() -> int:
    """Bytes that a program may still use: what is free or can be freed, as far as the system tells."""
    found = [_meminfo(), _control_group()]
    known = [size for size in found if size is not None]
    if known:
        return min(known)
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return UNKNOWN


def _meminfo() -> int | None:
    """What Linux says is available."""
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

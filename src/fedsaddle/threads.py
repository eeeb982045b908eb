"""Work on several threads whose result does not depend on how many there are.

Torch's own threads share out a single operation, and products of matrices and long sums round by their number. Here
each thread has one torch thread, and whole pieces of work are shared out instead.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import TypeVar

import torch

Piece = TypeVar("Piece")
Done = TypeVar("Done")

_BUDGET: ContextVar[int | None] = ContextVar("threads", default=None)  # torch's number outside of `one_torch_thread`
_pools: dict[int, ThreadPoolExecutor] = {}


def thread_budget() -> int:
    """How many threads this process may use: as many as torch has, within `one_torch_thread` had."""
    return _BUDGET.get() or torch.get_num_threads()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Within this context torch has one thread; `in_parallel` still has as many as torch had."""
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

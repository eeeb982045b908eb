"""Runs of a sweep on several processes of one thread each, or in this process."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

import torch

from fedsaddle.errors import FedSaddleError
from fedsaddle.processes import children_killed, cores, exit_with_parent, interrupts_ignored
from fedsaddle.studies.sweep_job import Job, on_one_thread, run_job

POLL = 0.2  # seconds
MOST_WORKERS = 61  # that every system can wait for
Tell = Callable[[Job, int], None]  # a job and its rounds so far
Ended = Callable[[Job, str, str], None]  # a job, what became of it, and why


class RunsFailed(FedSaddleError):
    """A process that ran a part of the sweep died."""

    exit_code = 3


@dataclass
class JobPool:
    """Runs jobs; use it as a context manager, so that no process stays behind."""

    workers: int | None = None  # None: one a core
    tell: Tell = lambda job, done: None
    stop: Callable[[], bool] = lambda: False
    _pool: ProcessPoolExecutor | None = field(default=None, init=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> JobPool:
        self.workers = min(cores() if self.workers is None else self.workers, MOST_WORKERS)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._stopping.set()
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._stack.close()

    def run(self, jobs: Sequence[Job], ended: Ended) -> None:
        """Run all; once `stop()`, those that run are saved after their round and no other begins."""
        if min(self.workers or 1, len(jobs)) < 2 and self._pool is None:
            for job in jobs:
                if self.stop():
                    return
                ended(job, *on_one_thread(job, lambda done, j=job: self.tell(j, done), self.stop))  # type: ignore[misc]
            return
        try:
            self._run_in_processes(list(enumerate(jobs)), jobs, ended)
        except BrokenProcessPool as reason:
            raise RunsFailed("a process of the sweep died; is there enough memory? Go on with --resume") from reason

    def _run_in_processes(self, waiting: list[tuple[int, Job]], jobs: Sequence[Job], ended: Ended) -> None:
        pool = self._started()
        running: dict[Future[tuple[str, str]], int] = {}
        while waiting or running:
            if self.stop():
                self._stopping.set()
                waiting = []
            while waiting and len(running) < (self.workers or 1):
                at, job = waiting.pop(0)
                with interrupts_ignored():
                    running[pool.submit(_run, job, at)] = at
            done, _ = wait(running, timeout=POLL)
            self._hear(jobs)
            for future in done:
                ended(jobs[running.pop(future)], *future.result())

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._stack.enter_context(children_killed())
            context = get_context("spawn")  # a forked copy of torch's threads may hang
            self._told, self._stopping = context.Queue(), context.Event()
            self._pool = ProcessPoolExecutor(
                self.workers, context, initializer=_begin, initargs=(self._told, self._stopping)
            )
        return self._pool

    def _hear(self, jobs: Sequence[Job]) -> None:
        while True:
            try:
                at, done = self._told.get_nowait()
            except queue.Empty:
                return
            self.tell(jobs[at], done)


_HERE: dict[str, Any] = {}  # of a worker process


def _begin(told: Any, stopping: Any) -> None:
    """Start a worker process: it exits with its parent."""
    torch.set_num_threads(1)
    _HERE.update(told=told, stopping=stopping)
    exit_with_parent()


def _run(job: Job, at: int) -> tuple[str, str]:
    return run_job(job, lambda done: _HERE["told"].put((at, done)), lambda: bool(_HERE["stopping"].is_set()))

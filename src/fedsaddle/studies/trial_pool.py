"""Runs trials on all cores: in worker processes that share the rows, or in this process where that is quicker."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch.multiprocessing

from fedsaddle.data.federated import FederatedData
from fedsaddle.errors import FedSaddleError
from fedsaddle.processes import children_killed, cores, exit_with_parent, interrupts_ignored
from fedsaddle.studies.trial import Outcome, Trial, run_trial

LARGE = 30_000_000  # numbers in the training rows, above which several processes may not fit into memory
POLL = 0.2  # seconds

Tell = Callable[[Trial, int, float | None], None]


class TrialsFailed(FedSaddleError):
    """A process that ran trials died."""

    exit_code = 3


@dataclass
class TrialPool:
    """Runs trials on some rows; use it as a context manager."""

    data: FederatedData
    workers: int | None = None  # None: all cores, unless the data are very large
    tell: Tell = lambda trial, rounds, best: None
    stop: Callable[[], bool] = lambda: False
    _pool: ProcessPoolExecutor | None = field(default=None, init=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False)

    def __enter__(self) -> TrialPool:
        if self.workers is None:
            self.workers = 1 if self.data.train.x.numel() > LARGE else cores()
        self.workers = min(self.workers, max(2, cores()))  # more do not pay
        if self.workers > 1:
            self._stack.enter_context(children_killed())
            context = torch.multiprocessing.get_context("spawn")  # a forked copy of torch's threads may hang
            self._told, self._stopping = context.Queue(), context.Event()
            self._pool = ProcessPoolExecutor(
                self.workers,
                context,
                initializer=_begin,
                initargs=(_shared(self.data), self._told, self._stopping),
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._stopping.set()
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._stack.close()

    def run(self, trials: Sequence[Trial], may_begin: Callable[[Trial], bool] = lambda trial: True) -> list[Outcome]:
        """The outcomes of trials, in order, without those that may not begin; after `stop()`, no other begins."""
        if self._pool is None:
            return self._run_here(trials, may_begin)
        waiting, found = list(enumerate(trials)), dict[int, Outcome]()
        running: dict[Future[Outcome | tuple[str, int]], int] = {}
        try:
            while waiting or running:
                if self.stop():
                    self._stopping.set()
                    waiting = []
                while waiting and len(running) < (self.workers or 1):
                    at, trial = waiting.pop(0)
                    if may_begin(trial):
                        with interrupts_ignored():
                            running[self._pool.submit(_run, trial, at)] = at
                done, _ = wait(running, timeout=POLL)
                self._hear(trials)
                for future in done:
                    at = running.pop(future)
                    found[at] = replace(_outcome(future), trial=trials[at])  # ours, not a copy
        except BrokenProcessPool as reason:
            raise TrialsFailed("a process that ran a part of the search died; is there enough memory?") from reason
        return [found[at] for at in sorted(found)]

    def _run_here(self, trials: Sequence[Trial], may_begin: Callable[[Trial], bool]) -> list[Outcome]:
        found, threads = [], torch.get_num_threads()
        try:
            for trial in trials:
                if self.stop():
                    break
                if not may_begin(trial):
                    continue
                found.append(
                    run_trial(trial, self.data, lambda done, best, t=trial: self.tell(t, done, best), self.stop)  # type: ignore[misc]
                )
        finally:
            torch.set_num_threads(threads)
        return found

    def _hear(self, trials: Sequence[Trial]) -> None:
        while True:
            try:
                at, done, best = self._told.get_nowait()
            except queue.Empty:
                return
            self.tell(trials[at], done, best)


_HERE: dict[str, Any] = {}  # of a worker process


def _begin(data: FederatedData, told: Any, stopping: Any) -> None:
    """Start a worker process: it exits with its parent."""
    torch.set_num_threads(1)
    _HERE.update(data=data, told=told, stopping=stopping)
    exit_with_parent()


def _run(trial: Trial, at: int) -> Outcome | tuple[str, int]:
    """An outcome, or an error's message and exit code: not every exception can be sent between processes."""
    try:
        return run_trial(
            trial,
            _HERE["data"],
            lambda done, best: _HERE["told"].put((at, done, best)),
            lambda: bool(_HERE["stopping"].is_set()),
        )
    except FedSaddleError as error:
        return str(error), error.exit_code


def _outcome(future: Future[Outcome | tuple[str, int]]) -> Outcome:
    found = future.result()
    if isinstance(found, Outcome):
        return found
    failed = TrialsFailed(found[0])
    failed.exit_code = found[1]
    raise failed


def _shared(data: FederatedData) -> FederatedData:
    """The data with tensors in shared memory, so that processes do not copy them."""
    for rows in (data.train, data.validation):
        if rows is not None:
            rows.x.share_memory_()  # type: ignore[no-untyped-call]
            rows.y.share_memory_()  # type: ignore[no-untyped-call]
    return data.without_test()

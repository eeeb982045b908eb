"""One pool for many runs, and stores of their outcomes: trials of a search, runs of a sweep, runs of papers' figures.

A store knows an outcome by a fingerprint of all that it depends on: a run whose outcome is stored is not run again.
"""

from __future__ import annotations

import hashlib
import json
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
import torch.multiprocessing

from fedsaddle.errors import FedSaddleError
from fedsaddle.processes import children_killed, exit_with_parent, interrupts_ignored

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Event

POLL = 0.2  # seconds between two polls of `stop` and of the progress
LATE = 5.0  # seconds to wait for news of a job that has ended
MOST_WORKERS = 61  # that every system can wait for

Job = TypeVar("Job")
News = TypeVar("News")
Outcome = TypeVar("Outcome")
_J = TypeVar("_J", contravariant=True)
_N = TypeVar("_N", covariant=True)
_O = TypeVar("_O", covariant=True)
_S = TypeVar("_S")


class Work(Protocol[_J, _N, _O]):
    """Runs a job: a function of a module, or a `functools.partial` of one, so that processes can receive it."""

    def __call__(self, job: _J, tell: Callable[[_N], None], stop: Callable[[], bool], /) -> _O:
        """Run a job; `tell` reports its progress, and once `stop()` is True it ends early."""


class Interrupted(FedSaddleError):
    """The runs were stopped; finished ones are stored."""

    exit_code = 130


class WorkFailed(FedSaddleError):
    """A job failed in another process, or that process died."""

    def __init__(self, message: str, exit_code: int = 3) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Set the number of threads of torch within this context; None: no change."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass
class Pool(Generic[Job, News, Outcome]):
    """Runs jobs in worker processes, or in this one; outcomes do not depend on where. Use it as a context manager.

    Args:
        work: runs a job; it is sent to each process once.
        workers: processes; with one worker, or one job, jobs run in this process.
        threads: torch's threads in a job; None: as many as torch has.
        tell: called with the progress that jobs report.
        stop: polled; once it is True no other job begins, and running ones are asked to end.
    """

    work: Work[Job, News, Outcome]
    workers: int = 1
    threads: int | None = 1
    tell: Callable[[Job, News], None] = lambda job, news: None
    stop: Callable[[], bool] = lambda: False
    _executor: ProcessPoolExecutor | None = field(default=None, init=False)
    _stack: ExitStack = field(default_factory=ExitStack, init=False)
    _begun: list[Job] = field(default_factory=list, init=False)  # in processes, over all calls: news name them by place
    _heard: dict[int, int] = field(default_factory=dict, init=False)

    def __enter__(self) -> Pool[Job, News, Outcome]:
        return self

    def __exit__(self, *_: object) -> None:
        if self._executor is not None:
            self._stopping.set()
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._stack.close()

    def run(
        self,
        jobs: Sequence[Job],
        ended: Callable[[Job, Outcome], None] = lambda job, outcome: None,
        may_begin: Callable[[Job], bool] = lambda job: True,
    ) -> list[tuple[Job, Outcome]]:
        """Run jobs; those that began, in order, with their outcomes.

        Args:
            jobs: what to run; plain data, if there are several workers.
            ended: called with each outcome as it comes.
            may_begin: asked of each job before it begins; those that may not are left out.

        Raises:
            WorkFailed: if a job in another process fails, or a process dies.
        """
        if min(self.workers, len(jobs)) < 2 and self._executor is None:
            return self._run_here(jobs, ended, may_begin)
        try:
            return self._run_in_processes(jobs, ended, may_begin)
        except BrokenProcessPool as reason:
            message = "a worker process died; is there enough memory? What has ended is kept"
            raise WorkFailed(message) from reason

    def _run_here(
        self, jobs: Sequence[Job], ended: Callable[[Job, Outcome], None], may_begin: Callable[[Job], bool]
    ) -> list[tuple[Job, Outcome]]:
        done = []
        with torch_threads(self.threads):
            for job in jobs:
                if self.stop():
                    break
                if may_begin(job):
                    outcome = self.work(job, lambda news, job=job: self.tell(job, news), self.stop)  # type: ignore[misc]
                    done.append((job, outcome))
                    ended(job, outcome)
        return done

    def _run_in_processes(
        self, jobs: Sequence[Job], ended: Callable[[Job, Outcome], None], may_begin: Callable[[Job], bool]
    ) -> list[tuple[Job, Outcome]]:
        executor = self._started()
        waiting, done = list(jobs), dict[int, Outcome]()
        running: dict[Future[tuple[Outcome | _Failure, int]], int] = {}
        while waiting or running:
            if self.stop():
                self._stopping.set()
                waiting = []
            while waiting and len(running) < self.workers:
                job = waiting.pop(0)
                if may_begin(job):
                    self._begun.append(job)
                    at = len(self._begun) - 1
                    with interrupts_ignored():
                        running[executor.submit(_run, at, job)] = at
            finished, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
            self._hear()
            for future in finished:
                at, (outcome, sent) = running.pop(future), future.result()
                self._hear(at, sent)
                if isinstance(outcome, _Failure):
                    raise WorkFailed(outcome.message, outcome.exit_code)
                done[at] = outcome
                ended(self._begun[at], outcome)
        return [(self._begun[at], done[at]) for at in sorted(done)]

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            self._stack.enter_context(children_killed())
            context = torch.multiprocessing.get_context("spawn")  # a forked copy of torch's threads may hang
            self._news, self._stopping = context.Queue(), context.Event()
            here = _Worker(self.work, self._news, self._stopping, self.threads)
            self._executor = ProcessPoolExecutor(self.workers, context, initializer=_begin, initargs=(here,))
        return self._executor

    def _hear(self, job: int = -1, sent: int = 0) -> None:
        """Pass on what has come, and wait for the rest of what a job has sent, which may come after its outcome."""
        while True:
            try:
                at, news = self._news.get(timeout=LATE) if self._heard.get(job, 0) < sent else self._news.get_nowait()
            except queue.Empty:
                return
            self._heard[at] = self._heard.get(at, 0) + 1
            self.tell(self._begun[at], news)


@dataclass(frozen=True)
class _Failure:
    """An error of a job: not every exception can be sent between processes."""

    message: str
    exit_code: int


@dataclass(frozen=True)
class _Worker(Generic[Job, News, Outcome]):
    """What a worker process has."""

    work: Work[Job, News, Outcome]
    news: Queue[tuple[int, News]]
    stopping: Event
    threads: int | None

    def run(self, at: int, job: Job) -> tuple[Outcome | _Failure, int]:
        """The outcome of a job, and how much news it has sent."""
        sent = 0

        def tell(news: News) -> None:
            nonlocal sent
            sent += 1
            self.news.put((at, news))

        try:
            return self.work(job, tell, self.stopping.is_set), sent
        except FedSaddleError as error:
            return _Failure(str(error), error.exit_code), sent


AnyWorker = _Worker[Any, Any, Any]
_here: list[AnyWorker] = []  # in a worker process: itself


def _begin(worker: AnyWorker) -> None:
    """Start a worker process: it exits with its parent."""
    if worker.threads is not None:
        torch.set_num_threads(worker.threads)
    _here[:] = [worker]
    exit_with_parent()


def _run(at: int, job: object) -> Any:
    return _here[0].run(at, job)


Run = Callable[[Sequence[Job], Callable[[Job, Outcome], None]], Sequence[tuple[Job, Outcome]]]  # `Pool.run`


class Store(Protocol[_J, _S]):
    """A folder of outcomes."""

    def fingerprint(self, job: _J, /) -> str:
        """The same for jobs that have the same outcome."""

    def find(self, job: _J, /) -> _S | None:
        """The stored outcome; None if there is none."""

    def keep(self, job: _J, outcome: _S, /) -> None:
        """Store an outcome."""


def digest_of(settings: Mapping[str, object], length: int = 24) -> str:
    """A name for settings, which are plain JSON: the beginning of their SHA-256.

    Examples:
        >>> digest_of({"step": 0.1, "seed": 0}) == digest_of({"seed": 0, "step": 0.1})
        True
    """
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def stored_or_run(
    jobs: Sequence[Job],
    store: Store[Job, Outcome] | None,
    run: Run[Job, Outcome],
    ended: Callable[[Job, bool], None] = lambda job, stored: None,
) -> list[Outcome]:
    """The outcomes of jobs, in order: those that are stored, and the others, which are run once and stored as they end.

    Args:
        jobs: what is wanted; of several with one fingerprint the first is run.
        store: where outcomes are; None: nothing is stored.
        run: runs the others, such as `Pool.run`.
        ended: called with each job that has ended, and whether it was stored.
    """
    if store is None:
        return [outcome for _, outcome in run(jobs, lambda job, outcome: ended(job, False))]
    names = [store.fingerprint(job) for job in jobs]
    found, missing = dict[str, Outcome](), dict[str, Job]()
    for name, job in zip(names, jobs, strict=True):
        stored = found.get(name) or store.find(job)
        if stored is None:
            missing.setdefault(name, job)
        else:
            found[name] = stored
            ended(job, True)

    def keep(job: Job, outcome: Outcome) -> None:
        store.keep(job, outcome)
        found[store.fingerprint(job)] = outcome
        ended(job, False)

    if missing:
        run(list(missing.values()), keep)
    return [found[name] for name in names]

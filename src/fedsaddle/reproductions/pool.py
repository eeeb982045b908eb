"""Runs jobs on several processes, one core each. The results depend on the jobs alone, not on how many processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process

from fedsaddle.errors import FedSaddleError
from fedsaddle.reproductions.jobs import Job, run_job
from fedsaddle.reproductions.tracks import Track

Done = Callable[[Track], None]


class Failed(FedSaddleError):
    """What a job in another process complained of, with that error's words and exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run_jobs(jobs: Sequence[Job], workers: int, done: Done) -> list[Track]:
    """Run them all, and give their tracks in the order of the jobs; `done` hears of each as it ends."""
    workers = min(workers, len(jobs))
    if workers < 2:
        tracks = []
        for job in jobs:
            tracks.append(run_job(job))
            done(tracks[-1])
        return tracks
    before = set(active_children())
    # Spawned, not forked: a forked copy of torch's threads may hang.
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin)
    try:
        with _deaf_to_interrupts():
            futures = [pool.submit(_outcome, job) for job in jobs]
        for future in as_completed(futures):
            done(_track(future.result()))
        pool.shutdown()
        return [_track(future.result()) for future in futures]
    except BrokenProcessPool as reason:
        raise Failed("a process that ran a part of the figure died; is there enough memory?", 3) from reason
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(active_children()) - before:
            process.kill()


def _outcome(job: Job) -> Track | tuple[str, int]:
    """The track, or an error in words: not every exception survives the way between processes."""
    try:
        return run_job(job)
    except FedSaddleError as error:
        return str(error), error.exit_code


def _track(outcome: Track | tuple[str, int]) -> Track:
    if isinstance(outcome, Track):
        return outcome
    raise Failed(*outcome)


def _begin() -> None:
    """In each new process: end with the parent, however it ends."""
    parent = parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that start in here ignore Ctrl-C: the parent hears it, and ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

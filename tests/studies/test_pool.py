"""The pool of all studies: in this process and in others, with news, failures, and an end before the end."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from fedsaddle.errors import BadInput
from fedsaddle.studies.pool import Pool, WorkFailed, digest_of, stored_or_run


def work(job: int, tell: Callable[[str], None], stop: Callable[[], bool]) -> tuple[int, int]:
    """The square of a job; a negative one is refused, and 99 ends its process."""
    tell(f"began {job}")
    if job < 0:
        raise BadInput("job", job, "must be positive")
    if job == 99:
        os._exit(1)
    return job**2, torch.get_num_threads()


def test_outcomes_are_those_of_this_process():
    news: dict[int, list[tuple[int, str]]] = {1: [], 2: []}
    outcomes = {}
    for workers in news:
        ended = []
        with Pool(work, workers, tell=lambda job, text: news[workers].append((job, text))) as pool:  # noqa: B023
            outcomes[workers] = pool.run([3, 4, 5, 6], lambda job, outcome: ended.append(job), lambda job: job != 5)  # noqa: B023
            outcomes[workers] += pool.run([7])
            if workers > 1:
                with pytest.raises(WorkFailed, match="job = -1: must be positive") as caught:
                    pool.run([1, -1])
                assert caught.value.exit_code == BadInput.exit_code
        assert sorted(ended) == [3, 4, 6]
    assert outcomes[1] == outcomes[2] == [(job, (job**2, 1)) for job in (3, 4, 6, 7)]
    assert set(news[1]) <= set(news[2])
    assert news[1] == [(job, f"began {job}") for job in (3, 4, 6, 7)]


def test_a_process_that_dies_is_an_error_and_what_has_ended_is_told():
    with Pool(work, 2) as pool, pytest.raises(WorkFailed, match="a worker process died") as caught:
        pool.run([99, 99])
    assert caught.value.exit_code == 3


def test_no_job_begins_after_the_stop_and_threads_are_as_before():
    before, done = torch.get_num_threads(), []
    torch.set_num_threads(2)
    try:
        with Pool(work, stop=lambda: len(done) == 2) as pool:
            assert [job for job, _ in pool.run([1, 2, 3], lambda job, outcome: done.append(job))] == [1, 2]
        with Pool(work, threads=None) as pool:
            assert pool.run([1]) == [(1, (1, 2))]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


class Memory:
    """A store of outcomes by the last digit of their jobs."""

    def __init__(self) -> None:
        self.kept = {"7": (0, 0)}

    def fingerprint(self, job: int) -> str:
        return str(job % 10)

    def find(self, job: int) -> tuple[int, int] | None:
        return self.kept.get(self.fingerprint(job))

    def keep(self, job: int, outcome: tuple[int, int]) -> None:
        self.kept[self.fingerprint(job)] = outcome


def test_what_is_stored_is_not_run_and_the_same_runs_once():
    store, ended = Memory(), []
    with Pool(work) as pool:
        found = stored_or_run([1, 7, 2, 12, 17], store, pool.run, lambda job, stored: ended.append((job, stored)))
        assert found == [(1, 1), (0, 0), (4, 1), (4, 1), (0, 0)]
        assert ended == [(7, True), (17, True), (1, False), (2, False)]
        assert stored_or_run([1, 1], None, pool.run) == [(1, 1), (1, 1)]
    assert store.kept["2"] == (4, 1)
    assert digest_of({"a": 1, "b": "é"}) == digest_of({"b": "é", "a": 1}) != digest_of({"a": 2, "b": "é"})

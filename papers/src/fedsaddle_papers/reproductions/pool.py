"""The runs of a figure, on several processes with one core each. Results do not depend on the number of processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from fedsaddle.algorithms.fedx.local_pair import LocalPair
from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.config.build import build_algorithm
from fedsaddle.config.lookup import find
from fedsaddle.config.registry import DATASETS, SPLITS
from fedsaddle.config.schema import validate_config
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Dataset
from fedsaddle.errors import Diverged, FedSaddleError
from fedsaddle.processes import children_killed, exit_with_parent, interrupts_ignored
from fedsaddle.runs.engines import Vectorised
from fedsaddle.runs.run import run
from fedsaddle.runs.settings import RunOptions
from fedsaddle_papers.reproductions.curves import RunCurves, recorder
from fedsaddle_papers.reproductions.figure import Line, Setting, with_first
from fedsaddle_papers.reproductions.store import Store, fingerprint


@dataclass(frozen=True)
class Job:
    """One run: a line of a figure with one seed. Plain data, so that other processes can receive it."""

    setting: Setting
    line: Line
    seed: int

    @property
    def data(self) -> dict[str, Any]:
        """The setting's data with the line's overrides."""
        return {**self.setting.data, **self.line.data}


class JobFailed(FedSaddleError):
    """An error of a job in another process, with its message and exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def run_job(job: Job) -> RunCurves:
    """Run a job on one core. The seed determines the split, the initial model and every batch.

    A run that diverges keeps its last finite metrics, so that one line does not end the figure.
    """
    torch.set_num_threads(1)
    began = time.process_time()
    with np.errstate(over="ignore", invalid="ignore"):  # of a run that is about to diverge, which is noted
        curves = _run(job)
    return replace(curves, processor=round(time.process_time() - began, 2))


def stored_or_run(
    jobs: Sequence[Job], workers: int, on_finish: Callable[[bool], None], store: Store | None
) -> list[RunCurves]:
    """The curves of all jobs: those that are stored, and the others, which are run once each and stored as they end.

    `on_finish` is told of each, and whether it was stored.
    """
    if store is None:
        return run_jobs(jobs, workers, lambda _: on_finish(False))
    found: dict[str, RunCurves] = {}
    missing: dict[str, Job] = {}
    for job in jobs:
        name = fingerprint(job.setting, job.line, job.seed)
        stored = store.find(job.setting, job.line, job.seed)
        if stored is not None:
            found[name] = stored
            on_finish(True)
        else:
            missing.setdefault(name, job)
    by_label = {(job.line.label, job.seed): job for job in missing.values()}

    def finished(curves: RunCurves) -> None:
        job = by_label[curves.label, curves.seed]
        store.keep(job.setting, job.line, curves)
        on_finish(False)

    for name, curves in zip(missing, run_jobs(list(missing.values()), workers, finished), strict=True):
        found[name] = curves
    names = [fingerprint(job.setting, job.line, job.seed) for job in jobs]
    return [replace(found[name], label=job.line.label) for name, job in zip(names, jobs, strict=True)]


def run_jobs(
    jobs: Sequence[Any],
    workers: int,
    on_finish: Callable[[RunCurves], None],
    work: Callable[[Any], RunCurves] = run_job,
) -> list[RunCurves]:
    """Run all jobs and return their curves in the order of the jobs.

    Args:
        jobs: the runs; of two with one label and seed, the curves are the same.
        workers: the number of processes; with one, the runs stay in this process.
        on_finish: called with the curves of each run as it ends.
        work: what runs a job, a function of a module.

    Raises:
        JobFailed: if a job in another process fails, or a process dies.
    """
    workers = min(workers, len(jobs))
    if workers < 2:
        curves = []
        for job in jobs:
            curves.append(work(job))
            on_finish(curves[-1])
        return curves
    with children_killed():
        # Spawned, not forked: a forked copy of torch's threads may hang.
        pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=exit_with_parent)
        try:
            with interrupts_ignored():
                futures = [pool.submit(_curves_or_error, work, job) for job in jobs]
            for future in as_completed(futures):
                on_finish(_curves(future.result()))
            pool.shutdown()
            return [_curves(future.result()) for future in futures]
        except BrokenProcessPool as reason:
            raise JobFailed("a process that ran a part of it died; is there enough memory?", 3) from reason
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _run(job: Job) -> RunCurves:
    data = _federated(json.dumps(job.data, sort_keys=True), job.seed)
    algorithm = make_algorithm(job, data)
    if isinstance(algorithm, LocalPair) and algorithm.centralised:
        data = data.pooled()
    every = job.line.evaluate_every or job.setting.evaluate_every
    history: list[dict[str, Any]] = []
    try:
        result = run(
            algorithm,
            data,
            job.line.rounds,
            seed=job.seed,
            engine=Vectorised(workers=1, chunk=job.line.chunk),
            evaluate_every=every,
            select=job.setting.select or None,
            callbacks=[recorder(history)],  # quiet: a run that diverges is named in the results
            options=RunOptions(evaluate_train=job.setting.evaluate_train),
        )
    except Diverged as reason:
        if reason.round is None:
            raise
        if not history:  # evaluate the last finite round
            last = reason.round - 1
            short = replace(job.line, rounds=last, evaluate_every=last) if last else standing_still(job.line)
            return _run(replace(job, line=short)).carried_forward(job.line.rounds, every, reason.round)
        if job.setting.select:  # once more to the last evaluation: the round that is chosen is among those before it
            short = replace(job.line, rounds=int(history[-1]["round"]), evaluate_every=every)
            return _run(replace(job, line=short)).carried_forward(job.line.rounds, every, reason.round)
        curves = RunCurves.from_history(job.line.label, job.seed, history)
        return curves.carried_forward(job.line.rounds, every, reason.round)
    if result.document.stopped == "interrupted":
        raise KeyboardInterrupt
    curves = RunCurves.from_history(job.line.label, job.seed, result.history)
    if not job.setting.select:
        return curves
    return replace(curves, selected={k: float(v) for k, v in (result.document.pooled or {}).items()})


def standing_still(line: Line) -> Line:
    """One round with steps of almost nothing: the metrics of the starting point."""
    still = {key: with_first(line.options[key], 1e-12) for key in ("primal_step", "dual_step") if key in line.options}
    return replace(line, rounds=1, evaluate_every=1, options={**line.options, **still})


def make_algorithm(job: Job, data: FederatedData) -> Algorithm[Any]:
    """The line's algorithm on its problem, with an initial model drawn by the seed."""
    setting, line = job.setting, job.line
    config = validate_config(
        {
            "data": {"name": job.data["name"]},
            "split": {"name": job.data["split"]},
            "model": _model_section(setting, line),
            "problem": _problem_section(setting, line),
            "algorithm": {"name": line.algorithm, **line.options},
            "run": {"seed": job.seed},
        }
    )
    return build_algorithm(config, data)[0]


def first_sources(data: FederatedData, count: int) -> FederatedData:
    """The first `count` clients with their training rows; the last of them has the held-out rows of all later ones."""
    ends = data.train.offsets[: count + 1]
    train = replace(data.train, x=data.train.x[: ends[-1]], y=data.train.y[: ends[-1]], offsets=ends)

    def held(rows: Stacked | None) -> Stacked | None:
        return None if rows is None else replace(rows, offsets=np.append(rows.offsets[:count], rows.offsets[-1]))

    numbers, names = data.train_rows, data.names[:count]
    return replace(
        data,
        train=train,
        validation=held(data.validation),
        test=held(data.test),
        names=names,
        test_names=names,
        train_rows=None if numbers is None else numbers[: ends[-1]],
    )


def first_rows(data: FederatedData, count: int) -> FederatedData:
    """The same data with the first `count` training rows of every client, or all that it has."""
    begins, ends = data.train.offsets[:-1], data.train.offsets[1:]
    kept = np.minimum(ends - begins, count)
    at = np.concatenate([np.arange(a, a + n) for a, n in zip(begins, kept, strict=True)])
    offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
    train = replace(data.train, x=data.train.x[at], y=data.train.y[at], offsets=offsets)
    return replace(data, train=train, train_rows=None if data.train_rows is None else data.train_rows[at])


def _model_section(setting: Setting, line: Line) -> dict[str, Any]:
    if line.model is None:
        return {"name": setting.model, **setting.model_options, **line.model_options}
    return {"name": line.model, **line.model_options}


def _problem_section(setting: Setting, line: Line) -> dict[str, Any]:
    if line.problem is None:
        return {"name": setting.problem, **setting.problem_options, **line.problem_options}
    return {"name": line.problem, **line.problem_options}


@lru_cache(maxsize=1)
def _federated(data: str, seed: int) -> FederatedData:
    """The federated data of a setting; jobs are sorted by seed, so that consecutive ones often share a split."""
    keywords = json.loads(data)
    name, split = keywords.pop("name"), keywords.pop("split")
    dataset, share = _dataset(name, json.dumps(keywords.pop("options", {}))), keywords.pop("test_share", 0.2)
    if keywords.pop("validation", False):
        dataset = replace(dataset, test=None)
    noise, sources, rows = (keywords.pop(key, None) for key in ("noise", "sources", "rows"))
    validation_share = keywords.pop("validation_share", 0.0)
    made = federate(dataset, find(SPLITS, "split", split)(**keywords), seed, share, validation_share=validation_share)
    made = made if rows is None else first_rows(made, rows)
    made = made if noise is None else Noise(**noise).apply(made, seed)
    return made if sources is None else first_sources(made, sources)


@lru_cache(maxsize=3)
def _dataset(name: str, options: str) -> Dataset:
    made: Dataset = find(DATASETS, "data", name)(**json.loads(options))
    return made


def _curves_or_error(work: Callable[[Any], RunCurves], job: Any) -> RunCurves | tuple[str, int]:
    """The curves, or an error's message and exit code: not every exception can be sent between processes."""
    try:
        return work(job)
    except FedSaddleError as error:
        return str(error), error.exit_code


def _curves(outcome: RunCurves | tuple[str, int]) -> RunCurves:
    if isinstance(outcome, RunCurves):
        return outcome
    raise JobFailed(*outcome)

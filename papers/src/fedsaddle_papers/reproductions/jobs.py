"""The runs of a figure: a line with a seed each. Results do not depend on the number of processes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fedsaddle.algorithms.fedx.local_pair import LocalPair
from fedsaddle.config.build import Setup, build_on
from fedsaddle.config.registry import DATASETS, SPLITS, find
from fedsaddle.config.run_config import run_config
from fedsaddle.config.schema import Experiment, validate_experiment
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Dataset
from fedsaddle.errors import Diverged
from fedsaddle.runs.engines import Vectorised
from fedsaddle.studies.pool import Pool, stored_or_run
from fedsaddle_papers.reproductions.curves import RunCurves, recorder, timed
from fedsaddle_papers.reproductions.figure import Line, Setting, with_first
from fedsaddle_papers.reproductions.store import Store, settings_of


@dataclass(frozen=True)
class Job:
    """One run: a line of a figure with one seed. Plain data, so that other processes can receive it."""

    setting: Setting
    line: Line
    seed: int

    @property
    def label(self) -> str:
        """Of its curves."""
        return self.line.label

    @property
    def settings(self) -> dict[str, Any]:
        """All that its curves depend on, as plain JSON."""
        return settings_of(self.setting, self.line, self.seed)

    @property
    def data(self) -> dict[str, Any]:
        """The setting's data with the line's overrides."""
        return {**self.setting.data, **self.line.data}


def run_job(
    job: Job, tell: Callable[[None], None] = lambda news: None, stop: Callable[[], bool] = lambda: False
) -> RunCurves:
    """Run a job on one core. The seed determines the split, the initial model and every batch.

    A run that diverges keeps its last finite metrics, so that one line does not end the figure.
    """
    return timed(lambda: _run(job))


def run_jobs(
    jobs: Sequence[Job], workers: int, on_finish: Callable[[bool], None], store: Store | None = None
) -> list[RunCurves]:
    """The curves of all jobs, in order: those that are stored, and the others, which are run and stored as they end.

    Args:
        jobs: the runs.
        workers: the number of processes; with one, the runs stay in this process.
        on_finish: told of each that has ended, and whether it was stored.
        store: where curves are kept; None: nowhere.
    """
    with Pool[Job, None, RunCurves](run_job, workers) as pool:
        found = stored_or_run(jobs, store, pool.run, lambda job, stored: on_finish(stored))
    return [replace(curves, label=job.label) for curves, job in zip(found, jobs, strict=True)]


def _run(job: Job) -> RunCurves:
    data = _federated(json.dumps(job.data, sort_keys=True), job.seed)
    setup = set_up(job, data)
    if isinstance(setup.algorithm, LocalPair) and setup.algorithm.centralised:
        setup = replace(setup, data=data.pooled())
    every = experiment_of(job).run.evaluate_every
    history: list[dict[str, Any]] = []
    try:
        result = run_config(
            experiment_of(job),
            setup,
            engine=Vectorised(workers=1, chunk=job.line.chunk),
            callbacks=[recorder(history)],  # quiet: a run that diverges is named in the results
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


def experiment_of(job: Job) -> Experiment:
    """The sections of a config that describe a job."""
    setting, line = job.setting, job.line
    return validate_experiment(
        {
            "model": _model_section(setting, line),
            "problem": _problem_section(setting, line),
            "algorithm": {"name": line.algorithm, **line.options},
            "run": {
                "seed": job.seed,
                "rounds": line.rounds,
                "evaluate_every": line.evaluate_every or setting.evaluate_every,
                "evaluate_train": setting.evaluate_train,
                "select": setting.select or None,
            },
        }
    )


def set_up(job: Job, data: FederatedData) -> Setup:
    """The line's algorithm on its problem, with an initial model drawn by the seed."""
    return build_on(experiment_of(job), data)


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

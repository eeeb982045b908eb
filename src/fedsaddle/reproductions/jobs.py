"""One run of a figure: a line and a seed. Jobs are plain data, so that they can be sent to other processes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from fedsaddle.config.build import build_algorithm
from fedsaddle.config.registry import ALGORITHMS, DATASETS, SPLITS, find
from fedsaddle.config.schema import validated
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.table import Dataset
from fedsaddle.errors import Diverged
from fedsaddle.reproductions.figure import Line, Setting
from fedsaddle.reproductions.tracks import Track
from fedsaddle.runs.run import run


@dataclass(frozen=True)
class Job:
    """A line of a figure with one seed."""

    setting: Setting
    line: Line
    seed: int

    @property
    def data(self) -> dict[str, Any]:
        """The setting's, and where the line's differ, those."""
        return {**self.setting.data, **self.line.data}


def run_job(job: Job) -> Track:
    """Run it on one core; the seed draws the split, the starting point and every batch.

    A run that diverges is kept as it was measured last: one line out of many should not end a figure.
    """
    torch.set_num_threads(1)
    data = _rows(json.dumps(job.data, sort_keys=True), job.seed)
    if getattr(find(ALGORITHMS, "algorithm", job.line.algorithm), "centralised", False):
        data = data.in_one_place()
    every = job.line.evaluate_every or job.setting.evaluate_every
    history: list[dict[str, Any]] = []
    try:
        result = run(
            make_algorithm(job, data),
            data,
            job.line.rounds,
            seed=job.seed,
            workers=1,
            chunk=job.line.chunk,
            evaluate_every=every,
            evaluate_train=job.setting.evaluate_train,
            watch=lambda _, record: None if record is None else history.append(record),
        )
    except Diverged as reason:
        if reason.round is None or reason.round == 1:
            raise
        if not history:  # measure the last round that was sound
            short = replace(job.line, rounds=reason.round - 1, evaluate_every=reason.round - 1)
            return run_job(replace(job, line=short)).held(job.line.rounds, every, reason.round)
        return Track.of(job.line.label, job.seed, history).held(job.line.rounds, every, reason.round)
    if result.summary["stopped"] == "interrupted":
        raise KeyboardInterrupt
    return Track.of(job.line.label, job.seed, result.history)


def make_algorithm(job: Job, data: FederatedData) -> Any:
    """The line's algorithm on the setting's problem, with a model that the seed has drawn."""
    setting, line = job.setting, job.line
    config = validated(
        {
            "data": {"name": job.data["name"]},
            "split": {"name": job.data["split"]},
            "model": {"name": setting.model, **setting.model_options},
            "problem": _problem(setting, line),
            "algorithm": {"name": line.algorithm, **line.options},
            "run": {"seed": job.seed},
        }
    )
    return build_algorithm(config, data)


def _problem(setting: Setting, line: Line) -> dict[str, Any]:
    if line.problem is None:
        return {"name": setting.problem, **setting.problem_options, **line.problem_options}
    return {"name": line.problem, **line.problem_options}


@lru_cache(maxsize=1)
def _rows(data: str, seed: int) -> FederatedData:
    """The rows dealt out; jobs come sorted by seed, so that the last split is mostly the one that is wanted."""
    keywords = json.loads(data)
    name, split = keywords.pop("name"), keywords.pop("split")
    dataset, share = _dataset(name, json.dumps(keywords.pop("options", {}))), keywords.pop("test_share", 0.2)
    if keywords.pop("validation", False):
        dataset = replace(dataset, test=None)
    noise, sources = keywords.pop("noise", None), keywords.pop("sources", None)
    made = federate(dataset, find(SPLITS, "split", split)(**keywords), seed, share)
    made = made if noise is None else Noise(**noise).apply(made, seed)
    return made if sources is None else first_sources(made, sources)


def first_sources(data: FederatedData, count: int) -> FederatedData:
    """The training rows of the first clients alone; the test rows of all, those of the rest at the last one kept."""
    ends, test = data.train.offsets[: count + 1], data.test
    train = replace(data.train, x=data.train.x[: ends[-1]], y=data.train.y[: ends[-1]], offsets=ends)
    if test is not None:
        test = replace(test, offsets=np.append(test.offsets[:count], test.offsets[-1]))
    return replace(data, train=train, test=test, names=data.names[:count])


@lru_cache(maxsize=3)
def _dataset(name: str, options: str) -> Dataset:
    made: Dataset = find(DATASETS, "data", name)(**json.loads(options))
    return made

"""One run of a benchmark: the config of a task, a method, a candidate and a seed, and the curves that it gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fedsaddle.config.build import build_on, build_rows, cast
from fedsaddle.config.registry import ALGORITHMS, entry
from fedsaddle.config.run_config import run_config
from fedsaddle.config.schema import Config, validate_config, validate_rows
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.sets.locate import PACKED, search_folders
from fedsaddle.errors import BadInput, Diverged, MissingData
from fedsaddle.runs.engines import Vectorised
from fedsaddle.studies.pool import digest_of
from fedsaddle_papers.reproductions.curves import RunCurves, recorder, timed
from fedsaddle_papers.suites.suite import TABLES, Candidate, Method, Options, Suite, Task, actual

SCHEME = 1  # raise it when stored results no longer mean the same
VALIDATION = 0.25  # share of the training rows that the runs which tune hold out


@dataclass(frozen=True)
class Job:
    """A run: plain data, so that other processes can receive it."""

    label: str  # of its curves
    config: dict[str, Any]
    seconds: float = 0.0  # estimated, of one core

    @property
    def seed(self) -> int:
        """Draws the split, the model and every batch."""
        return int(self.config["run"]["seed"])

    @property
    def settings(self) -> dict[str, Any]:
        """All that its curves depend on, as plain JSON."""
        return {"scheme": SCHEME, "config": self.config}

    @property
    def name(self) -> str:
        """The same for the same settings: the name of the file with its results."""
        return digest_of(self.settings)


def final_job(suite: Suite, task: Task, method: Method, chosen: Candidate, seed: int) -> Job:
    """A run that counts, measured on test rows."""
    config = config_of(task, method, chosen, task.exchanges, seed)
    return Job(f"{task.name}|{method.label}|{seed}", config, task.seconds * (suite.quick_share if suite.quick else 1))


def tuning_jobs(suite: Suite, task: Task, method: Method, at: int) -> list[Job]:
    """The runs of one candidate: with other seeds, fewer exchanges, and measured on held-out training rows."""
    return [_tuning_job(suite, task, method, at, seed) for seed in suite.tuning_seeds]


def _tuning_job(suite: Suite, task: Task, method: Method, at: int, seed: int) -> Job:
    exchanges = max(2, round(task.exchanges * suite.tuning_share))
    config = config_of(task, method, method.candidates[at], exchanges, seed)
    if task.validated:
        config["data"]["validation_share"] = VALIDATION
    share = suite.tuning_share * (suite.quick_share if suite.quick else 1)
    return Job(f"{task.name}|{method.label}|candidate {at}, {seed}", config, task.seconds * share)


def config_of(task: Task, method: Method, chosen: Candidate, exchanges: int, seed: int) -> dict[str, Any]:
    """The config of a run with as many rounds as there are exchanges for."""
    rounds = max(1, exchanges // method.exchanges)
    options = {**allowed(method.algorithm, task.local), **method.algorithm}
    config: dict[str, Any] = {
        "data": {**task.data, **method.data},
        "split": dict(task.split),
        "model": dict(task.model),
        "problem": {"name": "supervised", **task.problem, **method.problem},
        "algorithm": options,
        "run": {
            "rounds": rounds,
            "seed": seed,
            "evaluate_every": max(1, rounds // task.evaluations),
            "measures": list(task.extra),
            "dtype": task.dtype,
        },
    }
    for key, value in actual(task, chosen).items():
        section, _, option = key.partition(".")
        config[section][option] = value
    if config["data"].get("name") == "nonconvex-pl":
        config["data"]["seed"] = seed
    return with_shape(config, method.steps, rounds)


def with_shape(config: dict[str, Any], shape: str, rounds: int) -> dict[str, Any]:
    """Steps that fall to a third half way, where the method has such; stages of algorithms that count in them."""
    if shape == "constant":
        return config
    options, half = dict(config["algorithm"]), max(1, rounds // 2)
    step = options["primal_step"]
    if "stage_rounds" in _arguments(options["name"]):
        options |= {"primal_step": {"name": "geometric", "first": step, "factor": 1 / 3}, "stage_rounds": half}
    else:
        options["primal_step"] = {"name": "staged", "stages": [[half, step], [max(1, rounds - half), step / 3]]}
    return {**config, "algorithm": options}


def allowed(algorithm: Options, local: Options) -> dict[str, Any]:
    """Those of a task's local options that an algorithm has and does not fix."""
    known = entry(ALGORITHMS, "algorithm.name", algorithm["name"])
    taken = _arguments(algorithm["name"]) - set(known.fixed)
    return {key: value for key, value in local.items() if key in taken}


def _arguments(name: str) -> set[str]:
    import inspect

    return set(inspect.signature(entry(ALGORITHMS, "algorithm.name", name).load()).parameters)


def resolved(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with the path of its table, which is looked for in the folders of public data."""
    data = dict(config["data"])
    if "table" in data:
        path = find_table(str(data.pop("table")))
        data = {"name": "file", "path": path, "target": "label", "client": "site", **data}
    return {**config, "data": data}


def find_table(name: str) -> str:
    """Where a table of sites is.

    Raises:
        MissingData: if it is in none of the folders.
    """
    places = [root / TABLES / name for root in search_folders()]
    for place in places:
        for ending in PACKED[:2]:
            if (found := place.with_name(place.name + ending)).is_file():
                return str(found)
    remedy = f"put it into {places[0]}" if places else "set FEDSADDLE_DATA"
    raise MissingData(f"the table {name} is not there; {remedy}, or leave its task out with --tasks")


def run_job(
    job: Job, tell: Callable[[None], None] = lambda news: None, stop: Callable[[], bool] = lambda: False
) -> RunCurves:
    """Run a job on one core; a run that diverges keeps its last finite figures, or has none."""
    return timed(lambda: _run(job))


def _run(job: Job) -> RunCurves:
    config = validate_config(resolved(job.config))
    history = list[dict[str, Any]]()
    setup = build_on(config, _federated(_text(job.config), config.run.dtype))
    try:
        result = run_config(config, setup, engine=Vectorised(workers=1), callbacks=[recorder(history)])
    except Diverged as reason:
        return _diverged(job, config, history, reason.round or 1)
    if result.document.stopped == "interrupted":
        raise KeyboardInterrupt
    return _curves(job, result.history)


def _diverged(job: Job, config: Config, history: list[dict[str, Any]], at: int) -> RunCurves:
    if not history:
        return RunCurves(job.label, job.seed, {}, diverged=at)
    return _curves(job, history).carried_forward(config.run.rounds, config.run.evaluate_every, at)


def _curves(job: Job, history: Any) -> RunCurves:
    """The columns of a history; where there are validation rows, theirs stand in the place of the test rows'."""
    shown = [{**record, "test": record["validation"]} if "validation" in record else record for record in history]
    return RunCurves.from_history(job.label, job.seed, shown)


def _text(config: Mapping[str, Any]) -> str:
    """All that the rows depend on."""
    own = {key: config[key] for key in ("data", "split")}
    return json.dumps({**own, "seed": config["run"]["seed"]}, sort_keys=True)


@lru_cache(maxsize=2)
def _federated(text: str, dtype: str) -> FederatedData:
    """The rows of a task; jobs are sorted by task and seed, so that consecutive ones share them."""
    own = json.loads(text)
    seed = own.pop("seed")
    return cast(build_rows(validate_rows(resolved(own)), seed), dtype)


def check_task(suite: Suite, task: Task) -> str:
    """Why a task cannot be run on this machine; empty if it can."""
    try:
        job = final_job(suite, task, suite.methods[0], suite.methods[0].candidates[0], 0)
        _federated(_text(job.config), task.dtype)
    except MissingData as reason:
        return str(reason)
    except BadInput as reason:
        raise BadInput(f"task {task.name}: {reason.key}", reason.value, reason.remedy) from reason
    return ""

"""One run of a sweep: a config in a folder of its own, on one thread."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fedsaddle.atomic import write_json
from fedsaddle.config.build import build
from fedsaddle.config.schema import Config, validate_config
from fedsaddle.errors import BadCheckpoint, Diverged, FedSaddleError
from fedsaddle.runs.closing import exit_code
from fedsaddle.runs.engine_choice import engine_options
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.run import run
from fedsaddle.stored import read_object
from fedsaddle.writable import make_folder

FAILED = "failed.json"  # in the folder of a run that could not be
ENDED = ("finished", "target", "patience", "diverged")
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Job:
    """A run of a sweep: plain data, so that another process can receive it."""

    config: dict[str, Any]
    folder: Path
    values: dict[str, Any]
    seed: int

    @property
    def rounds(self) -> int:
        """How many the run has at most."""
        return int(self.config["run"]["rounds"])


def folder_name(values: Mapping[str, Any], seed: int) -> str:
    """The name of a run's folder: short values that can be read, and a digest that tells all apart.

    Example:
        >>> folder_name({"algorithm.primal_step": 0.1}, 3)
        'primal_step-0.1-9d9ebe-seed3'
    """
    words = "-".join(f"{key.rpartition('.')[2]}-{value}" for key, value in values.items())
    shown = re.sub(r"[^A-Za-z0-9._]+", "-", words).strip("-.")[:60].strip("-.")
    digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:6]
    return f"{shown}-{digest}-seed{seed}"


def status_of(folder: Path) -> tuple[str, str]:
    """What became of a run, "missing" if it has not ended, and why it failed."""
    if (folder / FAILED).exists():
        return "failed", _stored(folder / FAILED).get("reason", "")
    summary = _stored(folder / "summary.json")
    stopped = str(summary.get("stopped", "missing"))
    if stopped == "diverged":
        return "diverged", f"in round {summary.get('round')}"
    return _ended(summary) if stopped in ENDED and "ledger" in summary else ("missing", "")


def _ended(summary: Mapping[str, Any]) -> tuple[str, str]:
    """How a run ended, and why it diverged: one that stayed finite may have done so too."""
    if exit_code(summary):
        return "diverged", str(summary["warnings"][0]["text"])
    return str(summary["stopped"]), ""


def summary_of(folder: Path) -> dict[str, Any]:
    """The summary of a run; empty if there is none."""
    return _stored(folder / "summary.json")


def _stored(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except ValueError:
        return {}


def run_job(job: Job, tell: Callable[[int], None], stop: Callable[[], bool]) -> tuple[str, str]:
    """Run a job, from where it stopped before; return what became of it and why.

    A run that diverges or cannot be is an outcome too: it does not end the sweep.
    """
    (job.folder / FAILED).unlink(missing_ok=True)
    try:
        return _run(job, tell, stop)
    except Diverged as reason:
        return "diverged", str(reason)
    except (FedSaddleError, MemoryError, OSError) as reason:
        message = str(reason) or type(reason).__name__
        make_folder("out", job.folder)
        write_json(job.folder / FAILED, {"reason": message})
        return "failed", message


def _run(job: Job, tell: Callable[[int], None], stop: Callable[[], bool]) -> tuple[str, str]:
    config, folder = validate_config(job.config), RunFolder(job.folder)
    built, settings = build(config), config.run
    resume = folder.holds_run
    if resume and folder.read_config() not in (None, config.model_dump(mode="json")):
        raise BadCheckpoint(f"{folder.path} holds a run of another config; choose another --out")
    result = run(
        built.algorithm,
        built.data,
        settings.rounds,
        seed=settings.seed,
        **_engine(config),
        evaluate_every=settings.evaluate_every,
        evaluate_train=settings.evaluate_train,
        measures=built.measures,
        target=settings.target,
        select=settings.select,
        patience=settings.patience,
        lost_replies=settings.lost_replies,
        robust=config.robust.settings(deployed=False),
        secure_aggregation=config.privacy.secure_aggregation,
        privacy=config.privacy.of_clients(config.run.rounds),
        attack=config.attack.settings(),
        out=folder.path,
        resume=resume,
        checkpoint_every=settings.checkpoint_every,
        watch=lambda done, _: tell(done),
        stop=stop,
        begun=lambda: folder.write_config(config.model_dump(mode="json")),
        report=False,
        name=config.algorithm.name,
        warn=lambda text: None,
    )
    return _ended(result.summary)


def _engine(config: Config) -> dict[str, Any]:
    """The engine of a run that has one core: with one thread, unless the config says otherwise."""
    given = engine_options(config)
    threads = given["engine"] == "vectorised" and given["device"] == "cpu" and given["precision"] == "full"
    return {**given, "workers": given["workers"] or 1} if threads else given


def on_one_thread(job: Job, tell: Callable[[int], None], stop: Callable[[], bool]) -> tuple[str, str]:
    """The same in this process, with one thread; the number of threads is as before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return run_job(job, tell, stop)
    finally:
        torch.set_num_threads(threads)

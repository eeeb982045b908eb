"""One run of a sweep: a config in a folder of its own."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedsaddle.config.build import build
from fedsaddle.config.run_config import engine_of, run_config
from fedsaddle.config.schema import Config, validate_config
from fedsaddle.documents.files import RunFiles
from fedsaddle.documents.summary import DivergedSummary, RunSummary, SearchSummary
from fedsaddle.errors import BadCheckpoint, Diverged, FedSaddleError
from fedsaddle.files import Record, make_folder, read_object, write_json
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.engines import EngineSettings, Vectorised
from fedsaddle.runs.folder import RunFolder

FAILED = "failed.json"  # in the folder of a run that failed
ENDED = ("finished", "target", "patience", "diverged")
INTERRUPTED = "interrupted"


class Status(NamedTuple):
    """How a run ended, "missing" if it has not, and why it failed or diverged."""

    name: str
    reason: str = ""


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

    Examples:
        >>> folder_name({"algorithm.primal_step": 0.1}, 3)
        'primal_step-0.1-9d9ebe-seed3'
    """
    words = "-".join(f"{key.rpartition('.')[2]}-{value}" for key, value in values.items())
    shown = re.sub(r"[^A-Za-z0-9._]+", "-", words).strip("-.")[:60].strip("-.")
    digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()[:6]
    return f"{shown}-{digest}-seed{seed}"


def status_of(folder: Path) -> Status:
    """The status of a run, by its folder."""
    if (folder / FAILED).exists():
        return Status("failed", _stored(folder / FAILED).get("reason", ""))
    summary = _stored_summary(folder)
    if isinstance(summary, DivergedSummary):
        return Status("diverged", f"in round {summary.round}")
    return Status("missing") if summary is None or summary.stopped not in ENDED else _ended(summary)


def _ended(summary: RunSummary) -> Status:
    """How a run ended, and why it diverged: one that stayed finite may have done so too."""
    return Status("diverged", summary.warnings[0].text) if summary.exploded else Status(summary.stopped)


def summary_of(folder: Path) -> RunSummary | None:
    """The summary of a run that has one."""
    summary = _stored_summary(folder)
    return None if isinstance(summary, DivergedSummary) else summary


def _stored_summary(folder: Path) -> RunSummary | DivergedSummary | None:
    """The summary of a run; None if there is none, or a damaged one, so that the run counts as missing."""
    try:
        found = RunFiles(folder).stored_summary()
    except ValueError:
        return None
    return None if isinstance(found, SearchSummary) else found


def _stored(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except ValueError:
        return {}


def run_job(job: Job, tell: Callable[[int], None], stop: Callable[[], bool]) -> Status:
    """Run a job, from where it stopped before.

    A run that diverges or fails is an outcome too: it does not end the sweep.
    """
    (job.folder / FAILED).unlink(missing_ok=True)
    try:
        return _run(job, tell, stop)
    except Diverged as reason:
        return Status("diverged", str(reason))
    except (FedSaddleError, MemoryError, OSError) as reason:
        message = str(reason) or type(reason).__name__
        make_folder("out", job.folder)
        write_json(job.folder / FAILED, {"reason": message})
        return Status("failed", message)


def _run(job: Job, tell: Callable[[int], None], stop: Callable[[], bool]) -> Status:
    config, folder = validate_config(job.config), RunFolder(job.folder)
    setup = build(config)
    resume = folder.holds_run
    if resume and folder.read_config() not in (None, config.model_dump(mode="json")):
        raise BadCheckpoint(f"{folder.path} holds a run of another config; choose another --out")

    def after_round(done: int, record: Record | None) -> bool:
        tell(done)
        return stop()

    own = LambdaCallback(
        on_begin=lambda beginning: folder.write_config(config.model_dump(mode="json")),
        on_round=after_round,
        on_warning=lambda text: None,
    )
    result = run_config(config, setup, engine=_engine(config), out=folder.path, resume=resume, callbacks=[own])
    return _ended(result.document)


def _engine(config: Config) -> EngineSettings:
    """The engine of a run that has one core: with one thread, unless the config says otherwise."""
    engine = engine_of(config)
    if not isinstance(engine, Vectorised) or engine.device != "cpu" or engine.precision != "full":
        return engine
    return replace(engine, workers=engine.workers or 1)

"""The runs of a sweep, each a config in a folder of its own, and their figures.

Figures are the mean over seeds of every cell, the best cell, and how far the others are behind.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from fedsaddle.config.build import Setup, build
from fedsaddle.config.run_config import engine_of, run_config
from fedsaddle.config.schema import Config, validate_config
from fedsaddle.documents.files import RunFiles
from fedsaddle.documents.summary import DivergedSummary, OutcomeSummary, RunSummary, SearchSummary
from fedsaddle.documents.sweep import SweepCell, SweepRun
from fedsaddle.engines.choose import make_engine
from fedsaddle.errors import BadCheckpoint, BadInput, Diverged, FedSaddleError
from fedsaddle.files import Json, JsonObject, Record, make_folder, read_object, write_json
from fedsaddle.metrics.intervals import t_interval
from fedsaddle.metrics.selection import Selection, Target
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem
from fedsaddle.report.words import is_share
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.engines import EngineSettings, Vectorised
from fedsaddle.runs.evaluation import LocalEvaluator, Solution
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.run import check_algorithm, check_rows

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

    config: JsonObject
    folder: Path
    values: Mapping[str, Json]
    seed: int

    @property
    def rounds(self) -> int:
        """How many the run has at most."""
        return int(self.config["run"]["rounds"])


def folder_name(values: Mapping[str, Json], seed: int) -> str:
    """The name of a run's folder: short readable values, and a digest that is unique.

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
    return None if isinstance(found, SearchSummary | OutcomeSummary) else found


def _stored(path: Path) -> JsonObject:
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
    """The engine of a run on one core: one thread, unless the config sets another number."""
    engine = engine_of(config)
    if not isinstance(engine, Vectorised) or engine.device != "cpu" or engine.precision != "full":
        return engine
    return replace(engine, workers=engine.workers or 1)


Part = Literal["validation", "test", "train"]
GOOD = ("finished", "target", "patience")


@dataclass(frozen=True)
class Criterion:
    """By which figure of which rows cells are compared; with a target, by the rounds to it."""

    selection: Selection
    part: Part
    target: str | None = None

    def __str__(self) -> str:
        return str(self.selection) if self.target is None else f"rounds to {self.target}"

    def better(self, new: float, old: float) -> bool:
        """Whether a figure is better than another."""
        return new < old if self.target is not None else self.selection.better(new, old)

    @property
    def lower_is_better(self) -> bool:
        """Whether small figures are good."""
        return self.better(0.0, 1.0)

    @property
    def share(self) -> bool:
        """Whether figures lie between 0 and 1, and differences of two between -1 and 1."""
        return self.target is None and is_share(self.selection.measure)

    def figure(self, summary: RunSummary) -> float | None:
        """Of a run's summary."""
        if self.target is not None:
            return summary.target_round
        return self._on(summary, self.part)

    def test(self, summary: RunSummary) -> float | None:
        """The same figure on the test rows, where other rows choose."""
        return self._on(summary, "test") if self.part == "validation" and self.target is None else None

    def _on(self, summary: RunSummary, part: Part) -> float | None:
        if (measures := summary.measures(part)) is None:
            return None
        held = part == "validation"
        pooled = summary.pooled_validation if held else summary.pooled
        found = self.selection.figure({part: measures, "pooled_validation" if held else "pooled": pooled or {}})
        return found if found is None or math.isfinite(found) else None


def run_of(job: Job, root: Path, criterion: Criterion) -> SweepRun:
    """The result of a run.

    Args:
        job: The run.
        root: The sweep's folder.
        criterion: The figure that cells are compared by.
    """
    status, reason = status_of(job.folder)
    summary = summary_of(job.folder) if status in GOOD else None
    return SweepRun(
        seed=job.seed,
        folder=job.folder.relative_to(root).as_posix(),
        status=status,
        reason=reason,
        figure=None if summary is None else criterion.figure(summary),
        test=None if summary is None else criterion.test(summary),
        rounds=None if summary is None else summary.rounds,
        target_round=None if summary is None else summary.target_round,
        bytes_up=None if summary is None else summary.ledger.bytes_up,
        seconds=None if summary is None else summary.seconds,
    )


def compared_cells(jobs: Sequence[Job], root: Path, criterion: Criterion) -> list[SweepCell]:
    """The cells in order of their first run, with the best one marked."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(repr(job.values), []).append(job)
    cells = [_cell(own, root, criterion) for own in groups.values()]
    if (best := _best(cells, criterion)) is not None:
        best.best = True
        for cell in cells:
            if cell is not best:
                _compare(cell, best, criterion)
    return cells


def _cell(jobs: Sequence[Job], root: Path, criterion: Criterion) -> SweepCell:
    runs = [run_of(job, root, criterion) for job in jobs]
    mean, interval = mean_and_interval([r.figure for r in runs if r.figure is not None], share=criterion.share)
    return SweepCell(
        values=dict(jobs[0].values),
        mean=mean,
        interval=interval,
        test_mean=mean_and_interval([r.test for r in runs if r.test is not None])[0],
        behind_best=None,
        behind_interval=None,
        reached=None if criterion.target is None else sum(r.target_round is not None for r in runs),
        best=False,
        runs=runs,
    )


def mean_and_interval(values: Sequence[float], *, share: bool = False) -> tuple[float | None, list[float] | None]:
    """The mean and its 95 % t-interval, within 0 and 1 for a share; no interval for one value."""
    found = np.asarray(values, dtype=np.float64)
    if not len(found):
        return None, None
    mean, low, high = (float(v) for v in t_interval(found, share=share))
    return mean, None if len(found) < 2 else [low, high]


def _best(cells: Sequence[SweepCell], criterion: Criterion) -> SweepCell | None:
    """Of the cells with most figures the one with the best mean; of equal ones the first."""
    most = max(map(_figures, cells), default=0)
    best: SweepCell | None = None
    for cell in cells:
        mean = cell.mean
        if mean is None or _figures(cell) < most:
            continue
        if best is None or best.mean is None or criterion.better(mean, best.mean):
            best = cell
    return best


def _figures(cell: SweepCell) -> int:
    return sum(r.figure is not None for r in cell.runs)


def _compare(cell: SweepCell, best: SweepCell, criterion: Criterion) -> None:
    """Seed by seed: both have the same split, model and draws."""
    theirs = {r.seed: r.figure for r in best.runs}
    gaps = [other - r.figure for r in cell.runs if r.figure is not None and (other := theirs.get(r.seed)) is not None]
    gap, ends = mean_and_interval(gaps)
    if ends is not None and criterion.share:
        ends = [max(ends[0], -1.0), min(ends[1], 1.0)]
    cell.behind_best, cell.behind_interval = gap, ends


CAUTIONS = {
    "validation": "",
    "test": "the best cell was chosen on test rows, so its figure is too good; hold out others to choose by: "
    "--set data.validation_share=0.16",
    "train": "the best cell was chosen on training rows, so its figure says nothing about new rows; set "
    "data.test_share and data.validation_share",
}


def criterion_of(config: Config, by: str | None) -> Criterion:
    """The criterion: `by`, else `run.select`, else the AUROC, the worst client's accuracy or its loss.

    Builds the data of the config, so that errors in them are found before anything is run.

    Raises:
        BadInput: if the problem has no such figure.
    """
    rows, pooled, parts = _measures(config, build(config))
    wanted = by if by is not None else config.run.select
    part: Part = "validation" if "validation" in parts else "test" if "test" in parts else "train"
    if wanted is None:
        wanted = "auroc" if rows == ["loss"] and "auroc" in pooled else f"worst {rows[-1] if rows else 'loss'}"
        if "accuracy" in rows:
            wanted = "worst accuracy"
    try:
        selection = Selection.parse(wanted)
    except BadInput as error:
        raise BadInput("by", error.value, error.remedy) from None
    known: Sequence[str] = pooled if selection.statistic is None else rows
    if selection.measure not in known:
        raise BadInput("by", wanted, f"the problem has no such figure; of this kind there are: {', '.join(known)}")
    target = None if config.run.target is None else str(Target.parse(config.run.target))
    return Criterion(selection, part, target)


def _measures(config: Config, setup: Setup) -> tuple[list[str], list[str], Sequence[str]]:
    """The measures of clients, the pooled ones, and the parts of the rows."""
    algorithm, data = setup.algorithm, setup.data
    check_algorithm(algorithm)
    train = check_rows(algorithm, data.train, data.test, data.validation)
    problem = algorithm.problem
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)  # checked before
    evaluator = LocalEvaluator(problem, train, data.test, setup.measures, validation=data.validation)
    engine = make_engine("serial", problem, train, config.run.seed)
    at = Solution(algorithm.model(algorithm.start(engine)), None, 0)
    return evaluator.row_measures(at), evaluator.pooled_measures(at), evaluator.parts

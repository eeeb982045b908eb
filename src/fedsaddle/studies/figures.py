"""The figures of a sweep: the mean over seeds of every cell, the best cell, and how far the others are behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from fedsaddle.config.build import Setup, build
from fedsaddle.config.schema import Config
from fedsaddle.documents.summary import RunSummary
from fedsaddle.engines.choose import make_engine
from fedsaddle.errors import BadInput
from fedsaddle.metrics.intervals import t_interval
from fedsaddle.metrics.selection import Selection, Target
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem
from fedsaddle.report.words import is_share
from fedsaddle.runs.compatibility import check_algorithm, check_rows
from fedsaddle.runs.evaluation import LocalEvaluator, Solution
from fedsaddle.studies.bodies import CellBody, SeedBody
from fedsaddle.studies.sweep_job import Job, status_of, summary_of

Part = Literal["validation", "test", "train"]
GOOD = ("finished", "target", "patience")


@dataclass(frozen=True)
class Aim:
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


def seed_body(job: Job, root: Path, aim: Aim) -> SeedBody:
    """What became of a run."""
    status, reason = status_of(job.folder)
    summary = summary_of(job.folder) if status in GOOD else None
    return {
        "seed": job.seed,
        "folder": job.folder.relative_to(root).as_posix(),
        "status": status,
        "reason": reason,
        "figure": None if summary is None else aim.figure(summary),
        "test": None if summary is None else aim.test(summary),
        "rounds": None if summary is None else summary.rounds,
        "target_round": None if summary is None else summary.target_round,
        "bytes_up": None if summary is None else summary.ledger.bytes_up,
        "seconds": None if summary is None else summary.seconds,
    }


def cell_bodies(jobs: Sequence[Job], root: Path, aim: Aim) -> list[CellBody]:
    """The cells in order of their first run, with the best one marked."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(repr(job.values), []).append(job)
    cells = [_cell(own, root, aim) for own in groups.values()]
    if (best := _best(cells, aim)) is not None:
        best["best"] = True
        for cell in cells:
            if cell is not best:
                _compare(cell, best, aim)
    return cells


def _cell(jobs: Sequence[Job], root: Path, aim: Aim) -> CellBody:
    runs = [seed_body(job, root, aim) for job in jobs]
    mean, interval = mean_and_interval([r["figure"] for r in runs if r["figure"] is not None], share=aim.share)
    return {
        "values": jobs[0].values,
        "mean": mean,
        "interval": interval,
        "test_mean": mean_and_interval([r["test"] for r in runs if r["test"] is not None])[0],
        "behind_best": None,
        "behind_interval": None,
        "reached": None if aim.target is None else sum(r["target_round"] is not None for r in runs),
        "best": False,
        "runs": runs,
    }


def mean_and_interval(values: Sequence[float], *, share: bool = False) -> tuple[float | None, list[float] | None]:
    """The mean and its 95 % t-interval, within 0 and 1 for a share; no interval for one value."""
    found = np.asarray(values, dtype=np.float64)
    if not len(found):
        return None, None
    mean, low, high = (float(v) for v in t_interval(found, share=share))
    return mean, None if len(found) < 2 else [low, high]


def _best(cells: Sequence[CellBody], aim: Aim) -> CellBody | None:
    """Of the cells with most figures the one with the best mean; of equal ones the first."""
    most = max(map(_figures, cells), default=0)
    best: CellBody | None = None
    for cell in cells:
        mean = cell["mean"]
        if mean is None or _figures(cell) < most:
            continue
        if best is None or best["mean"] is None or aim.better(mean, best["mean"]):
            best = cell
    return best


def _figures(cell: CellBody) -> int:
    return sum(r["figure"] is not None for r in cell["runs"])


def _compare(cell: CellBody, best: CellBody, aim: Aim) -> None:
    """Seed by seed: both have the same split, model and draws."""
    theirs = {r["seed"]: r["figure"] for r in best["runs"]}
    gaps = [
        other - r["figure"]
        for r in cell["runs"]
        if r["figure"] is not None and (other := theirs.get(r["seed"])) is not None
    ]
    gap, ends = mean_and_interval(gaps)
    if ends is not None and aim.share:
        ends = [max(ends[0], -1.0), min(ends[1], 1.0)]
    cell["behind_best"], cell["behind_interval"] = gap, ends


CAUTIONS = {
    "validation": "",
    "test": "the best cell was chosen on test rows, so its figure is too good; hold out others to choose by: "
    "--set data.validation_share=0.16",
    "train": "the best cell was chosen on training rows, so its figure says nothing about new rows; set "
    "data.test_share and data.validation_share",
}


def aim_of_config(config: Config, by: str | None) -> Aim:
    """The aim: `by`, else `run.select`, else the AUROC, the worst client's accuracy or its loss.

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
    return Aim(selection, part, target)


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

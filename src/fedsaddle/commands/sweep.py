"""`fedsaddle sweep`: a config with every combination of values, or a search among them, with several seeds."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from fedsaddle.arguments import optional, renamed, whole
from fedsaddle.commands.documents import SCHEMA, SweepDocument, SweepPlanDocument
from fedsaddle.commands.output import output
from fedsaddle.commands.plans import plan_of, plan_table
from fedsaddle.config.build import build
from fedsaddle.config.schema import validate_config
from fedsaddle.processes import cores
from fedsaddle.report.progress import PlainLines, duration, has_bar
from fedsaddle.report.tables import megabytes
from fedsaddle.runs.interruption import Interruption
from fedsaddle.runs.lock import only_writer
from fedsaddle.shown import visible
from fedsaddle.sweeps.aim_of_config import aim_of_config
from fedsaddle.sweeps.bodies import SweepBody
from fedsaddle.sweeps.grid import parse_axis
from fedsaddle.sweeps.job import Job
from fedsaddle.sweeps.pool import JobPool
from fedsaddle.sweeps.sweep import Plan, content_of, left, prepare, run_sweep
from fedsaddle.sweeps.table import notes_of, sweep_table

SOME_FAILED, INTERRUPTED = 3, 130  # exit codes
REHEARSED = 3  # cells whose cost a dry run measures


@dataclass(frozen=True)
class SweepOptions:
    """What a sweep is asked for."""

    changes: tuple[str, ...]
    seeds: int = 5
    trials: int | None = None
    out: Path | None = None
    workers: int | None = None
    by: str | None = None
    target: str | None = None
    resume: bool = False


def sweep(path: Path, options: SweepOptions, dry_run: bool) -> int:
    """Run the sweep or print its plan; return the exit code: 3 if runs diverged or failed, 130 if interrupted."""
    renames = {"by": "--by", "target": "--target", "seeds": "--seeds", "trials": "--optuna", "workers": "--workers"}
    with renamed(renames):
        optional(whole, "workers", options.workers)
        axes = [parse_axis(change) for change in options.changes]
        folder = options.out or Path("sweeps") / path.stem
        content = content_of(path, options.target)
        plan = Plan.of(content, axes, options.seeds, folder, options.trials)
        if dry_run:
            return _plan(plan, options)
        aim = aim_of_config(plan.first(), options.by)
    prepare(plan, options.by, options.resume)
    workers = cores() if options.workers is None else options.workers
    with only_writer(folder), Interruption() as interruption:
        total = (plan.trials or len(plan.cells)) * len(plan.seeds)
        begun = total if plan.trials is not None else len(left(plan.jobs()))
        with (
            Told(output.errors(), begun, output.quiet) as told,
            JobPool(workers, told.rounds, lambda: interruption.requested) as pool,
        ):
            told.say(f"{total:,} runs, {total - begun:,} of them done before; workers: {workers}")
            body = run_sweep(plan, pool, told.ended, aim)
        return _finish(plan, body, interruption.requested)


def _finish(plan: Plan, body: SweepBody, interrupted: bool) -> int:
    screen = output.screen()
    screen.print(sweep_table(body))
    for line in (*notes_of(body), f"written to {visible(plan.folder)}"):
        screen.print(line, highlight=False, markup=False, soft_wrap=True)
    document: SweepDocument = {
        "schema": SCHEMA,
        "command": "sweep",
        "folder": str(plan.folder),
        "interrupted": interrupted,
        **body,
    }
    output.emit(document)
    if interrupted:
        output.errors().print("interrupted; what is done is kept. Go on with --resume", highlight=False)
        return INTERRUPTED
    return SOME_FAILED if body["unfinished"] else 0


@dataclass
class Told:
    """The progress of a sweep: a bar with the time left, or a line now and then; use it as a context manager."""

    console: Console
    runs: int
    quiet: bool
    done: float = 0.0
    part: dict[Path, float] = field(default_factory=dict)  # of the runs that are under way

    def __post_init__(self) -> None:
        bar = has_bar(self.console)
        self.lines = None if bar or self.quiet else PlainLines(self.say, self.runs, "run")
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Bar(*columns, console=self.console, transient=True, disable=self.quiet or not bar)
        self.task = self.bar.add_task("sweep", total=self.runs)
        self.began = time.monotonic()

    def __enter__(self) -> Told:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def rounds(self, job: Job, done: int) -> None:
        """A run has done so many rounds."""
        self.part[job.folder] = min(done / max(job.rounds, 1), 1.0)
        self.bar.update(self.task, completed=self.done + sum(self.part.values()))

    def ended(self, job: Job, status: str, reason: str) -> None:
        """A run has ended."""
        self.part.pop(job.folder, None)
        self.done += status != "interrupted"
        values = ", ".join(f"{key}={value}" for key, value in job.values.items())
        if status in ("diverged", "failed"):
            text = f"warning: {values}, seed {job.seed} {status}: {reason}"
            self.console.print(visible(text), highlight=False, markup=False, soft_wrap=True)
        self.bar.update(self.task, completed=self.done, description=escape(visible(values)[:40]))
        if self.lines is not None and status != "interrupted":
            self.lines(round(self.done))

    def say(self, text: str) -> None:
        """A note."""
        if not self.quiet:
            self.console.print(visible(text), highlight=False, markup=False, soft_wrap=True)


def _plan(plan: Plan, options: SweepOptions) -> int:
    """Print how many runs there are and what they cost, from a rehearsal of some cells."""
    jobs = plan.jobs() if plan.trials is None else []
    cells = plan.trials or len(plan.cells)
    todo = len(left(jobs)) if jobs else cells * len(plan.seeds)
    picked = _picked(plan)
    plans = [plan_of(config, build(config)) for config in picked]
    workers = cores() if options.workers is None else options.workers
    seconds = [(p["cost"]["seconds"] or 0) + (p["cost"]["seconds_of_evaluation"] or 0) for p in plans]
    mean_bytes = sum(p["cost"]["bytes_up"] or 0 for p in plans) / len(plans)
    document: SweepPlanDocument = {
        "schema": SCHEMA,
        "command": "sweep --dry-run",
        "folder": str(plan.folder),
        "cells": cells,
        "seeds": len(plan.seeds),
        "runs": cells * len(plan.seeds),
        "finished": len(jobs) - todo if jobs else 0,
        "workers": workers,
        "plan": plans[0],
        "seconds": todo * sum(seconds) / len(seconds) / workers,
        "bytes_up": round(todo * mean_bytes),
        "note": f"mean cost of {len(plans)} cells, times the runs that are left; loading the data is not in it",
    }
    _print_plan(document)
    return 0


def _picked(plan: Plan) -> list[Any]:
    """Configs of cells from the first to the last; of a search of its lower ends."""
    if plan.trials is not None:
        return [plan.first()]
    count = min(REHEARSED, len(plan.cells))
    at = {round(k * (len(plan.cells) - 1) / max(count - 1, 1)) for k in range(count)}
    return [validate_config(plan.job(plan.cells[k], plan.seeds[0]).config) for k in sorted(at)]


def _print_plan(document: SweepPlanDocument) -> None:
    screen = output.screen()
    screen.print(plan_table(document["plan"], "the first cell"))
    lines = [
        f"{document['cells']:,} cells x {document['seeds']:,} seeds = {document['runs']:,} runs, "
        f"{document['finished']:,} of them done before",
        f"about {duration(document['seconds'] or 0)} with {document['workers']} workers, "
        f"{megabytes(document['bytes_up'] or 0)} from clients ({document['note']})",
        f"would write to {visible(document['folder'])}; nothing was written",
    ]
    for line in lines:
        screen.print(line, highlight=False, markup=False, soft_wrap=True)
    output.emit(document)

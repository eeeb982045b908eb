"""`fedsaddle sweep`: a config with every combination of values, or a search among them, with several seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsaddle.commands.documents import SCHEMA, SweepPlanDocument
from fedsaddle.commands.options import OutOption, complete_changes, usable
from fedsaddle.commands.output import JsonOption, QuietOption, output
from fedsaddle.processes import cores, loading
from fedsaddle.text import visible

if TYPE_CHECKING:
    from fedsaddle.commands.progress import RunsProgress
    from fedsaddle.config.schema import Config
    from fedsaddle.documents.sweep import SweepSummary
    from fedsaddle.studies.sweep import SweepPlan
    from fedsaddle.studies.sweep_runs import Job, Status

SOME_FAILED, INTERRUPTED = 3, 130  # exit codes
PROBED = 3  # cells whose cost a dry run measures


def sweep(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="A config (TOML).", callback=usable)],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUES",
            help="Values to try: algorithm.primal_step=0.01,0.1; with --optuna also a range: 0.001..1:log.",
            autocompletion=complete_changes,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="NUMBER", help="Random seeds of each cell.")] = 5,
    optuna: Annotated[
        int | None,
        typer.Option(metavar="TRIALS", help="Search with Optuna instead of trying all combinations."),
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="MEASURE", help='Choose by this, such as "worst accuracy" or auroc.')
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION", help='Stop each run at this, e.g. "worst accuracy >= 0.5"; compare the rounds.'
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Processes of one thread each; by default one per core.")
    ] = None,
    out: OutOption = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", metavar="", help="Skip the runs that have finished in the folder.", rich_help_panel="Output"
        ),
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Print the number of runs and their cost.", rich_help_panel="Output"
        ),
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a config with every combination of values and several seeds: a table, a plot, sweep.json.

    Exit codes: 3 if runs diverged or failed, 130 if interrupted.
    """
    with loading():
        from fedsaddle.arguments import optional, renamed, whole
        from fedsaddle.commands.progress import RunsProgress
        from fedsaddle.processes import Interruption
        from fedsaddle.runs.folder import only_writer
        from fedsaddle.studies.grid import parse_axis
        from fedsaddle.studies.sweep import SweepPlan, content_of, left, prepare, run_sweep, sweep_pool
        from fedsaddle.studies.sweep_runs import criterion_of

    renames = {"by": "--by", "target": "--target", "seeds": "--seeds", "trials": "--optuna", "workers": "--workers"}
    with renamed(renames):
        optional(whole, "workers", workers)
        axes = [parse_axis(change) for change in set or ()]
        folder = out or Path("sweeps") / config.stem
        plan = SweepPlan.of(content_of(config, target), axes, seeds, folder, optuna)
        processes = cores() if workers is None else workers
        if dry_run:
            _print_plan(plan, processes)
            return
        criterion = criterion_of(plan.first(), by)
    prepare(plan, by, resume)
    with only_writer(folder), Interruption() as interruption:
        total = (plan.trials or len(plan.cells)) * len(plan.seeds)
        begun = total if plan.trials is not None else len(left(plan.jobs()))
        with RunsProgress("sweep", [1.0] * begun) as progress:
            shown = Shown(progress)
            with sweep_pool(processes, shown.rounds, lambda: interruption.requested) as pool:
                progress.say(f"{total:,} runs, {total - begun:,} of them done before; workers: {processes}")
                document = run_sweep(plan, pool, shown.ended, criterion)
        raise typer.Exit(_finish(plan, document, interruption.requested))


def _finish(plan: SweepPlan, document: SweepSummary, interrupted: bool) -> int:
    """Print the table and the document; return the exit code."""
    from fedsaddle.studies.sweep_output import notes_of, sweep_table

    screen = output.screen()
    screen.print(sweep_table(document))
    for line in (*notes_of(document), f"written to {visible(plan.folder)}"):
        screen.print(line, highlight=False, markup=False, soft_wrap=True)
    folder = str(plan.folder)
    output.emit(
        {"schema": SCHEMA, "command": "sweep", "folder": folder, "interrupted": interrupted, **document.to_dict()}
    )
    if interrupted:
        output.errors().print("interrupted; what is done is kept. Go on with --resume", highlight=False)
        return INTERRUPTED
    return SOME_FAILED if document.unfinished else 0


class Shown:
    """Shows the runs of a sweep: how far they are, and those that diverged or failed."""

    def __init__(self, progress: RunsProgress) -> None:
        self.progress = progress

    def rounds(self, job: Job, done: int) -> None:
        """Update the rounds that a run has done."""
        self.progress.part(str(job.folder), min(done / max(job.rounds, 1), 1.0))

    def ended(self, job: Job, status: Status) -> None:
        """A run has ended."""
        if status.name in ("diverged", "failed"):
            values = ", ".join(f"{key}={value}" for key, value in job.values.items())
            self.progress.warn(f"{values}, seed {job.seed} {status.name}: {status.reason}")
        if status.name != "interrupted":
            self.progress.ended(run=str(job.folder))


def _print_plan(plan: SweepPlan, workers: int) -> None:
    """Print how many runs there are and what they cost, from a probe of some cells."""
    from fedsaddle.commands.plan import plan_of, plan_table
    from fedsaddle.config.build import build
    from fedsaddle.report.tables import megabytes
    from fedsaddle.report.words import duration
    from fedsaddle.studies.sweep import left

    jobs = plan.jobs() if plan.trials is None else []
    cells = plan.trials or len(plan.cells)
    todo = len(left(jobs)) if jobs else cells * len(plan.seeds)
    picked = _picked(plan)
    plans = [plan_of(config, build(config)) for config in picked]
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


def _picked(plan: SweepPlan) -> list[Config]:
    """Configs of cells from the first to the last; of a search of its lower ends."""
    from fedsaddle.config.schema import validate_config

    if plan.trials is not None:
        return [plan.first()]
    count = min(PROBED, len(plan.cells))
    at = {round(k * (len(plan.cells) - 1) / max(count - 1, 1)) for k in range(count)}
    return [validate_config(plan.job(plan.cells[k], plan.seeds[0]).config) for k in sorted(at)]

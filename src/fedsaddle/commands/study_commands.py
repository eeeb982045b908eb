"""The commands of many runs: `sweep`, `benchmark` and `reproduce`; each imports its heavy modules itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsaddle.commands import completion
from fedsaddle.commands.loading import loading
from fedsaddle.commands.options import OutOption, usable
from fedsaddle.commands.output import JsonOption, QuietOption


def sweep(
    config: Annotated[Path, typer.Argument(help="A TOML file.", callback=usable)],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A key and its values: algorithm.primal_step=0.01,0.1; with --optuna also a range: 0.001..1:log.",
            autocompletion=completion.changes,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each cell, with other splits and draws.")] = 5,
    optuna: Annotated[
        int | None, typer.Option(help="Search with so many trials of Optuna instead of all combinations.")
    ] = None,
    out: OutOption = None,
    workers: Annotated[int | None, typer.Option(help="Processes of one thread each; by default one a core.")] = None,
    by: Annotated[str | None, typer.Option(help='The figure to choose by, such as "worst accuracy" or auroc.')] = None,
    target: Annotated[
        str | None, typer.Option(help='Stop each run at this, e.g. "worst accuracy >= 0.5", and compare the rounds.')
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on in the folder; runs that have ended are kept.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the number of runs and their cost.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a config with every combination of values and several seeds: a table, a plot, sweep.json."""
    with loading():
        from fedsaddle.commands.sweep import SweepOptions
        from fedsaddle.commands.sweep import sweep as go

    options = SweepOptions(tuple(set or ()), seeds, optuna, out, workers, by, target, resume)
    raise typer.Exit(go(config, options, dry_run))

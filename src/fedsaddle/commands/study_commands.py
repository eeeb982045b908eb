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


def benchmark(
    name: Annotated[
        str, typer.Argument(help="The suite; without a name, list all.", autocompletion=completion.suites)
    ] = "",
    quick: Annotated[bool, typer.Option(help="Fewer tasks, seeds and exchanges (minutes), to try it.")] = False,
    only: Annotated[str, typer.Option(help="Methods, by their labels with ; between: 'FedAvg;DRFA'.")] = "",
    tasks: Annotated[str, typer.Option(help="Tasks, likewise: 'Adult;CIFAR-10'.")] = "",
    seeds: Annotated[int | None, typer.Option(help="Seeds of the final runs.", show_default="5")] = None,
    measure: Annotated[
        str | None, typer.Option(help="Tune for and rank by this one, such as average_precision.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes of one core each; by default one a core.", min=1)
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Run on a Ray cluster: auto, local or host:port.", show_default=False)
    ] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Print how long it would take.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    out: Annotated[Path, typer.Option(help="Folder for results.", callback=usable)] = Path("benchmarked"),
) -> None:
    """Compare methods for one question over data sets and seeds, all tuned alike."""
    from fedsaddle.commands.benchmark import benchmark as go

    chosen = {
        "only": [one.strip() for one in only.split(";") if one.strip()],
        "tasks": [one.strip() for one in tasks.split(";") if one.strip()],
    }
    raise typer.Exit(
        go(name, out, quick=quick, **chosen, seeds=seeds, measure=measure, workers=workers, ray=ray, estimate=estimate)
    )


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="The figure to reproduce; without a name, list all.", autocompletion=completion.figures),
    ] = "",
    quick: Annotated[bool, typer.Option(help="Use fewer seeds and rounds (about a minute).")] = False,
    every: Annotated[bool, typer.Option("--all", help="All figures; runs that are stored are not run again.")] = False,
    tune: Annotated[bool, typer.Option("--tune", help="Tune the methods of the figure, on held-out rows.")] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    out: Annotated[Path, typer.Option(help="Folder for plots and figures.", callback=usable)] = Path("reproduced"),
) -> None:
    """Reproduce a figure of a paper, and report which of the paper's sentences hold."""
    from fedsaddle.commands.reproduce import reproduce as go

    raise typer.Exit(go(name, quick, out, every=every, tune=tune))

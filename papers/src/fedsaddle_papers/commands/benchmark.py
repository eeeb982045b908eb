"""`fedsaddle benchmark`: compare methods for one question, tuned alike, over data sets and seeds."""

from __future__ import annotations

import inspect
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsaddle.commands.documents import SCHEMA, Document, Listed
from fedsaddle.commands.options import usable
from fedsaddle.commands.output import JsonOption, QuietOption, output, say
from fedsaddle.config.registry import entry, with_brought
from fedsaddle.errors import BadInput
from fedsaddle.files import require_folder
from fedsaddle.own_code import user_code_errors
from fedsaddle.processes import cores
from fedsaddle.text import visible
from fedsaddle_papers.suites.names import SUITES
from fedsaddle_papers.suites.suite import Suite


class SuitesDocument(Document):
    """`benchmark` without a name."""

    suites: list[Listed]


class EstimateDocument(Document):
    """`benchmark NAME --estimate`."""

    suite: str
    tuning_runs: int
    final_runs: int
    workers: int
    minutes: Annotated[float, "on all workers"]


class BenchmarkDocument(Document):
    """`benchmark NAME`."""

    suite: str
    quick: bool
    ranks: Annotated[dict[str, dict[str, Any]], "by method, the best first: rank, interval and costs of a run"]
    tasks: Annotated[list[dict[str, Any]], "the figures of every method on every task"]
    notes: Annotated[list[str], "such as tasks that were left out"]
    folder: str
    report: str


DOCUMENTS = (SuitesDocument, EstimateDocument, BenchmarkDocument)


def _suites(incomplete: str) -> list[tuple[str, str]]:
    """What `fedsaddle benchmark` runs."""
    return [(name, entry.about) for name, entry in SUITES.items() if name.startswith(incomplete)]


def benchmark(
    name: Annotated[str, typer.Argument(help="The suite; without a name, list all.", autocompletion=_suites)] = "",
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
    chosen = {
        "only": [one.strip() for one in only.split(";") if one.strip()],
        "tasks": [one.strip() for one in tasks.split(";") if one.strip()],
    }
    raise typer.Exit(
        run_benchmark(
            name, out, quick=quick, **chosen, seeds=seeds, measure=measure, workers=workers, ray=ray, estimate=estimate
        )
    )


def run_benchmark(
    name: str,
    out: Path,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    tasks: Sequence[str] = (),
    seeds: int | None = None,
    measure: str | None = None,
    workers: int | None = None,
    ray: str | None = None,
    estimate: bool = False,
) -> int:
    """Run a suite, or without a name list all.

    Args:
        name: the suite, or `module:name` of one of your own.
        out: its files go to `out`/`name`, those of a part or of another question beside it, and every run to
            `out`/runs, from where it is taken the next time.
        quick: fewer tasks, seeds, exchanges and candidates; to see that it works.
        only: labels of methods; none: all.
        tasks: names of tasks; none: all.
        seeds: of the final runs.
        measure: the question, where tasks have several measures.
        workers: processes of one core each; None: one a core.
        ray: the address of a Ray cluster; None: this machine.
        estimate: print how long it would take, and run nothing.

    Returns:
        0; errors are raised.
    """
    if not name:
        _print_names()
        return 0
    suite = _named_suite(name).chosen(tasks, only, seeds, measure)
    if quick:
        shorter = suite.shortened() if not tasks else replace(suite, quick_tasks=()).shortened()
        suite = shorter if seeds is None else replace(shorter, seeds=seeds)
    workers = cores() if workers is None else workers
    if estimate:
        _print_estimate(suite, workers)
        return 0
    _run(suite, name, out, workers, ray)
    return 0


def _run(suite: Suite, name: str, out: Path, workers: int, ray: str | None) -> None:
    folder = out / suite.folder(name)
    require_folder("out", folder)
    from fedsaddle.commands.progress import RunsProgress
    from fedsaddle_papers.reproductions.store import Store
    from fedsaddle_papers.suites import outcome
    from fedsaddle_papers.suites.ranking import ranked
    from fedsaddle_papers.suites.run import all_jobs, available, on_cores, on_ray, run_suite

    if ray is not None:
        from fedsaddle.engines.ray_workers import require_ray

        require_ray()
    suite, left_out = available(suite)
    for task, why in left_out.items():
        typer.echo(visible(f"{task} is left out: {why}"), err=True)
    began, runner = time.perf_counter(), on_cores(workers) if ray is None else on_ray(ray)
    tuning, final = suite.runs()
    say(f"{name}: {tuning} runs that tune, {final} final runs; Ctrl-C keeps those that have ended")
    with RunsProgress(name, [job.seconds for job in all_jobs(suite)]) as progress:
        store = Store(out / "runs")
        results = run_suite(suite, left_out, store, runner, lambda job, stored: progress.ended(job.seconds, stored))
    results = replace(results, seconds=time.perf_counter() - began)
    summary = outcome.write(results, ranked(results), folder)
    for note in summary["notes"]:
        typer.echo(visible(note), err=True)
    screen = output.screen()
    screen.print(outcome.terminal_table(summary))
    if suite.quick:
        screen.print("a quick run: too few seeds, exchanges and candidates for any conclusion", highlight=False)
    screen.print(f"report: {visible(folder / outcome.REPORT)}", highlight=False, markup=False, soft_wrap=True)
    document: BenchmarkDocument = {
        "schema": SCHEMA,
        "command": "benchmark",
        "suite": name,
        "quick": suite.quick,
        "ranks": summary["ranks"],
        "tasks": summary["tasks"],
        "notes": summary["notes"],
        "folder": str(folder),
        "report": str(folder / outcome.REPORT),
    }
    output.emit(document)


def _named_suite(name: str) -> Suite:
    """The suite itself, or what a function without arguments makes of it."""
    found = entry(SUITES, "benchmark", name, "benchmarks").load()
    if inspect.isfunction(found) and not inspect.signature(found).parameters:
        with user_code_errors("benchmark", name, name):
            found = found()
    if not isinstance(found, Suite):
        remedy = "must be a suite (fedsaddle_papers.suites.suite.Suite), or a function without arguments that makes one"
        raise BadInput("benchmark", name, remedy)
    return found


def _print_estimate(suite: Suite, workers: int) -> None:
    from fedsaddle.report.words import duration

    tuning, final = suite.runs()
    minutes = suite.minutes() / workers
    document: EstimateDocument = {
        "schema": SCHEMA,
        "command": "benchmark",
        "suite": suite.name,
        "tuning_runs": tuning,
        "final_runs": final,
        "workers": workers,
        "minutes": minutes,
    }
    output.emit(document)
    if not output.json:
        typer.echo(f"{tuning} runs that tune, {final} final runs: about {duration(60 * minutes)} on {workers} cores")


def _print_names() -> None:
    suites = with_brought(SUITES, "benchmarks")
    document: SuitesDocument = {
        "schema": SCHEMA,
        "command": "benchmark",
        "suites": [{"name": name, "about": e.about, "source": e.source} for name, e in suites.items()],
    }
    output.emit(document)
    if output.json:
        return
    width = max(len(name) for name in suites)
    for name, e in suites.items():
        typer.echo(visible(f"{name:<{width}}  {e.about}"))
    typer.echo("run one with `fedsaddle benchmark NAME`, a few minutes with --quick")

"""`fedsaddle reproduce`: rerun the figures of the papers."""

from __future__ import annotations

import inspect
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedsaddle.config.own_code import told_in_one_line
from fedsaddle.config.registry import entry, with_brought
from fedsaddle.errors import BadInput
from fedsaddle.reproductions.names import FIGURES
from fedsaddle.shown import visible
from fedsaddle.writable import require_folder

if TYPE_CHECKING:
    from fedsaddle.reproductions.curves import Runs
    from fedsaddle.reproductions.figure import Figure

MAX_WORKERS = 8  # each holds the data and some 400 MB of libraries


def reproduce(name: str, quick: bool, as_json: bool, out: Path) -> None:
    """Run a figure, write its files to `out`/`name`, and print the claims; without a name, list all figures."""
    if not name:
        _print_names(as_json)
        return
    known = entry(FIGURES, "reproduce", name, "figures")
    out = out / name.replace(":", ".")
    require_folder("out", out)
    from fedsaddle.report.tables import console
    from fedsaddle.reproductions import outcome

    full = _figure(known.load(), name)
    figure = full.quick() if quick else full
    began = time.perf_counter()
    runs = run_figure(figure, name)
    claims = figure.claims(runs)
    outcome.write(name, figure, runs, claims, time.perf_counter() - began, out)
    for note in runs.divergence_notes():
        typer.echo(note, err=True)
    if as_json:
        print(outcome.json_lines(claims))
    else:
        screen = console()
        screen.print(outcome.table(figure, claims))
        screen.print(f"written to {visible(out)}", highlight=False, markup=False, soft_wrap=True)
        screen.print(f"report: {visible(out / outcome.REPORT)}", highlight=False, markup=False, soft_wrap=True)


def _figure(found: object, name: str) -> Figure:
    """The figure itself, or what a function without arguments makes of it."""
    from fedsaddle.reproductions.figure import Figure

    if inspect.isfunction(found) and not inspect.signature(found).parameters:
        with told_in_one_line("reproduce", name, name):
            found = found()
    if not isinstance(found, Figure):
        remedy = (
            "must be a figure (fedsaddle.reproductions.figure.Figure), or a function without arguments that makes one"
        )
        raise BadInput("reproduce", name, remedy)
    return found


def run_figure(figure: Figure, title: str, workers: int | None = None) -> Runs:
    """Run every line with every seed on `workers` processes; None means one per core, at most 8."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from fedsaddle.reproductions.curves import Runs
    from fedsaddle.reproductions.pool import Job, run_jobs

    jobs = [Job(figure.setting, line, seed) for seed in range(figure.seeds) for line in figure.lines]
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title, total=len(jobs))
        processes = workers or min(MAX_WORKERS, os.cpu_count() or 1)
        curves = run_jobs(jobs, processes, lambda _: bar.update(task, advance=1))
    return Runs.of(curves)


def _print_names(as_json: bool) -> None:
    figures = with_brought(FIGURES, "figures")
    if as_json:
        rows = [{"name": name, "about": e.about, "source": e.source} for name, e in figures.items()]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    width = max(len(name) for name in figures)
    for name, e in figures.items():
        typer.echo(visible(f"{name:<{width}}  {e.about}  ({e.source})"))

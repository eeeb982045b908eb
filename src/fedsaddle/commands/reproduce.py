"""`fedsaddle reproduce`: rerun the figures of the papers."""

from __future__ import annotations

import inspect
import itertools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedsaddle.commands.documents import SCHEMA, FiguresDocument, ReproduceDocument
from fedsaddle.commands.output import output, say
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


def reproduce(name: str, quick: bool, out: Path) -> None:
    """Run a figure, write its files to `out`/`name`, and print the claims; without a name, list all figures."""
    if not name:
        _print_names()
        return
    known = entry(FIGURES, "reproduce", name, "figures")
    out = out / name.replace(":", ".")
    require_folder("out", out)
    from fedsaddle.reproductions import outcome

    full = _figure(known.load(), name)
    figure = full.quick() if quick else full
    began = time.perf_counter()
    runs = run_figure(figure, name)
    claims = figure.claims(runs)
    outcome.write(name, figure, runs, claims, time.perf_counter() - began, out)
    notes, page = list(runs.divergence_notes()), out / outcome.REPORT
    for note in notes:
        typer.echo(note, err=True)
    screen = output.screen()
    screen.print(outcome.table(figure, claims))
    screen.print(f"written to {visible(out)}", highlight=False, markup=False, soft_wrap=True)
    screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    document: ReproduceDocument = {
        "schema": SCHEMA,
        "command": "reproduce",
        "figure": name,
        "quick": quick,
        "claims": [
            {"claim": c.claim, "paper": c.paper, "measured": c.measured, "holds": bool(c.holds)} for c in claims
        ],
        "notes": notes,
        "folder": str(out),
        "report": str(page),
    }
    output.emit(document)


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
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from fedsaddle.report.progress import PlainLines, has_bar
    from fedsaddle.reproductions.curves import Runs
    from fedsaddle.reproductions.pool import Job, run_jobs

    jobs = [Job(figure.setting, line, seed) for seed in range(figure.seeds) for line in figure.lines]
    errors, bars = output.errors(), has_bar(output.errors())
    lines = PlainLines(lambda text: None if bars else say(f"{title}: {text}"), len(jobs), "run")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=output.quiet or not bars) as bar:
        task = bar.add_task(title, total=len(jobs))
        processes = workers or min(MAX_WORKERS, os.cpu_count() or 1)
        done = itertools.count(1)

        def finished(_: object) -> None:
            bar.update(task, advance=1)
            lines(next(done))

        curves = run_jobs(jobs, processes, finished)
    return Runs.of(curves)


def _print_names() -> None:
    figures = with_brought(FIGURES, "figures")
    document: FiguresDocument = {
        "schema": SCHEMA,
        "command": "reproduce",
        "figures": [{"name": name, "about": e.about, "source": e.source} for name, e in figures.items()],
    }
    output.emit(document)
    if output.json:
        return
    width = max(len(name) for name in figures)
    for name, e in figures.items():
        typer.echo(visible(f"{name:<{width}}  {e.about}  ({e.source})"))

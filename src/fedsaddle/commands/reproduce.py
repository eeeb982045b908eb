"""`fedsaddle reproduce`."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedsaddle.config.registry import entry, find
from fedsaddle.reproductions.names import EXPERIMENTS

if TYPE_CHECKING:
    from fedsaddle.reproductions.figure import Figure
    from fedsaddle.reproductions.tracks import Tracks


MOST_WORKERS = 8  # each holds the data and some 400 MB of libraries


def reproduce(name: str, quick: bool, as_json: bool, out: Path) -> None:
    """Run a figure anew, write its figures and plot to `out`/`name`, and print the claims."""
    if not name:
        _list(as_json)
        return
    entry(EXPERIMENTS, "reproduce", name)
    from fedsaddle.report.tables import console
    from fedsaddle.reproductions import outcome

    full: Figure = find(EXPERIMENTS, "reproduce", name)
    figure = full.quick() if quick else full
    began = time.perf_counter()
    tracks = run_figure(figure, name)
    claims = figure.claims(tracks)
    outcome.write(name, figure, tracks, claims, time.perf_counter() - began, out / name)
    for said in tracks.diverged():
        typer.echo(said, err=True)
    if as_json:
        print(outcome.json_lines(claims))
    else:
        screen = console()
        screen.print(outcome.table(figure, claims))
        screen.print(f"written to {out / name}", highlight=False, soft_wrap=True)


def run_figure(figure: Figure, title: str, workers: int | None = None) -> Tracks:
    """Run every line with every seed, on all cores unless told otherwise."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from fedsaddle.reproductions.jobs import Job
    from fedsaddle.reproductions.pool import run_jobs
    from fedsaddle.reproductions.tracks import Tracks

    jobs = [Job(figure.setting, line, seed) for seed in range(figure.seeds) for line in figure.lines]
    errors = Console(stderr=True)
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*parts, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(title, total=len(jobs))
        processes = workers or min(MOST_WORKERS, os.cpu_count() or 1)
        tracks = run_jobs(jobs, processes, lambda _: bar.update(task, advance=1))
    return Tracks.of(tracks)


def _list(as_json: bool) -> None:
    if as_json:
        rows = [{"name": name, "about": e.about, "source": e.source} for name, e in EXPERIMENTS.items()]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    width = max(len(name) for name in EXPERIMENTS)
    for name, found in EXPERIMENTS.items():
        typer.echo(f"{name:<{width}}  {found.about}  ({found.source})")

"""`fedsaddle demo`: compare four algorithms on simulated sites."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from fedsaddle.algorithms.drfa import Drfa
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.qfedavg import QFedAvg
from fedsaddle.atomic import write_json
from fedsaddle.commands.documents import SCHEMA, DemoDocument
from fedsaddle.commands.output import output
from fedsaddle.config.data import load
from fedsaddle.errors import BadInput
from fedsaddle.metrics.spread import STATISTICS
from fedsaddle.problems.models.papers import logistic_regression
from fedsaddle.problems.supervised import Supervised
from fedsaddle.report.progress import Progress
from fedsaddle.runs.run import run
from fedsaddle.shown import visible
from fedsaddle.writable import make_folder, require_folder

SEEDS = 3
SITES = 10
ALGORITHMS: dict[str, Callable[[Supervised], FedAvg | QFedAvg | Drfa]] = {
    "FedAvg": lambda problem: FedAvg(problem=problem),
    "q-FedAvg": lambda problem: QFedAvg(problem=problem, q=1.0),
    "AFL": lambda problem: Drfa(problem=problem, local_steps=1),
    "DRFA": lambda problem: Drfa(problem=problem),
}


def demo(out: Path, rounds: int) -> None:
    """Compare FedAvg, q-FedAvg, AFL and DRFA on ten sites, one of which scans upside down.

    Args:
        out: folder for report.html, comparison.png, sites.png and results.json.
        rounds: rounds of each run, at least 2.

    Raises:
        BadInput: if `rounds` is below 2, or `out` cannot be written to.
    """
    if rounds < 2:
        raise BadInput("rounds", rounds, "must be at least 2")
    require_folder("out", out)
    screen, began = output.screen(), time.perf_counter()
    screen.print(
        f"1,797 handwritten digits (scikit-learn) at {SITES} sites, one of which scans them upside down.\n"
        f"Logistic regression, {rounds} rounds of {ALGORITHMS['DRFA'](_problem()).local_steps} local steps "
        f"(AFL: 1), mean over {SEEDS} seeds.",
        highlight=False,
    )
    histories: dict[str, list[dict[str, Any]]] = {}
    every: dict[str, list[list[dict[str, Any]]]] = {}
    with Progress(output.errors(), rounds * SEEDS * len(ALGORITHMS), "demo", output.quiet) as progress:
        for k, (name, make) in enumerate(ALGORITHMS.items()):
            seeds = []
            for seed in range(SEEDS):
                done_before = (k * SEEDS + seed) * rounds
                data = load("scanned-digits", split="natural", column="site", seed=seed)
                algorithm = make(_problem())
                watch = _watch_after(progress, done_before)
                seeds.append(run(algorithm, data, rounds, seed=seed, watch=watch).history)
            histories[name], every[name] = mean_history(seeds), seeds
    screen.print(_table(histories))
    from fedsaddle.commands.demo_page import write_demo_page  # now that they are needed: matplotlib takes a while
    from fedsaddle.report import plots

    make_folder("out", out)
    plots.comparison(histories, out / "comparison.png", f"{SITES} sites, one of which scans upside down")
    plots.clients(histories, data.names, out / "sites.png")
    write_json(out / "results.json", {name: history[-1] for name, history in histories.items()})
    seconds = time.perf_counter() - began
    page = write_demo_page(out / "report.html", every, histories, data.names, seconds)
    screen.print(f"plots in {visible(out)} ({seconds:.0f} s)", highlight=False, markup=False)
    screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    document: DemoDocument = {
        "schema": SCHEMA,
        "command": "demo",
        "folder": str(out),
        "report": str(page),
        "rounds": rounds,
        "seeds": SEEDS,
        "seconds": seconds,
        "results": {name: history[-1]["test"]["accuracy"] for name, history in histories.items()},
    }
    output.emit(document)


def _problem() -> Supervised:
    return Supervised(logistic_regression(64, 10))


def _watch_after(progress: Progress, done_before: int) -> Callable[[int, dict[str, Any] | None], None]:
    """A `watch` function that adds the rounds of earlier runs."""
    return lambda done, record: progress(done_before + done, record)


def mean_history(histories: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Average every statistic and every site's accuracy over the seeds, record by record."""
    means = []
    for records in zip(*histories, strict=True):
        statistics = {s: float(np.mean([r["test"]["accuracy"][s] for r in records])) for s in STATISTICS}
        sites = np.mean([r["clients"]["test"]["accuracy"] for r in records], axis=0).tolist()
        means.append(
            {
                "round": records[0]["round"],
                "test": {"accuracy": statistics},
                "clients": {"test": {"accuracy": sites}},
            }
        )
    return means


def _table(histories: Mapping[str, list[dict[str, Any]]]) -> Table:
    table = Table(title="test accuracy", title_justify="left")
    table.add_column("")
    for head in ("worst site", "against FedAvg", "mean of sites", "std of sites"):
        table.add_column(head, justify="right")
    base = histories["FedAvg"][-1]["test"]["accuracy"]["worst"]
    for name, history in histories.items():
        accuracy = history[-1]["test"]["accuracy"]
        gain = "" if name == "FedAvg" else f"{100 * (accuracy['worst'] - base):+.1f} points"
        table.add_row(name, f"{accuracy['worst']:.3f}", gain, f"{accuracy['mean']:.3f}", f"{accuracy['std']:.3f}")
    return table

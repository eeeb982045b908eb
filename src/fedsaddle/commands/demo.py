"""`fedsaddle demo`: compare four algorithms on simulated sites."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsaddle.commands.documents import SCHEMA, DemoDocument
from fedsaddle.commands.options import OUTPUT, usable
from fedsaddle.commands.output import JsonOption, QuietOption, output
from fedsaddle.errors import BadInput
from fedsaddle.files import Record, make_folder, require_folder, write_json
from fedsaddle.processes import loading
from fedsaddle.text import visible

if TYPE_CHECKING:
    from rich.table import Table

    from fedsaddle.algorithms.drfa import Drfa
    from fedsaddle.algorithms.fedavg import FedAvg
    from fedsaddle.algorithms.protocols import AnyAlgorithm
    from fedsaddle.algorithms.qfedavg import QFedAvg
    from fedsaddle.commands.progress import RoundProgress

SEEDS = 3
SITES = 10


def demo(
    rounds: Annotated[int, typer.Option(metavar="NUMBER", help="Rounds of each algorithm.")] = 100,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the results.", callback=usable, rich_help_panel=OUTPUT)
    ] = Path("fedsaddle-demo"),
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare FedAvg, q-FedAvg, AFL and DRFA on real data at simulated sites: a table and plots."""
    with loading():
        from fedsaddle.commands.progress import RoundProgress
        from fedsaddle.config.build import load
        from fedsaddle.report import plots
        from fedsaddle.report.comparison import write_demo_page
        from fedsaddle.runs.callbacks import LambdaCallback
        from fedsaddle.runs.run import run

    if rounds < 2:
        raise BadInput("rounds", rounds, "must be at least 2")
    require_folder("out", out)
    algorithms = demo_algorithms()
    screen, began = output.screen(), time.perf_counter()
    screen.print(
        f"1,797 handwritten digits (scikit-learn) at {SITES} sites, one of which scans them upside down.\n"
        f"Logistic regression, {rounds} rounds of {algorithms['DRFA'].local_steps} local steps "
        f"(AFL: 1), mean over {SEEDS} seeds.",
        highlight=False,
    )
    histories: dict[str, list[Record]] = {}
    every: dict[str, list[list[Record]]] = {}
    with RoundProgress(rounds * SEEDS * len(algorithms), "demo") as progress:
        for k, name in enumerate(algorithms):
            algorithm: AnyAlgorithm = algorithms[name]
            seeds = list[list[Record]]()
            for seed in range(SEEDS):
                done_before = (k * SEEDS + seed) * rounds
                data = load("scanned-digits", split="natural", column="site", seed=seed)
                after = LambdaCallback(on_round=_watch_after(progress, done_before))
                seeds.append(run(algorithm, data, rounds, seed=seed, callbacks=[after]).history)
            histories[name], every[name] = mean_history(seeds), seeds
    screen.print(_table(histories))
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


def demo_algorithms() -> dict[str, FedAvg | QFedAvg | Drfa]:
    """The algorithms of the demo, for logistic regression on the digits."""
    from fedsaddle.algorithms.drfa import Drfa
    from fedsaddle.algorithms.fedavg import FedAvg
    from fedsaddle.algorithms.qfedavg import QFedAvg
    from fedsaddle.problems.models.networks import logistic_regression
    from fedsaddle.problems.supervised import Supervised

    problem = Supervised(logistic_regression(64, 10))
    return {
        "FedAvg": FedAvg(problem=problem),
        "q-FedAvg": QFedAvg(problem=problem, q=1.0),
        "AFL": Drfa(problem=problem, local_steps=1),
        "DRFA": Drfa(problem=problem),
    }


def _watch_after(progress: RoundProgress, done_before: int) -> Callable[[int, Record | None], None]:
    """A `watch` function that adds the rounds of earlier runs."""
    return lambda done, record: progress(done_before + done, record)


def mean_history(histories: list[list[Record]]) -> list[Record]:
    """Average every statistic and every site's accuracy over the seeds, record by record."""
    import numpy as np

    from fedsaddle.metrics.selection import STATISTICS

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


def _table(histories: Mapping[str, list[Record]]) -> Table:
    from rich.table import Table

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

"""The page of `fedsaddle demo`: four algorithms on the same simulated sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsaddle.files import write_atomically
from fedsaddle.report.page.charts import ChartAxis, Line, heat_map, line_chart
from fedsaddle.report.page.parts import Chart, Figure, Page, PageTable, Section, Text
from fedsaddle.report.page.render import render
from fedsaddle.report.sections.numbers import MOST_POINTS, axis, picked
from fedsaddle.report.words import percent

STYLES = ("first", "second", "third", "fourth")
History = Sequence[Mapping[str, Any]]
Curve = Callable[[Mapping[str, Any]], float]


def write_demo_page(
    path: Path,
    seeds: Mapping[str, Sequence[History]],
    means: Mapping[str, History],
    sites: Sequence[str],
    seconds: float,
) -> Path:
    """Write the page.

    Args:
        path: the file.
        seeds: of each algorithm, the history of each seed.
        means: their mean over the seeds.
        sites: the names of the sites.
        seconds: how long it took.
    """
    write_atomically(path, render(demo_page(seeds, means, sites, seconds)).encode())
    return path


def demo_page(
    seeds: Mapping[str, Sequence[History]], means: Mapping[str, History], sites: Sequence[str], seconds: float
) -> Page:
    """The page of the demo."""
    last = {name: history[-1]["test"]["accuracy"] for name, history in means.items()}
    best = max(last, key=lambda name: float(last[name]["worst"]))
    rounds, runs = next(iter(means.values()))[-1]["round"], len(next(iter(seeds.values())))
    return Page(
        title="Four algorithms, ten sites, one of them upside down",
        subtitle=f"The demo of FedSaddle: {rounds} rounds, {runs} seeds, {seconds:.0f} s",
        answers=[
            Text(
                "1,797 handwritten digits are spread over ten simulated sites, one of which scans them upside down. "
                "Plain "
                f"averaging (FedAvg) gets {percent(last['FedAvg']['mean'], 1)} right at the mean site, but "
                f"{percent(last['FedAvg']['worst'], 1)} at the worst.",
                head="What is the question?",
            ),
            Text(
                f"{best} has the best worst site: {percent(last[best]['worst'], 1)} there, and "
                f"{percent(last[best]['mean'], 1)} "
                "at the mean site.",
                head="What helps?",
            ),
        ],
        figures=[
            Figure(f"worst site, {name}", percent(own["worst"], 1), "test accuracy") for name, own in last.items()
        ],
        sections=[_client_table(last), _curves(seeds), _sites(means, sites)],
        footer="Made by fedsaddle demo; all rows were on one machine.",
    )


def _client_table(last: Mapping[str, Mapping[str, float]]) -> Section:
    base = last["FedAvg"]["worst"]
    rows = []
    for name, own in last.items():
        gain = "" if name == "FedAvg" else f"{100 * (own['worst'] - base):+.1f} points"
        rows.append([name, percent(own["worst"], 1), gain, percent(own["mean"], 1), f"{100 * own['std']:.1f} points"])
    heads = ["algorithm", "worst site", "against FedAvg", "mean of sites", "spread over sites"]
    return Section("figures", "At the end", [PageTable(heads, rows, caption="Test accuracy, mean over the seeds")])


def _curves(seeds: Mapping[str, Sequence[History]]) -> Section:
    worst = _chart("Worst site", seeds, lambda record: float(record["test"]["accuracy"]["worst"]), "worst")
    mean = _chart("Mean of the sites", seeds, lambda record: float(record["test"]["accuracy"]["mean"]), "mean")
    return Section("curves", "Over the rounds", [worst, mean])


def _chart(title: str, seeds: Mapping[str, Sequence[History]], curve: Curve, key: str) -> Chart:
    """A line for each algorithm: its mean, with a band from the lowest to the highest seed."""
    lines = []
    for (name, histories), style in zip(seeds.items(), STYLES, strict=False):
        at = picked(len(histories[0]), MOST_POINTS)
        y = np.array([[curve(history[k]) for k in at] for history in histories])
        rounds = [int(histories[0][k]["round"]) for k in at]
        low, high = y.min(axis=0).tolist(), y.max(axis=0).tolist()
        lines.append(Line(name, rounds, y.mean(axis=0).tolist(), style, low, high))
    values = [v for line in lines for v in (*(line.low or ()), *(line.high or ()))]
    return Chart(
        title,
        line_chart(lines, ChartAxis("round", 0, lines[0].x[-1]), axis("test accuracy", values, share=True), key=key),
        ", ".join(f"{line.name} ends at {percent(line.y[-1], 1)}" for line in lines) + ".",
        PageTable(["algorithm", "last round", "lowest seed", "highest seed"], [_ends(line) for line in lines]),
        note="Means over the seeds; bands reach from the lowest to the highest seed.",
    )


def _ends(line: Line) -> list[str]:
    low, high = line.low or line.y, line.high or line.y
    return [line.name, percent(line.y[-1], 1), percent(low[-1], 1), percent(high[-1], 1)]


def _sites(means: Mapping[str, History], sites: Sequence[str]) -> Section:
    columns = {name: history[-1]["clients"]["test"]["accuracy"] for name, history in means.items()}
    shares = [[float(own[i]) for own in columns.values()] for i in range(len(sites))]
    worst = {name: int(np.argmin(own)) for name, own in columns.items()}
    chart = Chart(
        "Right answers in per cent",
        heat_map(list(sites), list(columns), shares, key="sites"),
        "; ".join(f"{name} is worst at {sites[i]} with {percent(columns[name][i], 1)}" for name, i in worst.items())
        + ".",
        PageTable(
            ["site", *columns], [[site, *(percent(v, 1) for v in row)] for site, row in zip(sites, shares, strict=True)]
        ),
        note="Test accuracy of each site at the end, mean over the seeds.",
    )
    return Section("sites", "Each site", [chart])

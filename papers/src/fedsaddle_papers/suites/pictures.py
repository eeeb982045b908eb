"""plot.png of a benchmark: a panel for each task, the measure against exchanges, and the ranks."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedsaddle.array_types import Floats
from fedsaddle.metrics.intervals import t_interval
from fedsaddle.report.plots import COLOURS, axes_of, label, save
from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.suites.ranking import FEWEST, SMALLEST, Ranking, by_ratio
from fedsaddle_papers.suites.run import Results
from fedsaddle_papers.suites.suite import Task, falls
from fedsaddle_papers.suites.words import measure_in_words

STYLES = ("-", "--", ":")
BANDED = 3  # methods of the best ranks that have bands, beside the first method of the suite: more hide each other


def look(at: int) -> tuple[str, str]:
    """Colour and style of the method with that place in the ranking."""
    return COLOURS[at % len(COLOURS)], STYLES[at // len(COLOURS) % len(STYLES)]


def draw(results: Results, ranking: Ranking, path: Path) -> Path:
    """Draw all tasks and the ranks; methods in the order of their ranks."""
    tasks = results.suite.tasks
    columns = min(3, len(tasks) + 1)
    rows = ceil((len(tasks) + 1) / columns)
    canvas = Figure(figsize=(4.6 * columns, 3.6 * rows + 0.25 * ceil(len(ranking.ranks) / 4)), layout="constrained")
    panels = axes_of(canvas, rows, columns)
    for axes, task in zip(panels, tasks, strict=False):
        _draw_task(axes, task, results, list(ranking.ranks))
    _draw_ranks(panels[len(tasks)], ranking)
    for axes in panels[len(tasks) + 1 :]:
        axes.set_visible(False)
    found = {
        name: handle for axes in canvas.axes for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    order = [label(name) for name in ranking.ranks if label(name) in found]
    canvas.legend(
        [found[name] for name in order], order, loc="outside lower center", ncols=4, frameon=False, fontsize=8
    )
    bands = f", 95 % bands of {BANDED} and {label(results.suite.baseline)}" if results.suite.seeds >= FEWEST else ""
    short = ", quick: no conclusion can be drawn" if results.suite.quick else ""
    canvas.suptitle(f"{label(results.suite.question)} ({results.suite.seeds} seeds{bands}{short})", fontsize=10)
    return save(canvas, path)


def on_exchanges(runs: tuple[RunCurves, ...], column: str) -> tuple[Floats, Floats] | None:
    """Common exchanges, and the values of every seed there: the last that was measured; None without figures."""
    there = [run for run in runs if column in run.columns]
    if not there:
        return None
    places = [run.column("exchanges") for run in there]
    begin, end = max(own[0] for own in places), min(own[-1] for own in places)
    grid = np.unique(np.concatenate(places))
    grid = grid[(grid >= begin) & (grid <= end)]
    rows = [
        run.column(column)[np.searchsorted(own, grid, side="right") - 1] for run, own in zip(there, places, strict=True)
    ]
    return grid, np.stack(rows)


def mean_and_band(values: Floats, column: str) -> tuple[Floats, Floats, Floats]:
    """As in the table: the mean over seeds and its 95 % interval, of logarithms where ratios are compared.

    A band of ratios is drawn from a tenth to ten times the mean at the most, or it would hide all other methods.
    """
    if not by_ratio(column):
        return t_interval(values, share=not falls(column))
    with np.errstate(over="ignore"):
        mean, low, high = (np.exp(v) for v in t_interval(np.log(np.maximum(values, SMALLEST))))
    return mean, np.maximum(low, mean / 10), np.minimum(high, mean * 10)


def _draw_task(axes: Axes, task: Task, results: Results, order: list[str]) -> None:
    column, log = task.measures[0], falls(task.measures[0])
    for at, name in enumerate(order):
        found = on_exchanges(results.curves.get((task.name, name), ()), column)
        if found is None:
            continue
        colour, style = look(at)
        x, values = found
        mean, low, high = mean_and_band(values, column)
        axes.plot(x, mean, color=colour, ls=style, lw=1.3, label=label(name))
        if len(values) < FEWEST or (at >= BANDED and name != results.suite.baseline):
            continue
        axes.fill_between(x, low, high, color=colour, alpha=0.12, lw=0)
    axes.set(xlabel="exchanges", ylabel=measure_in_words(column), title=label(task.name))
    if log:
        axes.set_yscale("log")


def _draw_ranks(axes: Axes, ranking: Ranking) -> None:
    names = list(ranking.ranks)
    for at, rank in enumerate(ranking.ranks.values()):
        colour, _ = look(at)
        axes.plot([rank.low, rank.high], [at, at], color=colour, lw=2)
        axes.plot([rank.mean], [at], "o", color=colour, ms=5)
    axes.set_yticks(range(len(names)), [label(name) for name in names], fontsize=7)
    axes.invert_yaxis()
    axes.set(xlabel="mean rank, 1 is best (95 % over seeds)", title="over all tasks")

"""Plots of runs, drawn without a display and without matplotlib's global state."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedsaddle.atomic import write_atomically
from fedsaddle.errors import BadInput
from fedsaddle.metrics.target import main_part_name, pooled_part
from fedsaddle.shown import visible
from fedsaddle.writable import make_folder

UNITS = {
    "round": "round",
    "exchanges": "exchanges",
    "bytes_down": "bytes down",
    "bytes_up": "bytes up",
    "samples": "samples",
    "local_steps": "local steps",
    "seconds": "seconds in rounds",
}
COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#3c887e", "#7b5ea7", "#6b6b6b", "#2f4858", "#a26769")
History = Sequence[Mapping[str, Any]]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure atomically, in the format of the path's suffix; PNG without one.

    Raises:
        BadInput: if matplotlib does not write that format.
    """
    kind = path.suffix.lstrip(".").lower() or "png"
    if kind not in figure.canvas.get_supported_filetypes():
        raise BadInput("path", str(path), "has an unknown picture format; end the name in .png, .svg or .pdf")
    make_folder("path", path.parent)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=130)
    write_atomically(path, buffer.getvalue())
    return path


def label(name: str) -> str:
    """A name for matplotlib: visible, and with dollar signs escaped, as they would start a formula."""
    return visible(name).replace("$", r"\$")


def axes_of(figure: Figure, rows: int = 1, columns: int = 1, heights: Sequence[float] | None = None) -> list[Axes]:
    """The axes of a grid of panels, row by row, each with a light grid; `heights` of the rows, if not equal."""
    panels: list[Axes] = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).ravel().tolist()
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    return panels


def main_measure(history: History) -> tuple[str, str]:
    """The part and the measure to plot: ("test", "accuracy") where there are test rows and accuracies."""
    part = main_part_name(history[-1])
    return part, "accuracy" if "accuracy" in history[-1][part] else "loss"


def curve(history: History, statistic: str, measure: str, part: str) -> tuple[list[int], list[float]]:
    """The rounds, and the values of one statistic over the clients."""
    records = [r for r in history if part in r]
    return [r["round"] for r in records], [r[part][measure][statistic] for r in records]


def pooled(runs: Mapping[str, History], measure: str, path: Path, *, x: str = "round", title: str = "") -> Path:
    """Plot one pooled measure of one or several runs; logarithmic where it falls by a factor of 100.

    Args:
        runs: histories by name.
        measure: a key of the records' "pooled", or "pooled_validation" in a run with validation rows.
        path: the file to write.
        x: the cost on the x axis, a key of `UNITS`.
        title: above the plot.

    Raises:
        BadInput: for an unknown `x`, or a run without the measure.
    """
    if x not in UNITS:
        raise BadInput("x", x, f"choose one of {', '.join(UNITS)}")
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    (axes,) = axes_of(figure)
    lowest, highest = float("inf"), 0.0
    for (name, history), colour in zip(runs.items(), COLOURS * 3, strict=False):
        measures = pooled_part(history[-1])
        if measure not in measures:
            raise BadInput("measure", measure, f"the run {name!r} has {', '.join(measures) or 'no pooled measure'}")
        there = [r for r in history if measure in pooled_part(r)]  # of some rounds only bounds may be known
        values = [pooled_part(r)[measure] for r in there]
        axes.plot([r[x] for r in there], values, color=colour, label=label(name))
        lowest, highest = min(lowest, *values), max(highest, *values)
    if 0 < lowest < highest / 100:
        axes.set_yscale("log")
    axes.set(xlabel=UNITS[x], ylabel=measure.replace("_", " "), title=label(title))
    if len(runs) > 1:
        figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=9)
    return save(figure, path)


def progress(history: History, path: Path, title: str = "") -> Path:
    """Plot the worst, mean and best client over the rounds."""
    part, measure = main_measure(history)
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    (axes,) = axes_of(figure)
    rounds, best = curve(history, "best", measure, part)
    _, worst = curve(history, "worst", measure, part)
    axes.fill_between(rounds, worst, best, color=COLOURS[0], alpha=0.15, lw=0, label="worst to best client")
    axes.plot(*curve(history, "mean", measure, part), color=COLOURS[0], label="mean over clients")
    axes.plot(rounds, worst, color=COLOURS[1], label="worst client")
    axes.set(xlabel="round", ylabel=f"{part} {measure}", title=label(title))
    axes.legend(frameon=False)
    return save(figure, path)


def comparison(runs: Mapping[str, History], path: Path, title: str = "") -> Path:
    """Plot several runs over the rounds: the worst client, the mean and the standard deviation, a panel each."""
    part, measure = main_measure(next(iter(runs.values())))
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    panels = axes_of(figure, 1, 3)
    for axes, statistic, head in zip(
        panels, ("worst", "mean", "std"), ("worst client", "mean over clients", "standard deviation"), strict=True
    ):
        for (name, history), colour in zip(runs.items(), COLOURS * 3, strict=False):
            axes.plot(*curve(history, statistic, measure, part), color=colour, label=label(name))
        axes.set(xlabel="round", ylabel=f"{part} {measure}", title=head)
    panels[0].legend(frameon=False)
    figure.suptitle(label(title))
    return save(figure, path)


def clients(runs: Mapping[str, History], names: Sequence[str], path: Path) -> Path | None:
    """Plot the last evaluation of each run as a bar for each client; None without their values or with over 60."""
    part, measure = main_measure(next(iter(runs.values())))
    if any(part not in h[-1].get("clients", {}) for h in runs.values()) or len(names) > 60:
        return None
    figure = Figure(figsize=(max(6.4, 0.5 * len(names)), 4), layout="constrained")
    (axes,) = axes_of(figure)
    width = 0.8 / len(runs)
    for k, (name, history) in enumerate(runs.items()):
        values = [0.0 if v is None else v for v in history[-1]["clients"][part][measure]]
        axes.bar([i + k * width for i in range(len(values))], values, width, color=COLOURS[k % 8], label=label(name))
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(names))], [*map(label, names)], rotation=45, ha="right")
    axes.set(ylabel=f"{part} {measure}")
    axes.legend(frameon=False, ncols=len(runs), loc="lower left", bbox_to_anchor=(0, 1))
    return save(figure, path)


def mixture(history: History, names: Sequence[str], path: Path) -> Path | None:
    """Plot the mixture λ over the rounds; None if the algorithm has none."""
    records = [r for r in history if "mixture" in r]
    if not records:
        return None
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    (axes,) = axes_of(figure)
    rounds = [r["round"] for r in records]
    for i in range(len(records[0]["mixture"])):
        shown = label(names[i]) if len(names) <= 12 else None
        axes.plot(rounds, [r["mixture"][i] for r in records], color=COLOURS[i % 8], lw=1, label=shown)
    axes.set(xlabel="round", ylabel="mixture λ", title="weight of each client")
    if len(names) <= 12:
        axes.legend(frameon=False, fontsize=7, ncols=2)
    return save(figure, path)

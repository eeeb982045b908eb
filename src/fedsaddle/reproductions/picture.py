"""The plot of a reproduced figure: means over the seeds with 95 % bands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from fedsaddle.report.plots import COLOURS, axes_of, save
from fedsaddle.reproductions.figure import Ends, Figure, Line, Panel
from fedsaddle.reproductions.tracks import Floats, Track, Tracks, interval

_UNITS = {
    "round": "communication rounds",
    "exchanges": "exchanges",
    "bytes": "bytes down and up",
    "local_steps": "local iterations",
    "seconds": "seconds of simulation",
}


def draw(figure: Figure, tracks: Tracks, path: Path) -> Path:
    """All panels side by side."""
    columns = len(figure.panels) // figure.rows
    width, height = 4.6 * columns if columns > 1 else 6.8, 4.8 + 3.4 * (figure.rows - 1)
    canvas = Canvas(figsize=(width, height), layout="constrained")
    for axes, panel in zip(axes_of(canvas, figure.rows, columns), figure.panels, strict=True):
        if isinstance(panel, Ends):
            _ends(axes, panel, tracks)
        else:
            _lines(axes, panel, figure, tracks)
    found = {k: h for axes in canvas.axes for h, k in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = dict.fromkeys(line.legend or line.label for line in figure.lines)
    labels = [name for name in names if name in found]
    across = min(4 if columns > 1 else 3, len(labels))
    canvas.legend(
        [found[k] for k in labels], labels, loc="outside lower center", ncols=across, frameon=False, fontsize=9
    )
    windows = [panel.window for panel in figure.panels if isinstance(panel, Panel)]
    seeds, window = len(tracks[figure.lines[0].label]), max(windows, default=1)
    means = f", running means of {window} rounds" if window > 1 else ""
    canvas.suptitle(f"{figure.title} ({seeds} seeds, 95 % bands{means})", fontsize=10 if columns > 1 else 8)
    return save(canvas, path)


def _lines(axes: Any, panel: Panel, figure: Figure, tracks: Tracks) -> None:
    for line in figure.lines:
        if not panel.lines or line.label in panel.lines:
            _line(axes, panel, line, tracks[line.label])
    if panel.target is not None:
        axes.axhline(panel.target, color="#6b6b6b", lw=0.8, ls=":")
    axes.set(xlabel=_UNITS[panel.x], ylabel=panel.title)
    if panel.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))


def _ends(axes: Any, panel: Ends, tracks: Tracks) -> None:
    """Means of the last values with 95 % bars, a line for each series."""

    def last(label: str) -> Floats:
        return np.array([t.column(panel.y)[-1] for t in tracks[label]])

    base = last(panel.base) if panel.base else np.zeros(1)
    for colour, points in zip(COLOURS, panel.series.values(), strict=False):
        x = [number for number, _ in points]
        mean, low, high = interval(np.stack([last(label) - base for _, label in points], axis=1))
        axes.errorbar(x, mean, (mean - low, high - mean), color=colour, lw=1.4, marker="o", ms=4, capsize=3)
    axes.set(xlabel=panel.x, ylabel=panel.title)
    if panel.log:
        axes.set_xscale("log", base=2)
    numbers = sorted({number for points in panel.series.values() for number, _ in points})
    axes.set_xticks(numbers, [f"{number:g}" for number in numbers])
    if len(panel.series) > 1:
        axes.legend(axes.containers, list(panel.series), frameon=False, fontsize=9, loc="lower left")
    if panel.base:
        axes.axhline(0, color="#6b6b6b", lw=0.8, ls=":")


def _line(axes: Any, panel: Panel, line: Line, tracks: tuple[Track, ...]) -> None:
    x = np.mean([t.column(panel.x) for t in tracks], axis=0)
    mean, low, high = interval(np.stack([t.smooth(panel.y, panel.window) for t in tracks]))
    colour = COLOURS[line.colour]
    axes.plot(x, mean, color=colour, ls=line.style, lw=1.4, label=line.legend or line.label)
    floor = mean / 10 if panel.log else np.zeros_like(mean)  # nothing here is negative, and logarithms end above 0
    ceiling = np.inf if panel.log or "loss" in panel.y else 1.0  # shares end at 1
    low, high = np.maximum(low, floor), np.minimum(high, ceiling)
    axes.fill_between(x, low, high, color=colour, alpha=0.12, lw=0)

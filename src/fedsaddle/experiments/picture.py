"""The plot of a reproduced figure: means over the seeds with 95 % bands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Canvas

from fedsaddle.experiments.figure import Figure, Line, Panel
from fedsaddle.experiments.tracks import Track, Tracks, interval
from fedsaddle.report.plots import COLOURS, axes_of, save

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
    found = {k: h for axes in canvas.axes for h, k in zip(*axes.get_legend_handles_labels(), strict=True)}
    labels = [line.label for line in figure.lines if line.label in found]
    across = min(4 if columns > 1 else 3, len(labels))
    canvas.legend(
        [found[k] for k in labels], labels, loc="outside lower center", ncols=across, frameon=False, fontsize=9
    )
    seeds, window = len(tracks[figure.lines[0].label]), max(panel.window for panel in figure.panels)
    means = f", running means of {window} rounds" if window > 1 else ""
    canvas.suptitle(f"{figure.title} ({seeds} seeds, 95 % bands{means})", fontsize=10 if columns > 1 else 8)
    return save(canvas, path)


def _line(axes: Any, panel: Panel, line: Line, tracks: tuple[Track, ...]) -> None:
    x = np.mean([t.column(panel.x) for t in tracks], axis=0)
    mean, low, high = interval(np.stack([t.smooth(panel.y, panel.window) for t in tracks]))
    colour = COLOURS[line.colour]
    axes.plot(x, mean, color=colour, ls=line.style, lw=1.4, label=line.label)
    floor = mean / 10 if panel.log else np.zeros_like(mean)  # nothing here is negative, and logarithms end above 0
    ceiling = np.inf if panel.log or "loss" in panel.y else 1.0  # shares end at 1
    low, high = np.maximum(low, floor), np.minimum(high, ceiling)
    axes.fill_between(x, low, high, color=colour, alpha=0.12, lw=0)

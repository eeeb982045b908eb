"""The output of a reproduction: results.json, plot.png, a table for the terminal and JSON lines."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from rich.table import Table

from fedsaddle import __version__
from fedsaddle.array_types import Floats
from fedsaddle.files import make_folder, write_atomically
from fedsaddle.metrics.intervals import t_interval
from fedsaddle.report.page.render import render
from fedsaddle.report.plots import COLOURS, axes_of, save
from fedsaddle_papers.reproductions.claims import Claim
from fedsaddle_papers.reproductions.curves import RunCurves, Runs
from fedsaddle_papers.reproductions.effects import Judged
from fedsaddle_papers.reproductions.figure import Figure, FinalValues, Line, Panel
from fedsaddle_papers.reproductions.page import COSTS, reproduction_page
from fedsaddle_papers.reproductions.stored import SUMMARY

REPORT = "report.html"


@dataclass(frozen=True)
class Outcome:
    """A figure that has been run: its curves, the verdicts on its sentences and the secondary claims.

    A quick run has measurements, but no verdicts, on whatever it prints and writes.
    """

    name: str
    figure: Figure
    runs: Runs
    sentences: list[Judged]
    claims: list[Claim]
    seconds: float = 0.0
    quick: bool = False
    notes: tuple[str, ...] = ()

    @property
    def no_verdict(self) -> dict[str, None]:
        """What overwrites the verdicts of a quick run, which has too few seeds for any."""
        return {"verdict": None} if self.quick else {}


def write(done: Outcome, folder: Path) -> None:
    """Write results.json, summary.json (the same without curves), plot.png and report.html to `folder`."""
    make_folder("out", folder)
    content = results(done)
    write_atomically(folder / "results.json", json.dumps(content, ensure_ascii=False).encode())
    brief = {k: v for k, v in content.items() if k != "runs"}
    write_atomically(folder / SUMMARY, json.dumps(brief, ensure_ascii=False, indent=1).encode())
    draw(done.figure, done.runs, folder / "plot.png")
    page = reproduction_page(done.figure, done.runs, done.sentences, done.claims, content)
    write_atomically(folder / REPORT, render(page).encode())


def results(done: Outcome) -> dict[str, Any]:
    """The whole reproduction as plain JSON: settings, versions, date, machine, verdicts and the curves of every run."""
    figure, runs = done.figure, done.runs
    return {
        "name": done.name,
        "title": figure.title,
        "source": figure.source,
        "quick": done.quick,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
        "versions": {
            "fedsaddle": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("torch", "numpy", "scipy")},
        },
        "seconds": round(done.seconds, 1),
        "processor_minutes": round(sum(c.processor for own in runs.by_label.values() for c in own) / 60, 1),
        "seeds": runs.seeds,
        "looks": list(figure.all_looks),
        "notes": list(done.notes),
        "setting": asdict(figure.setting),
        "lines": [asdict(line) for line in figure.lines],
        "sentences": [judged.to_dict() | done.no_verdict for judged in done.sentences],
        "claims": [claim.to_dict() | done.no_verdict for claim in done.claims],
        "runs": [
            {
                "label": label,
                "seed": curves.seed,
                "columns": curves.columns,
                "diverged": curves.diverged,
                "selected": curves.selected,
            }
            for label, seeds in runs.by_label.items()
            for curves in seeds
        ],
    }


def table(done: Outcome) -> Table:
    """The sentences and the secondary claims beside the measurements, for the terminal."""
    shown = Table(title=f"{done.figure.title}\n{done.figure.source}", title_justify="left", show_lines=True)
    for head in ("claim", "paper", "measured", *(() if done.quick else ("verdict",))):
        shown.add_column(head, overflow="fold")
    for judged in done.sentences:
        verdict = () if done.quick else (judged.finding.verdict,)
        shown.add_row(judged.hypothesis.sentence, judged.hypothesis.place, judged.measured, *verdict)
    for claim in done.claims:
        verdict = () if done.quick else (f"{claim.verdict} (secondary)",)
        shown.add_row(claim.claim, claim.paper, claim.measured, *verdict)
    return shown


def draw(figure: Figure, runs: Runs, path: Path) -> Path:
    """Draw all panels side by side: means over the seeds with 95 % bands."""
    columns = len(figure.panels) // figure.rows
    width, height = 4.6 * columns if columns > 1 else 6.8, 4.8 + 3.4 * (figure.rows - 1)
    canvas = Canvas(figsize=(width, height), layout="constrained")
    for axes, panel in zip(axes_of(canvas, figure.rows, columns), figure.panels, strict=True):
        if isinstance(panel, FinalValues):
            _draw_final_values(axes, panel, runs)
        else:
            _draw_panel(axes, panel, figure, runs)
    _add_legend(canvas, figure, across=4 if columns > 1 else 3)
    windows = [panel.window for panel in figure.panels if isinstance(panel, Panel)]
    seeds, window = len(runs[figure.lines[0].label]), max(windows, default=1)
    means = f", running means of {window} rounds" if window > 1 else ""
    canvas.suptitle(f"{figure.title} ({seeds} seeds, 95 % bands{means})", fontsize=10 if columns > 1 else 8)
    return save(canvas, path)


def _add_legend(canvas: Canvas, figure: Figure, across: int) -> None:
    """One legend for all panels, in the order of the lines, with up to `across` columns."""
    handles = {k: h for axes in canvas.axes for h, k in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = dict.fromkeys(line.legend or line.label for line in figure.lines)
    labels = [name for name in names if name in handles]
    canvas.legend(
        [handles[k] for k in labels],
        labels,
        loc="outside lower center",
        ncols=min(across, len(labels)),
        frameon=False,
        fontsize=9,
    )


def _draw_panel(axes: Axes, panel: Panel, figure: Figure, runs: Runs) -> None:
    for line in figure.lines:
        if not panel.lines or line.label in panel.lines:
            _draw_line(axes, panel, line, runs[line.label])
    if panel.target is not None:
        axes.axhline(panel.target, color="#6b6b6b", lw=0.8, ls=":")
    axes.set(xlabel=COSTS[panel.x], ylabel=panel.title)
    if panel.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))


def _draw_line(axes: Axes, panel: Panel, line: Line, seeds: tuple[RunCurves, ...]) -> None:
    x = np.mean([curves.column(panel.x) for curves in seeds], axis=0)
    share = not panel.log and "loss" not in panel.y  # accuracies and AUCs
    rows = np.stack([curves.running_mean(panel.y, panel.window) for curves in seeds])
    mean, low, high = t_interval(rows, share=share)
    colour = COLOURS[line.colour]
    axes.plot(x, mean, color=colour, ls=line.style, lw=1.4, label=line.legend or line.label)
    floor = mean / 10 if panel.log else np.zeros_like(mean)  # no metric is negative, and a logarithm needs more than 0
    axes.fill_between(x, np.maximum(low, floor), high, color=colour, alpha=0.12, lw=0)


def _draw_final_values(axes: Axes, panel: FinalValues, runs: Runs) -> None:
    """Means of the last values with 95 % bars, a curve for each series."""

    def last(label: str) -> Floats:
        return np.array([curves.column(panel.y)[-1] for curves in runs[label]])

    base = last(panel.base) if panel.base else np.zeros(1)
    for colour, points in zip(COLOURS, panel.series.values(), strict=False):
        x = [number for number, _ in points]
        mean, low, high = t_interval(np.stack([last(label) - base for _, label in points], axis=1))
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

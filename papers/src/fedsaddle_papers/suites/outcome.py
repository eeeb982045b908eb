"""The files of a benchmark: results.json, summary.json, table.md, table.csv, plot.png and report.html."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.table import Table

from fedsaddle import __version__
from fedsaddle.files import make_folder, write_atomically
from fedsaddle.report.page.render import render
from fedsaddle.text import safe_cell, visible
from fedsaddle_papers.suites.page import benchmark_page
from fedsaddle_papers.suites.pictures import draw
from fedsaddle_papers.suites.ranking import Ranking, plain
from fedsaddle_papers.suites.run import Results
from fedsaddle_papers.suites.suite import Task, actual
from fedsaddle_papers.suites.words import HEADS, measure_in_words, rank_rows

RESULTS, SUMMARY, REPORT, PLOT = "results.json", "summary.json", "report.html", "plot.png"


def write(results: Results, ranking: Ranking, folder: Path) -> dict[str, Any]:
    """Write all files to `folder`; returns the summary."""
    make_folder("out", folder)
    summary = summary_of(results, ranking)
    write_atomically(folder / RESULTS, _json({**summary, "runs": _runs(results)}))
    write_atomically(folder / SUMMARY, _json(summary, indent=1))
    write_atomically(folder / "table.md", f"{markdown(summary)}\n".encode())
    write_atomically(folder / "table.csv", comma_separated(summary).encode())
    draw(results, ranking, folder / PLOT)
    write_atomically(folder / REPORT, render(benchmark_page(results, ranking, summary)).encode())
    return summary


def summary_of(results: Results, ranking: Ranking) -> dict[str, Any]:
    """The whole benchmark as plain JSON, but for the curves."""
    suite = results.suite
    return {
        "suite": suite.name,
        "question": suite.question,
        "quick": suite.quick,
        "part": suite.part,
        "asked": suite.asked,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "processor": platform.machine()},
        "versions": {
            "fedsaddle": __version__,
            "python": platform.python_version(),
            **{package: version(package) for package in ("torch", "numpy", "scipy")},
        },
        "seconds": round(results.seconds, 1),
        "processor_minutes": round(results.processor / 60, 1),
        "seeds": suite.seeds,
        "candidates": suite.budget,
        "tuning_seeds": len(suite.tuning_seeds),
        "tuning_share": suite.tuning_share,
        "about": {task.name: task.about for task in suite.tasks},
        "exchanges": {task.name: task.exchanges for task in suite.tasks},
        "chosen": {
            task.name: {m.label: _chosen(results, task, m.label) for m in suite.methods} for task in suite.tasks
        },
        "notes": results.notes,
        **plain(ranking, results),
    }


def _chosen(results: Results, task: Task, label: str) -> dict[str, Any] | None:
    found = results.tuned[task.name, label].chosen
    return None if found is None else actual(task, found)


def _runs(results: Results) -> list[dict[str, Any]]:
    return [
        {"task": task, "method": method, "seed": c.seed, "columns": c.columns, "diverged": c.diverged}
        for (task, method), own in results.curves.items()
        for c in own
    ]


def _json(content: Mapping[str, Any], indent: int | None = None) -> bytes:
    return json.dumps(_finite(content), ensure_ascii=False, indent=indent, allow_nan=False).encode()


def _finite(value: Any) -> Any:
    """With null in the place of what is not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def markdown(summary: Mapping[str, Any]) -> str:
    """Ranks and figures as tables of Markdown."""
    names = [task["task"] for task in summary["tasks"]]
    measures = ", ".join(f"{t['task']}: {measure_in_words(t['measure'])}" for t in summary["tasks"])
    head = [*HEADS[:2], *names, *HEADS[2:]]
    rows = ["| " + " | ".join(map(_cell, head)) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    for label, rank, figures, costs in rank_rows(summary):
        shown = [f"**{text}**" if bold else text for text, bold in figures]
        rows.append("| " + " | ".join(_cell(cell) for cell in (label, rank, *shown, *costs)) + " |")
    return "\n".join([*rows, "", f"Measured: {_cell(measures)}. Bold: the best, or not distinguishable from it."])


def comma_separated(summary: Mapping[str, Any]) -> str:
    """One row a task and method."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    costs = ("exchanges", "bytes", "local_steps", "seconds")
    table.writerow(["task", "measure", "method", "mean", "low", "high", "near_best", "mean_rank", *costs, "diverged"])
    for task in summary["tasks"]:
        for label, own in task["methods"].items():
            numbers = [own["mean"], own["low"], own["high"]]
            cells = [task["task"], task["measure"], label, *numbers, own["near_best"]]
            cells += [summary["ranks"][label]["rank"], *(own.get(key) for key in costs), own["diverged"]]
            table.writerow([safe_cell(visible("" if c is None else str(c))) for c in cells])
    return text.getvalue()


def terminal_table(summary: Mapping[str, Any]) -> Table:
    """For the terminal: the best first."""
    title = f"{summary['suite']}: {summary['question']}"
    shown = Table(title=title, title_justify="left")
    for head in (*HEADS[:2], *(task["task"] for task in summary["tasks"]), *HEADS[2:]):
        shown.add_column(visible(head), overflow="fold", justify="left" if head == HEADS[0] else "right")
    for label, rank, figures, costs in rank_rows(summary):
        marked = [f"[bold]{text} *[/bold]" if bold else text for text, bold in figures]
        shown.add_row(visible(label), rank, *marked, *costs)
    return shown


def _cell(text: str) -> str:
    return visible(text).replace("|", "\\|")


def stored_summary(folder: Path) -> dict[str, Any] | None:
    """The summary in a folder; None if there is none, or it was a quick one or a part."""
    try:
        found = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        return None if found["quick"] or found["part"] else dict(found)
    except (OSError, ValueError, KeyError, TypeError):
        return None

"""`fedsaddle compare`: print and plot finished runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsaddle.commands.documents import SCHEMA, CompareDocument
from fedsaddle.commands.output import output
from fedsaddle.errors import BadInput
from fedsaddle.metrics.target import main_part_name
from fedsaddle.report import plots
from fedsaddle.report.paired import SideBySide, client_figures, row_figures, side_by_side
from fedsaddle.report.sections.numbers import DAMAGED
from fedsaddle.report.stored_run import StoredRun, read_run
from fedsaddle.report.tables import several_runs
from fedsaddle.runs.folder import RunFolder
from fedsaddle.shown import visible
from fedsaddle.writable import require_folder


def compare(
    folders: list[Path],
    out: Path | None,
    measure: str | None = None,
    x: str = "round",
    html: Path | None = None,
) -> None:
    """Print finished runs side by side, plot them, and write a page about them.

    Args:
        folders: the folders of the runs.
        out: the file of the plot, or of the page if it ends in .html; None for no plot.
        measure: a pooled measure to plot; None plots the worst client, the mean and the standard deviation.
        x: the cost on the x axis of a pooled measure.
        html: the file of the page, in which every run is compared with the first in pairs; None for no page.

    Raises:
        MissingData: if a folder contains no finished run.
        BadInput: if the runs have different measures and not all of them an AUROC, or a summary is damaged.
    """
    if out is not None and out.suffix.lower() in (".html", ".htm"):
        out, html = None, html or out
    for key, file in (("out", out), ("html", html)):
        if file is not None:
            require_folder(key, file.parent)
    summaries: dict[str, dict[str, Any]] = {}
    histories: dict[str, list[dict[str, Any]]] = {}
    runs: dict[str, StoredRun] = {}
    for folder in map(RunFolder, folders):
        summary, history = folder.read_finished()
        name = folder.path.resolve().name
        name = name if name not in summaries else str(folder.path)
        summaries[name], histories[name] = summary, history
        runs[name] = replace(read_run(folder.path), summary=summary)
        _check(folder, runs[name], history)
    compared = side_by_side(runs)
    if compared.measure is None:
        if not _all_ranked(compared) and len({plots.main_measure(h) for h in histories.values()}) > 1:
            raise BadInput("folders", [str(f) for f in folders], "have different measures; compare runs of one problem")
        if out is not None and measure is None and not _all_ranked(compared):
            raise BadInput(
                "out", str(out), "the runs have different problems; name a pooled measure to plot: --measure"
            )
        measure = measure or "auroc"
    screen = output.screen()
    screen.print(several_runs(summaries, compared))
    for note in compared.notes:
        screen.print(note, highlight=False, markup=False, soft_wrap=True)
    if out is not None:
        if measure is None:
            plots.comparison(histories, out)
        else:
            plots.pooled(histories, measure, out, x=x)
    if html is not None:
        _write_page(runs, html)
    document: CompareDocument = {
        "schema": SCHEMA,
        "command": "compare",
        "runs": summaries,
        "measure": compared.measure,
        "figures": {name: {**side.rows, **side.clients} for name, side in compared.sides.items()},
        "notes": list(compared.notes),
        "picture": None if out is None else str(out),
        "page": None if html is None else str(html),
    }
    output.emit(document)


def _all_ranked(compared: SideBySide) -> bool:
    return all("auroc" in side.rows for side in compared.sides.values())


def _write_page(runs: Mapping[str, StoredRun], html: Path) -> None:
    from fedsaddle.report.comparison_page import write_comparison

    if html.is_dir():
        raise BadInput("html", str(html), "is a folder; name a file in it, such as comparison.html")
    if len(runs) < 2:
        raise BadInput("folders", len(runs), "a page compares at least two runs; name another folder")
    write_comparison(runs, html)
    output.screen().print(f"report: {visible(html)}", highlight=False, markup=False, soft_wrap=True)


def _check(folder: RunFolder, run: StoredRun, history: list[dict[str, Any]]) -> None:
    """Refuse a run whose files lack figures, or hold something else in their place."""
    remedy = "lacks figures that a run writes; its {} is damaged or of another version"
    try:
        several_runs({"run": run.summary}, side_by_side({"run": run}))
        row_figures(run)
        client_figures(run, "accuracy" if "accuracy" in run.summary[main_part_name(run.summary)] else "loss")
    except DAMAGED:
        raise BadInput("folders", str(folder.path), remedy.format("summary.json")) from None
    try:
        part, measure = plots.main_measure(history)
        for statistic in ("worst", "mean", "std"):
            for value in plots.curve(history, statistic, measure, part)[1]:
                float(value)
        for record in history:
            for value in record.get("pooled", {}).values():
                float(value)
            for value in (record[unit] for unit in plots.UNITS):
                float(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BadInput("folders", str(folder.path), remedy.format("metrics.jsonl")) from None

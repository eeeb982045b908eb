"""`fedsaddle compare`: print and plot finished runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsaddle.commands.documents import SCHEMA, CompareDocument
from fedsaddle.commands.output import output
from fedsaddle.errors import BadInput
from fedsaddle.report import plots
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
    paths: dict[str, Path] = {}
    for folder in map(RunFolder, folders):
        summary, history = folder.read_finished()
        _check(folder, summary, history)
        name = folder.path.resolve().name
        name = name if name not in summaries else str(folder.path)
        summaries[name], histories[name], paths[name] = summary, history, folder.path
    measures = {plots.main_measure(h) for h in histories.values()}
    if len(measures) > 1:
        if not all("auroc" in s.get("pooled", {}) for s in summaries.values()):
            raise BadInput("folders", [str(f) for f in folders], "have different measures; compare runs of one problem")
        measure = measure or "auroc"
    output.screen().print(several_runs(summaries))
    if out is not None:
        if measure is None:
            plots.comparison(histories, out)
        else:
            plots.pooled(histories, measure, out, x=x)
    if html is not None:
        _write_page(paths, html)
    document: CompareDocument = {
        "schema": SCHEMA,
        "command": "compare",
        "runs": summaries,
        "picture": None if out is None else str(out),
        "page": None if html is None else str(html),
    }
    output.emit(document)


def _write_page(paths: dict[str, Path], html: Path) -> None:
    from fedsaddle.report.comparison_page import write_comparison
    from fedsaddle.report.stored_run import read_run

    if html.is_dir():
        raise BadInput("html", str(html), "is a folder; name a file in it, such as comparison.html")
    if len(paths) < 2:
        raise BadInput("folders", len(paths), "a page compares at least two runs; name another folder")
    write_comparison({name: read_run(path) for name, path in paths.items()}, html)
    output.screen().print(f"report: {visible(html)}", highlight=False, markup=False, soft_wrap=True)


def _check(folder: RunFolder, summary: dict[str, Any], history: list[dict[str, Any]]) -> None:
    """Refuse a run whose files lack figures, or hold something else in their place."""
    remedy = "lacks figures that a run writes; its {} is damaged or of another version"
    try:
        several_runs({"run": summary})
    except (KeyError, TypeError, ValueError, AttributeError):
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

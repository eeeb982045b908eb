"""`fedsaddle compare`: print and plot finished runs side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedsaddle.errors import BadInput
from fedsaddle.report import plots
from fedsaddle.report.tables import console, several_runs
from fedsaddle.runs.folder import RunFolder


def compare(folders: list[Path], out: Path | None, as_json: bool, measure: str | None = None, x: str = "round") -> None:
    """Print finished runs side by side and plot them.

    Args:
        folders: the folders of the runs.
        out: the file of the plot; None for no plot.
        as_json: print the summaries as JSON instead of a table.
        measure: a pooled measure to plot; None plots the worst client, the mean and the standard deviation.
        x: the cost on the x axis of a pooled measure.

    Raises:
        MissingData: if a folder contains no finished run.
        BadInput: if the runs have different measures and not all of them an AUROC, or a summary is damaged.
    """
    summaries: dict[str, dict[str, Any]] = {}
    histories: dict[str, list[dict[str, Any]]] = {}
    for folder in map(RunFolder, folders):
        summary, history = folder.read_summary(), folder.history()
        name = folder.path.resolve().name
        name = name if name not in summaries else str(folder.path)
        summaries[name], histories[name] = summary, history
    measures = {plots.main_measure(h) for h in histories.values()}
    if len(measures) > 1:
        if not all("auroc" in s.get("pooled", {}) for s in summaries.values()):
            raise BadInput("folders", [str(f) for f in folders], "have different measures; compare runs of one problem")
        measure = measure or "auroc"
    if as_json:
        print(json.dumps(summaries, indent=2))
    else:
        console().print(several_runs(summaries))
    if out is not None:
        if measure is None:
            plots.comparison(histories, out)
        else:
            plots.pooled(histories, measure, out, x=x)

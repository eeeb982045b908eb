"""`fedsaddle compare`: print and plot finished runs side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsaddle.commands.documents import SCHEMA, CompareDocument
from fedsaddle.commands.options import OUTPUT, usable
from fedsaddle.commands.output import JsonOption, output
from fedsaddle.errors import BadInput
from fedsaddle.files import Record, require_folder
from fedsaddle.processes import loading
from fedsaddle.text import visible

if TYPE_CHECKING:
    from fedsaddle.documents.summary import RunSummary, SearchSummary
    from fedsaddle.report.paired import SideBySide
    from fedsaddle.report.stored_run import StoredRun


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="Folders of runs.", callback=usable)],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a plot here, or a page if the name ends in .html.",
            show_default=False,
            callback=usable,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a page that compares every run with the first.",
            show_default=False,
            callback=usable,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    measure: Annotated[
        str | None, typer.Option(metavar="NAME", help="Plot this pooled measure.", show_default=False)
    ] = None,
    x: Annotated[
        str, typer.Option(metavar="NAME", help="The x axis: round, exchanges, bytes_up, seconds ...")
    ] = "round",
    as_json: JsonOption = False,
) -> None:
    """Compare runs: final metrics, cost, a plot and a page."""
    with loading():
        from fedsaddle.report import plots
        from fedsaddle.report.paired import side_by_side
        from fedsaddle.report.stored_run import read_run
        from fedsaddle.report.tables import several_runs
        from fedsaddle.runs.folder import RunFolder

    if out is not None and out.suffix.lower() in (".html", ".htm"):
        out, html = None, html or out
    for key, file in (("out", out), ("html", html)):
        if file is not None:
            require_folder(key, file.parent)
    summaries: dict[str, RunSummary | SearchSummary] = {}
    histories: dict[str, list[Record]] = {}
    runs: dict[str, StoredRun] = {}
    for folder in map(RunFolder, folders):
        summary, history = folder.read_finished()
        name = folder.path.resolve().name
        name = name if name not in summaries else str(folder.path)
        summaries[name], histories[name] = summary, history
        runs[name] = read_run(folder.path)
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
        "runs": {name: summary.to_dict() for name, summary in summaries.items()},
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
    from fedsaddle.report.comparison import write_comparison

    if html.is_dir():
        raise BadInput("html", str(html), "is a folder; name a file in it, such as comparison.html")
    if len(runs) < 2:
        raise BadInput("folders", len(runs), "a page compares at least two runs; name another folder")
    write_comparison(runs, html)
    output.screen().print(f"report: {visible(html)}", highlight=False, markup=False, soft_wrap=True)

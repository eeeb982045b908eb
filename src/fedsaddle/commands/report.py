"""`fedsaddle report` and `check-release`, for finished runs, and the report and the document that end a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedsaddle.commands.documents import SCHEMA, CheckReleaseDocument, ReportDocument, RunDocument
from fedsaddle.commands.options import usable
from fedsaddle.commands.output import JsonOption, QuietOption, output
from fedsaddle.errors import MissingData
from fedsaddle.processes import loading
from fedsaddle.text import visible

if TYPE_CHECKING:
    from rich.console import Console

    from fedsaddle.documents.summary import Summary
    from fedsaddle.metrics.ranking import Ranking


def print_report(
    folder: Path,
    screen: Console,
    errors: Console,
    table: Path | None = None,
    rankings: Mapping[str, Ranking] | None = None,
) -> Path | None:
    """Write provenance.json, make the report, print and return its path; None with a warning if it fails.

    Args:
        folder: The run's folder.
        screen: For the path.
        errors: For warnings.
        table: The file whose rows were used.
        rankings: Of the test rows by model, if they are in memory.
    """

    from fedsaddle.report.run_report import report_or_warning
    from fedsaddle.runs.closing import write_provenance

    def say(to: Console, line: str) -> None:
        to.print(line, highlight=False, markup=False, soft_wrap=True)

    write_provenance(folder, table)
    path = report_or_warning(folder, lambda text: say(errors, f"warning: {text}"), rankings)
    if path is not None:
        say(screen, f"report: {visible(path)}")
    return path


def emit_run(
    kind: Literal["simulation", "search", "deployed"],
    folder: Path,
    page: Path | None,
    summary: Summary,
    command: str = "run",
) -> None:
    """Print the document of a run, if it is wanted."""
    document: RunDocument = {
        "schema": SCHEMA,
        "command": command,
        "kind": kind,
        "folder": str(folder),
        "report": None if page is None else str(page),
        "summary": summary.to_dict(),
    }
    output.emit(document)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.", callback=usable)],
    pdf: Annotated[
        bool, typer.Option("--pdf", metavar="", help="Write report.pdf too; needs Chromium or Chrome.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write report.html and MODEL_CARD.md of a run again."""
    with loading():
        from fedsaddle.report.run_report import write_pdf, write_report

    if not folder.is_dir():
        raise MissingData(f"{visible(folder)!r}: there is no such folder; name the folder that a run wrote to")
    errors = output.errors()

    def warn(text: str) -> None:
        errors.print(f"warning: {visible(text)}", highlight=False, markup=False, soft_wrap=True)

    screen, page, printed = output.screen(), write_report(folder, warn), None
    screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    if pdf:
        printed = write_pdf(page, page.with_suffix(".pdf"))
        screen.print(f"report: {visible(printed)}", highlight=False, markup=False, soft_wrap=True)
    document: ReportDocument = {
        "schema": SCHEMA,
        "command": "report",
        "folder": str(folder),
        "report": str(page),
        "pdf": None if printed is None else str(printed),
    }
    output.emit(document)


def check_release(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.", callback=usable)],
    shadows: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Shadow models to train; at least 2, by default 16.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Random seed of the shadow models.")] = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Attack a model before release: can training rows be distinguished from others?

    Exit code 1 if an attack by membership inference is better than chance. Needs the rows of the run, where they were.
    """
    with loading():
        from rich.table import Table

        from fedsaddle.commands.progress import ModelsProgress
        from fedsaddle.documents.stored import SHADOWS
        from fedsaddle.report.run_report import report_or_warning
        from fedsaddle.report.sections.disclosure import verdict
        from fedsaddle.studies.release_check import check_release as check

    if not folder.is_dir():
        raise MissingData(f"{visible(folder)!r}: there is no such folder; name the folder that a run wrote to")
    count = SHADOWS if shadows is None else shadows
    screen, errors = output.screen(), output.errors()
    with ModelsProgress("shadow models") as progress:
        found = check(folder, count, seed, progress)
    shown = Table("attack", "AUROC", "95 % interval", title="Membership inference of training rows")
    for name, auroc in found.attacks.items():
        low, high = auroc.interval or (0.0, 1.0)
        shown.add_row(name, f"{auroc.value:.4f}", f"[{low:.3f}, {high:.3f}]".replace("[", "\\["))
    screen.print(shown)
    screen.print(verdict(found), highlight=False, markup=False, soft_wrap=True)

    def warn(text: str) -> None:
        errors.print(f"warning: {visible(text)}", highlight=False, markup=False, soft_wrap=True)

    page = report_or_warning(folder, warn)
    if page is not None:
        screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    document: CheckReleaseDocument = {
        "schema": SCHEMA,
        "command": "check-release",
        "folder": str(folder),
        "report": None if page is None else str(page),
        "successful": found.successful,
        "check": found.to_dict(),
    }
    output.emit(document)
    raise typer.Exit(bool(found.successful))

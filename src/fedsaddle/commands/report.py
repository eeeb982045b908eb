"""`fedsaddle report`: make the report of a run again."""

from __future__ import annotations

from pathlib import Path

from fedsaddle.commands.documents import SCHEMA, ReportDocument
from fedsaddle.commands.output import output
from fedsaddle.errors import MissingData
from fedsaddle.report.run_report import write_report
from fedsaddle.shown import visible


def report(folder: Path, pdf: bool) -> None:
    """Make report.html and MODEL_CARD.md in the folder of a run, and report.pdf on request."""
    if not folder.is_dir():
        raise MissingData(f"{visible(folder)!r}: there is no such folder; name the folder that a run wrote to")
    errors = output.errors()

    def warn(text: str) -> None:
        errors.print(f"warning: {visible(text)}", highlight=False, markup=False, soft_wrap=True)

    screen, page, printed = output.screen(), write_report(folder, warn), None
    screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    if pdf:
        from fedsaddle.report.pdf import write_pdf

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

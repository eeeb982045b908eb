"""`fedsaddle report`: make the report of a run again."""

from __future__ import annotations

from pathlib import Path

from fedsaddle.errors import MissingData
from fedsaddle.report.run_report import write_report
from fedsaddle.report.tables import console
from fedsaddle.shown import visible


def report(folder: Path, pdf: bool) -> None:
    """Make report.html and MODEL_CARD.md in the folder of a run, and report.pdf on request."""
    if not folder.is_dir():
        raise MissingData(f"{visible(folder)!r}: there is no such folder; name the folder that a run wrote to")
    screen, page = console(), write_report(folder)
    screen.print(f"report: {visible(page)}", highlight=False, markup=False, soft_wrap=True)
    if pdf:
        from fedsaddle.report.pdf import write_pdf

        printed = write_pdf(page, page.with_suffix(".pdf"))
        screen.print(f"report: {visible(printed)}", highlight=False, markup=False, soft_wrap=True)

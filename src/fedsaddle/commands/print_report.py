"""Make report.html at the end of a command, and say where it is."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fedsaddle.report.run_report import report_or_warning
from fedsaddle.runs.provenance import write_provenance
from fedsaddle.shown import visible


def print_report(folder: Path, screen: Console, errors: Console, table: Path | None = None) -> None:
    """Write with what the run was made, make its report and print its path; a failing report is a line of warning.

    `table` is the file whose rows were used.
    """

    def say(to: Console, line: str) -> None:
        to.print(line, highlight=False, markup=False, soft_wrap=True)

    write_provenance(folder, table)
    path = report_or_warning(folder, lambda text: say(errors, f"warning: {text}"))
    if path is not None:
        say(screen, f"report: {visible(path)}")

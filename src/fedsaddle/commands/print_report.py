"""Make report.html at the end of a command, and say where it is."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from fedsaddle.report.run_report import report_or_warning
from fedsaddle.shown import visible


def print_report(folder: Path, screen: Console, errors: Console) -> None:
    """Make the report of a run and print its path; a report that cannot be made is a line of warning."""

    def say(to: Console, line: str) -> None:
        to.print(line, highlight=False, markup=False, soft_wrap=True)

    path = report_or_warning(folder, lambda text: say(errors, f"warning: {text}"))
    if path is not None:
        say(screen, f"report: {visible(path)}")

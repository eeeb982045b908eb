"""Make report.html at the end of a command, and say where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from fedsaddle.commands.documents import SCHEMA, RunDocument
from fedsaddle.commands.output import output
from fedsaddle.report.run_report import report_or_warning
from fedsaddle.runs.provenance import write_provenance
from fedsaddle.shown import visible


def print_report(folder: Path, screen: Console, errors: Console, table: Path | None = None) -> Path | None:
    """Write with what the run was made, make its report, print and return its path; it may fail with a warning.

    `table` is the file whose rows were used.
    """

    def say(to: Console, line: str) -> None:
        to.print(line, highlight=False, markup=False, soft_wrap=True)

    write_provenance(folder, table)
    path = report_or_warning(folder, lambda text: say(errors, f"warning: {text}"))
    if path is not None:
        say(screen, f"report: {visible(path)}")
    return path


def emit_run(
    kind: Literal["simulation", "search", "deployed"],
    folder: Path,
    page: Path | None,
    summary: dict[str, Any],
    command: str = "run",
) -> None:
    """Print the document of a run, if it is wanted."""
    document: RunDocument = {
        "schema": SCHEMA,
        "command": command,
        "kind": kind,
        "folder": str(folder),
        "report": None if page is None else str(page),
        "summary": summary,
    }
    output.emit(document)

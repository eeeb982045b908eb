"""`fedsaddle check-release`: may a model be handed on?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsaddle.commands.documents import SCHEMA, CheckReleaseDocument
from fedsaddle.commands.options import usable
from fedsaddle.commands.output import JsonOption, QuietOption, output
from fedsaddle.errors import MissingData
from fedsaddle.processes import loading
from fedsaddle.text import visible


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
    """Attack a model before it is handed on: can training rows be told from others?

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
    shown = Table("attack", "AUROC", "95 % interval", title="Telling training rows from held-out rows")
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

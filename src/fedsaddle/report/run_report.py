"""`report.html` of a run, made from the files in its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedsaddle.atomic import write_atomically
from fedsaddle.report.page.parts import Page, Section
from fedsaddle.report.page.render import render
from fedsaddle.report.sections.classes import classes
from fedsaddle.report.sections.clients import clients
from fedsaddle.report.sections.learning_curves import learning_curves
from fedsaddle.report.sections.left_sites import left_sites
from fedsaddle.report.sections.mixture import mixture
from fedsaddle.report.sections.score_counts import score_counts
from fedsaddle.report.sections.split import split
from fedsaddle.report.stored_run import StoredRun, read_run
from fedsaddle.shown import shortened, visible

REPORT = "report.html"
Maker = Callable[[StoredRun], Section | None]
SECTIONS: Sequence[Maker] = (
    score_counts,
    clients,
    classes,
    learning_curves,
    mixture,
    split,
    left_sites,
)  # in the order of the page; None where a run has nothing to say there


def write_report(folder: Path) -> Path:
    """Make `report.html` in the folder of a run.

    Raises:
        MissingData: if there is no run in it.
    """
    return write_page(read_run(folder), folder / REPORT)


def write_page(run: StoredRun, path: Path) -> Path:
    """Write the page of a run to a file."""
    write_atomically(path, render(page_of(run)).encode())
    return path


def report_or_warning(folder: Path, warn: Callable[[str], None]) -> Path | None:
    """Make `report.html`; where that fails, warn in one line: a run must not be lost for its report."""
    try:
        return write_report(folder)
    except Exception as reason:
        said = visible(shortened(f"{type(reason).__name__}: {reason}", 200))
        warn(f"{REPORT} could not be made ({said}); all other files of the run are there")
        return None


def page_of(run: StoredRun) -> Page:
    """The page of a run."""
    made = (make(run) for make in SECTIONS)
    return Page(run.name, "", (), sections=tuple(section for section in made if section is not None))

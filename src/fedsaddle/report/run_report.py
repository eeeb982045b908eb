"""`report.html` of a run, made from the files in its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedsaddle.atomic import write_atomically
from fedsaddle.report.page.parts import Page, Section
from fedsaddle.report.page.render import render
from fedsaddle.report.sections.decisions import decision, thresholds
from fedsaddle.report.sections.discrimination import discrimination
from fedsaddle.report.sections.groups import groups
from fedsaddle.report.sections.probabilities import calibration
from fedsaddle.report.sections.sites import sites
from fedsaddle.report.stored_run import StoredRun, read_run

REPORT = "report.html"
Maker = Callable[[StoredRun], Section | None]
SECTIONS: Sequence[Maker] = (
    discrimination,
    sites,
    groups,
    calibration,
    thresholds,
    decision,
)  # in the order of the page; None where a run has nothing to say there


def write_report(folder: Path) -> Path:
    """Make `report.html` in the folder of a run.

    Raises:
        MissingData: if there is no run in it.
    """
    path = folder / REPORT
    write_atomically(path, render(page_of(read_run(folder))).encode())
    return path


def page_of(run: StoredRun) -> Page:
    """The page of a run."""
    made = (make(run) for make in SECTIONS)
    return Page(run.name, "", (), sections=tuple(section for section in made if section is not None))

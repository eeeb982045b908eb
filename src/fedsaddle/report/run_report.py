"""`report.html` and MODEL_CARD.md of a run, made from the files in its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from fedsaddle.atomic import write_atomically
from fedsaddle.report.front_of_clients import front_of_clients
from fedsaddle.report.front_page import Front, front_of_search
from fedsaddle.report.model_card import write_card
from fedsaddle.report.page.parts import Page, Section, Text
from fedsaddle.report.page.render import render
from fedsaddle.report.sections.classes import classes
from fedsaddle.report.sections.clients import clients
from fedsaddle.report.sections.decisions import decision, thresholds
from fedsaddle.report.sections.discrimination import discrimination
from fedsaddle.report.sections.effects import effects
from fedsaddle.report.sections.groups import groups
from fedsaddle.report.sections.learning_curves import learning_curves
from fedsaddle.report.sections.left_sites import left_sites
from fedsaddle.report.sections.missing import missing_cells
from fedsaddle.report.sections.mixture import mixture
from fedsaddle.report.sections.numbers import DAMAGED
from fedsaddle.report.sections.probabilities import calibration
from fedsaddle.report.sections.score_counts import score_counts
from fedsaddle.report.sections.settings import settings
from fedsaddle.report.sections.sites import sites
from fedsaddle.report.sections.split import split
from fedsaddle.report.sections.trials import trials
from fedsaddle.report.stored_run import StoredRun, read_run
from fedsaddle.report.words import titled
from fedsaddle.shown import shortened, visible

REPORT = "report.html"
LEFT_OUT = "Left out, because a file of the run holds something unexpected"
T = TypeVar("T")
Maker = Callable[[StoredRun], Section | None]
SECTIONS: Sequence[Maker] = (  # in the order of the page; None where a run has nothing to say there
    discrimination,
    score_counts,
    calibration,
    thresholds,
    decision,
    sites,
    clients,
    classes,
    groups,
    missing_cells,
    effects,
    learning_curves,
    mixture,
    trials,
    split,
    left_sites,
    settings,
)


def write_report(folder: Path, warn: Callable[[str], None] = lambda text: None) -> Path:
    """Make `report.html` in the folder of a run, and MODEL_CARD.md if there is a model; warn of damaged files.

    Raises:
        MissingData: if there is no run in it.
    """
    run = read_run(folder)
    page, path = page_of(run), folder / REPORT
    for line in (*run.damage, *(line for line in page.cautions if line.startswith(LEFT_OUT))):
        warn(line)
    write_atomically(path, render(page).encode())
    if (folder / "model.safetensors").exists():
        write_card(folder, run, page)
    return path


def write_page(run: StoredRun, path: Path) -> Path:
    """Write the page of a run to a file of its own."""
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
    failed: list[str] = []
    front = _made(lambda: front_of_search(run) if run.is_search else front_of_clients(run), "the answers", failed)
    sections = [_made(partial(make, run), make.__name__.replace("_", " "), failed) for make in SECTIONS]
    front = front or Front(())
    versions = run.provenance.get("versions")
    version = versions.get("fedsaddle") if isinstance(versions, dict) else None
    left_out = f"{LEFT_OUT}: {', '.join(failed)}."
    return Page(
        title=_title(run),
        subtitle=_subtitle(run),
        answers=[*_warnings(run), *front.answers],
        figures=front.figures,
        cautions=[*([left_out] if failed else []), *front.cautions],
        sections=tuple(section for section in sections if section is not None),
        footer=f"Made by FedSaddle{f' {visible(version)}' if version else ''} from the files of {visible(run.folder)}.",
    )


def _warnings(run: StoredRun) -> list[Text]:
    """What the run itself warned of, before everything else."""
    found = run.summary.get("warnings", ())
    texts = [w["text"] for w in found if isinstance(w, dict) and isinstance(w.get("text"), str)]
    return [Text(f"{titled(visible(text))}.", kind="caution", head="Do not use this model yet") for text in texts]


def _made(make: Callable[[], T], name: str, failed: list[str]) -> T | None:
    """A part of the page; None, and its name among `failed`, where the files hold something else than a run writes."""
    try:
        return make()
    except DAMAGED:
        failed.append(name)
        return None


def _title(run: StoredRun) -> str:
    if run.is_search:
        outcome = f"{visible(run.search.get('label', ''))} = {visible(run.summary.get('positive', ''))}"
        return f"{outcome}, from {visible(Path(str(run.search.get('table', ''))).name)}"
    data = run.split.get("data") or run.setting("data", "name")
    return f"{visible(run.name)}{f' on {visible(data)}' if data else ''}"


def _subtitle(run: StoredRun) -> str:
    kind = "A run at real sites" if run.is_deployed else "A simulation on one machine"
    when = visible(run.provenance.get("finished", ""))[:16].replace("T", " ")
    return f"{kind} by {visible(run.name)}{f', finished {when} UTC' if when else ''}"

"""`report.html` and MODEL_CARD.md of a run, made from the files in its folder; the report also as PDF."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from fedsaddle.documents.summary import Budget
from fedsaddle.errors import FedSaddleError, MissingData
from fedsaddle.files import write_atomically
from fedsaddle.report.front import Front, front_of_clients, front_of_search
from fedsaddle.report.page.parts import Page, PageTable, Section, Text
from fedsaddle.report.page.render import render
from fedsaddle.report.sections.clients import classes, clients, mixture
from fedsaddle.report.sections.decisions import calibration, decision, thresholds
from fedsaddle.report.sections.disclosure import left_sites, release, stored_check, verdict
from fedsaddle.report.sections.effects import effects
from fedsaddle.report.sections.inputs import missing_cells, split
from fedsaddle.report.sections.learning_curves import learning_curves
from fedsaddle.report.sections.ranking import discrimination
from fedsaddle.report.sections.score_counts import score_counts
from fedsaddle.report.sections.settings import settings, trials
from fedsaddle.report.sections.subgroups import groups, sites
from fedsaddle.report.stored_run import DAMAGED, StoredRun, read_run
from fedsaddle.report.tables import budget_line
from fedsaddle.report.words import titled
from fedsaddle.text import shortened, visible

CARD = "MODEL_CARD.md"
MOST_ROWS = 40  # of a table
USE = (
    "To support people who decide, on rows like those it was trained on, after a local check. Not to decide alone, not "
    "for other outcomes or populations, and not where a column is recorded in another way."
)
PRIVACY = (
    "The rows stayed at their sites, or were simulated on one machine; what crosses between sites and server stands in "
    'the report, section "What left each site". The model\'s weights were made from these rows: without differential '
    "privacy they may tell something about single ones. Treat the file as you treat the rows."
)


def write_card(folder: Path, run: StoredRun, page: Page) -> Path:
    """Write MODEL_CARD.md beside the model."""
    path = folder / CARD
    write_atomically(path, card(run, page).encode())
    return path


def card(run: StoredRun, page: Page) -> str:
    """The card as Markdown; what a damaged file does not tell is left out, with a line that says so."""
    parts = [
        f"# {escaped(page.title)}\n\n{escaped(page.subtitle)}",
        "## Intended use\n\n" + USE,
        "## Result\n\n" + "\n\n".join(f"**{escaped(a.head)}** {escaped(a.words)}" for a in page.answers),
        "## Data\n\n" + _read(run, _data),
        "## Figures\n\n"
        + bullets(f"{f.name}: {f.value}" + (f" ({f.detail})" if f.detail else "") for f in page.figures),
        "## Groups\n\n" + _groups(page),
        "## Limits\n\n" + bullets(page.cautions),
        "## Privacy\n\n" + PRIVACY + _read(run, _budget) + _read(run, _release),
        "## Versions\n\n" + _read(run, _versions),
    ]
    return "\n\n".join(parts) + "\n"


def _read(run: StoredRun, make: Callable[[StoredRun], str]) -> str:
    """A part of the card, or that a file of the run holds something else than a run writes."""
    try:
        return make(run)
    except DAMAGED:
        return "\n\nLeft out, because a file of the run holds something unexpected."


def _data(run: StoredRun) -> str:
    rows = run.summary.get("rows", {})
    data = [
        f"{part}: {counts.get('rows', 0):,} rows, {counts.get('positives', 0):,} positive"
        for part, counts in rows.items()
        if isinstance(counts, dict)
    ] or [f"{run.split.get('clients', '?')} clients, {sum(run.split.get('train_sizes', ())):,} training rows"]
    table = run.provenance.get("table", {})
    if table:
        data.append(f"table {visible(table.get('file'))}, SHA-256 {visible(table.get('sha256'))}")
    return bullets(data)


def _versions(run: StoredRun) -> str:
    return bullets(f"{name} {number}" for name, number in run.provenance.get("versions", {}).items())


def _budget(run: StoredRun) -> str:
    """What was promised to whom, if the run had differential privacy."""
    given = run.summary.get("privacy")
    said = None if given is None else budget_line(Budget.model_validate(given))
    return "" if said is None else f" It was trained with differential {escaped(said)}."


def _release(run: StoredRun) -> str:
    """What attacks on the model found."""
    check = stored_check(run)
    said = "The release check was not made: `fedsaddle check-release`." if check is None else escaped(verdict(check))
    return f"\n\n{said}"


def _groups(page: Page) -> str:
    """The tables of the groups' section."""
    section = next((s for s in page.sections if s.key == "groups"), None)
    tables = [b if isinstance(b, PageTable) else getattr(b, "table", None) for b in section.blocks] if section else []
    shown = [markdown(table) for table in tables if isinstance(table, PageTable)]
    none = "No groups were named; `--groups sex,ethnicity` adds figures for each group."
    return "\n\n".join(shown) if shown else none


def markdown(table: PageTable) -> str:
    """A table in Markdown."""
    lines = [[*map(escaped, row)] for row in (table.heads, ["---"] * len(table.heads), *table.rows[:MOST_ROWS])]
    lines[1] = ["---"] * len(table.heads)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {escaped(line)}" for line in lines) or "None known."


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|~!&])", r"\\\1", visible(text))


NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
SECONDS = 120
OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-pdf-header-footer",
)


class NotPrinted(FedSaddleError):
    """The browser did not print the page."""

    exit_code = 3


def write_pdf(page: Path, path: Path) -> Path:
    """Print an HTML file to a PDF.

    Raises:
        MissingData: if no Chromium is installed.
        NotPrinted: if it fails.
    """
    browser = next((found for name in NAMES if (found := shutil.which(name))), None)
    if browser is None:
        raise MissingData(
            "--pdf: needs Chromium or Chrome, and none is on the PATH; install it (Debian: `apt install chromium`), "
            "or open report.html in a browser and print it"
        )
    with TemporaryDirectory() as scratch:
        made = Path(scratch) / "page.pdf"
        root = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()  # it refuses to start else
        command = [browser, *OPTIONS, *root, f"--user-data-dir={scratch}/profile", f"--print-to-pdf={made}"]
        try:
            done = subprocess.run(
                [*command, page.resolve().as_uri()], capture_output=True, timeout=SECONDS, check=False, text=True
            )
        except subprocess.TimeoutExpired:
            raise NotPrinted(f"--pdf: {browser} did not end within {SECONDS} s") from None
        if not made.exists():
            raise NotPrinted(f"--pdf: {browser} wrote nothing: {shortened(visible(done.stderr.strip()), 300)}")
        write_atomically(path, made.read_bytes())
    return path


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
    release,
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

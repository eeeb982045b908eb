"""`report.html` and MODEL_CARD.md of a run, made from the files in its folder; the report also as PDF."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import FedSaddleError, MissingData
from fedsaddle.files import write_atomically
from fedsaddle.metrics.ranking import Ranking
from fedsaddle.report.front import front_of_clients, front_of_search
from fedsaddle.report.outcomes import (
    front_of_outcome,
    outcome_figures,
    outcome_sites,
    outcome_title,
    survival_curves,
)
from fedsaddle.report.page.parts import Chart, Page, PageTable, Section, Text, ThresholdSlider
from fedsaddle.report.page.render import render
from fedsaddle.report.sections.clients import classes, clients, mixture
from fedsaddle.report.sections.decisions import calibration, decision, thresholds
from fedsaddle.report.sections.disclosure import left_sites, release, verdict
from fedsaddle.report.sections.effects import effects
from fedsaddle.report.sections.inputs import missing_cells, split
from fedsaddle.report.sections.learning_curves import learning_curves
from fedsaddle.report.sections.ranking import discrimination, outcome_of
from fedsaddle.report.sections.score_counts import score_counts
from fedsaddle.report.sections.settings import settings, trials
from fedsaddle.report.sections.subgroups import groups, sites
from fedsaddle.report.stored_run import StoredRun, read_run
from fedsaddle.report.tables import budget_line
from fedsaddle.report.words import titled
from fedsaddle.text import shortened, visible

MOST_ROWS = 40  # of a table
USE = (
    "Decision support on rows like the training rows, after local validation. Not for automated decisions, not for "
    "other outcomes or populations, and not where a column is recorded in another way."
)
PRIVACY = (
    "The rows stayed at their sites, or were simulated on one machine; the report lists what sites and server "
    'exchange, in the section "What left each site". The weights of the model depend on these rows: without '
    "differential privacy they may disclose single ones. Protect the file like the rows."
)


def write_card(run: StoredRun, page: Page) -> Path:
    """Write MODEL_CARD.md beside the model.

    Args:
        run: The run.
        page: Its page.
    """
    write_atomically(run.files.card, card(run, page).encode())
    return run.files.card


def card(run: StoredRun, page: Page) -> str:
    """The model card as Markdown.

    Args:
        run: The run.
        page: Its page.
    """
    parts = [
        f"# {escaped(page.title)}\n\n{escaped(page.subtitle)}",
        "## Intended use\n\n" + USE,
        "## Result\n\n" + "\n\n".join(f"**{escaped(a.head)}** {escaped(a.words)}" for a in page.answers),
        "## Data\n\n" + _data(run),
        "## Figures\n\n"
        + bullets(f"{f.name}: {f.value}" + (f" ({f.detail})" if f.detail else "") for f in page.figures),
        "## Groups\n\n" + _groups(page),
        "## Limits\n\n" + bullets(page.cautions),
        "## Privacy\n\n" + PRIVACY + _budget(run) + _release(run),
        "## Versions\n\n" + _versions(run),
    ]
    return "\n\n".join(parts) + "\n"


def _data(run: StoredRun) -> str:
    made, rows = run.provenance, run.search_summary.rows if run.search_summary else {}
    data = [f"{part}: {counts.rows:,} rows, {counts.positives:,} positive" for part, counts in rows.items()]
    if not data and run.split:
        data = [f"{run.split.clients} clients, {sum(run.split.train_sizes):,} training rows"]
    if made is not None and made.table is not None:
        data.append(f"table {visible(made.table.file)}, SHA-256 {visible(made.table.sha256)}")
    return bullets(data)


def _versions(run: StoredRun) -> str:
    versions = run.provenance.versions if run.provenance else {}
    return bullets(f"{name} {number}" for name, number in versions.items())


def _budget(run: StoredRun) -> str:
    """The privacy budget, if the run had differential privacy."""
    line = budget_line(run.finished.privacy) if run.finished else None
    return "" if line is None else f" It was trained with differential {escaped(line)}."


def _release(run: StoredRun) -> str:
    """The results of attacks on the model."""
    if run.release is None:
        return "\n\nThe release check was not made: `fedsaddle check-release`."
    return f"\n\n{escaped(verdict(run.release))}"


def _groups(page: Page) -> str:
    """The tables of the groups' section."""
    section = next((s for s in page.sections if s.key == "groups"), None)
    blocks = section.blocks if section else ()
    tables = [b.table if isinstance(b, Chart | ThresholdSlider) else b for b in blocks]
    shown = [markdown(table) for table in tables if isinstance(table, PageTable)]
    none = "No subgroups were given; `--groups sex,ethnicity` adds figures for each group."
    return "\n\n".join(shown) if shown else none


def markdown(table: PageTable) -> str:
    """A table in Markdown.

    Args:
        table: Of the page.
    """
    lines = [[*map(escaped, row)] for row in (table.heads, ["---"] * len(table.heads), *table.rows[:MOST_ROWS])]
    lines[1] = ["---"] * len(table.heads)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def bullets(lines: Iterable[str]) -> str:
    """A list in Markdown.

    Args:
        lines: Plain text.
    """
    return "\n".join(f"- {escaped(line)}" for line in lines) or "None known."


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line.

    Args:
        text: Plain text.
    """
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

    Args:
        page: The HTML file.
        path: The PDF.

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


Maker = Callable[[StoredRun], Section | None]
SECTIONS: Sequence[Maker] = (  # in the order of the page; None where a run has nothing to say there
    outcome_figures,
    outcome_sites,
    survival_curves,
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


def write_report(
    folder: Path, warn: Callable[[str], None] = lambda text: None, rankings: Mapping[str, Ranking] | None = None
) -> Path:
    """Make `report.html` in the folder of a run, and MODEL_CARD.md if there is a model.

    Args:
        folder: The run's folder.
        warn: Called with a line about each damaged file.
        rankings: Of the test rows by model, "choice" and "FedAvg", if the caller has them in memory.

    Raises:
        MissingData: if there is no run in it.
        OtherVersion: if another version of fedsaddle wrote it.
    """
    run = read_run(folder, rankings)
    page = page_of(run)
    for line in run.damage:
        warn(line)
    write_atomically(run.files.report, render(page).encode())
    if run.files.model.exists():
        write_card(run, page)
    return run.files.report


def write_page(run: StoredRun, path: Path) -> Path:
    """Write the page of a run to a file of its own.

    Args:
        run: The run.
        path: The HTML file.
    """
    write_atomically(path, render(page_of(run)).encode())
    return path


def report_or_warning(
    folder: Path, warn: Callable[[str], None], rankings: Mapping[str, Ranking] | None = None
) -> Path | None:
    """Make `report.html` at the end of a run; if that fails, warn in one line, as the run must not be lost for it.

    Args:
        folder: The run's folder.
        warn: Called with the line.
        rankings: As for `write_report`.
    """
    try:
        return write_report(folder, rankings=rankings)
    except Exception as reason:
        said = visible(shortened(f"{type(reason).__name__}: {reason}", 200))
        warn(f"{RunFiles(folder).report.name} could not be made ({said}); all other files of the run are there")
        return None


def page_of(run: StoredRun) -> Page:
    """The page of a run.

    Args:
        run: The run.
    """
    summary = run.search_summary
    front = front_of_clients(run) if summary is None else front_of_search(run, summary)
    if run.outcome_summary is not None:
        front = front_of_outcome(run.outcome_summary)
    sections = [make(run) for make in SECTIONS]
    version = run.provenance.versions.get("fedsaddle") if run.provenance else None
    return Page(
        title=_title(run),
        subtitle=_subtitle(run),
        answers=[*_warnings(run), *front.answers],
        figures=front.figures,
        cautions=[*(f"{titled(visible(line))}: it is left out of this page." for line in run.damage), *front.cautions],
        sections=tuple(section for section in sections if section is not None),
        footer=f"Made by FedSaddle{f' {visible(version)}' if version else ''} from the files of {visible(run.folder)}.",
    )


def _warnings(run: StoredRun) -> list[Text]:
    """The warnings of the run itself, before everything else."""
    warnings = run.finished.warnings if run.finished else []
    return [Text(f"{titled(visible(w.text))}.", kind="caution", head="Do not use this model yet") for w in warnings]


def _title(run: StoredRun) -> str:
    if run.outcome_summary is not None:
        return outcome_title(run, run.outcome_summary)
    if run.search_summary is not None:
        table = f", from {visible(Path(run.search.table).name)}" if run.search else ""
        return f"{outcome_of(run)}{table}"
    return f"{visible(run.name)}{f' on {visible(run.data_name)}' if run.data_name else ''}"


def _subtitle(run: StoredRun) -> str:
    kind = "A run at real sites" if run.is_deployed else "A simulation on one machine"
    when = visible(run.provenance.finished)[:16].replace("T", " ") if run.provenance else ""
    return f"{kind} by {visible(run.name)}{f', finished {when} UTC' if when else ''}"

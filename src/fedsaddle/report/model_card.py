"""MODEL_CARD.md: what the model is for, from which data, how good it is, for whom, its limits and its versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from fedsaddle.atomic import write_atomically
from fedsaddle.report.page.parts import Page, Table
from fedsaddle.report.sections.numbers import DAMAGED
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.tables import budget_line
from fedsaddle.shown import visible

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
        "## Privacy\n\n" + PRIVACY + _read(run, _budget),
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
    said = budget_line(run.summary)
    return "" if said is None else f" It was trained with differential {escaped(said)}."


def _groups(page: Page) -> str:
    """The tables of the groups' section."""
    section = next((s for s in page.sections if s.key == "groups"), None)
    tables = [b if isinstance(b, Table) else getattr(b, "table", None) for b in section.blocks] if section else []
    shown = [markdown(table) for table in tables if isinstance(table, Table)]
    none = "No groups were named; `--groups sex,ethnicity` adds figures for each group."
    return "\n\n".join(shown) if shown else none


def markdown(table: Table) -> str:
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

"""Which cells were missing, by column and site."""

from __future__ import annotations

from typing import Any

from fedsaddle.report.page.charts import Axis, Bar, bars, heat_map
from fedsaddle.report.page.parts import Block, Chart, Section, Table, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.shown import visible

MOST_COLUMNS = 40
MOST_SITES = 40
NOTE = (
    "A missing number is filled with the median of its column over all sites, and where ten or more are missing the "
    "model also sees that it was. Missing categories are a value of their own. Where one site never fills a column, "
    "a missing cell says more about the site than about the patient."
)


def missing_section(run: StoredRun) -> Section | None:
    """Shares of missing cells; None where the run does not know."""
    columns = read_missing(run)
    if "missing" not in run.summary:
        return None
    if not columns:
        return Section("missing", "Missing cells", [Text("No cell of the training rows was missing.")])
    ordered = sorted(columns, key=lambda c: -columns[c]["share"])
    blocks: list[Block] = [Text(_words(run, columns, ordered))]
    shown, sites = ordered[:MOST_COLUMNS], run.client_names or _sites(columns)
    table = Table(
        ("column", "missing", "most at one site", "that site"),
        [(visible(c), _percent(columns[c]["share"]), *_most(columns[c])) for c in ordered],
    )
    if 1 < len(sites) <= MOST_SITES:
        svg = heat_map(
            [visible(c) for c in shown],
            [visible(s) for s in sites],
            [[columns[c]["sites"].get(s, 0.0) for s in sites] for c in shown],
            key="missing",
        )
    else:
        svg = bars(
            [Bar(visible(c), columns[c]["share"], _percent(columns[c]["share"])) for c in shown],
            Axis("share of missing cells", 0, 1, percent=True),
            key="missing",
        )
    blocks.append(
        Chart(
            title="Share of missing cells",
            svg=svg,
            description=f"Shares of missing cells of {len(shown)} columns"
            + (f" at {len(sites)} sites." if len(sites) <= MOST_SITES else f", all {len(sites)} sites together."),
            table=table,
            note=NOTE,
        )
    )
    return Section("missing", "Missing cells", blocks)


def read_missing(run: StoredRun) -> dict[str, dict[str, Any]]:
    """By column: the share of missing cells and those of the sites; without what is damaged."""
    found = {}
    entries = run.summary.get("missing")
    for column, entry in entries.items() if isinstance(entries, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("share"), float) and isinstance(entry.get("sites"), dict):
            found[str(column)] = entry
    return found


def _words(run: StoredRun, columns: dict[str, dict[str, Any]], ordered: list[str]) -> str:
    first = ordered[0]
    most = _percent(columns[first]["share"])
    few = "One column has" if len(columns) == 1 else f"{len(columns)} columns have"
    text = f"{few} missing cells in the training rows, most of all {visible(first)} ({most})."
    never = [(c, s) for c in ordered for s, share in columns[c]["sites"].items() if share >= 1]
    if len(never) == 1:
        text += f" {visible(never[0][1])} never fills {visible(never[0][0])}."
    elif never:
        some = ", ".join(f"{visible(c)} at {visible(s)}" for c, s in never[:3])
        text += f" {len(never)} pairs of a column and a site have no cell at all, such as {some}."
    return text


def _sites(columns: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(site for entry in columns.values() for site in entry["sites"]))


def _most(entry: dict[str, Any]) -> tuple[str, str]:
    if not entry["sites"]:
        return "", ""
    site = max(entry["sites"], key=lambda s: entry["sites"][s])
    return _percent(entry["sites"][site]), visible(site)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"

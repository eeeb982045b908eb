"""`fedsaddle deploy audit`: what left a site, from its own log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from fedsaddle.commands.documents import SCHEMA, AuditDocument
from fedsaddle.commands.output import output
from fedsaddle.deployment.audit import FILE, Entry, read_audit
from fedsaddle.deployment.project import RUNS
from fedsaddle.deployment.site_memory import safe_name
from fedsaddle.errors import MissingData
from fedsaddle.shown import shortened, visible


def audit(kit: Path, run: str | None) -> None:
    """Print the log of a site's kit as a table, or with `--json` as it is."""
    folder = kit / RUNS if (kit / RUNS / FILE).exists() else kit
    found = read_audit(folder, run)
    if run is not None and not found:
        known = ", ".join(dict.fromkeys(entry.run for entry in read_audit(folder) if entry.run))
        raise MissingData(f"run {run!r}: nothing of it left this site; the log has: {known or 'no run'}")
    document: AuditDocument = {
        "schema": SCHEMA,
        "command": "deploy audit",
        "kit": str(kit),
        "entries": [asdict(entry) for entry in found],
        "privacy": (spent := site_budgets(folder, run)),
    }
    output.emit(document)
    screen = output.screen()
    for name in dict.fromkeys(entry.run for entry in found):
        own = [entry for entry in found if entry.run == name]
        screen.print(_table(name, own))
        screen.print(_totals(own), highlight=False, markup=False, soft_wrap=True)
    for line in budget_lines(spent):
        screen.print(line, highlight=False, markup=False, soft_wrap=True)


def site_budgets(folder: Path, run: str | None) -> list[dict[str, Any]]:
    """What each private run may release about this site, and what it has, by the site's own ledger."""
    from fedsaddle.deployment.budget import epsilon_spent, ledgers

    return [
        {"run": name, "unit": kept["unit"], "units": kept["units"], "epsilon": kept["epsilon"], "delta": kept["delta"],
         "epsilon_spent": (spent := epsilon_spent(kept)), "epsilon_left": kept["epsilon"] - spent,
         "answers": len(kept["answered"])}
        for name, kept in ledgers(folder).items() if run is None or name == safe_name(run)
    ]  # fmt: skip


def budget_lines(budgets: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each private run, and one for all of them."""
    found = [
        f"privacy of run {visible(b['run'])}: epsilon = {b['epsilon_spent']:.3g} of {b['epsilon']:g} spent, "
        f"{b['epsilon_left']:.3g} left (delta = {b['delta']:g}, for each {b['unit']} of {b['units']:,}; "
        f"{b['answers']:,} noisy answers)"
        for b in budgets
    ]
    if len(found) > 1:
        spent, most = (sum(b[key] for b in budgets) for key in ("epsilon_spent", "epsilon"))
        found.append(f"privacy of all runs together: epsilon = {spent:.3g} spent, at most {most:g}")
    return found


def _table(run: str, entries: Sequence[Entry]) -> Table:
    """A line for each field of each kind of message."""
    table = Table(title=f"run {visible(run) or '(none)'}", title_justify="left")
    for heading in ("request", "field", "shape", "type", "visible to the server", "when", "times", "bytes"):
        table.add_column(heading, justify="right" if heading in ("times", "bytes") else "left")
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for entry in entries:
        told = f"{entry.field}: {entry.text}" if entry.text else entry.field
        groups.setdefault((entry.request, told, entry.dtype, entry.visibility), []).append(entry)
    for (request, field, dtype, seen), own in groups.items():
        shapes = dict.fromkeys("x".join(map(str, entry.shape)) or "1" for entry in own)
        shape = next(iter(shapes)) if len(shapes) == 1 else f"{len(shapes)} shapes"
        rounds = [entry.round for entry in own if entry.round is not None]
        when = f"round {min(rounds) + 1} to {max(rounds) + 1}" if rounds else own[0].time[:19].replace("T", " ")
        size = f"{sum(entry.bytes for entry in own):,}"
        table.add_row(visible(request), shortened(visible(field), 80), shape, dtype, seen, when, f"{len(own):,}", size)
    return table


def _totals(entries: Sequence[Entry]) -> str:
    messages = len({(e.time, e.request, e.round, e.exchange) for e in entries})
    measured = sum(e.request == "measure" and e.field == "rows" for e in entries)
    size = sum(entry.bytes for entry in entries)
    first, last = (entries[k].time[:19].replace("T", " ") for k in (0, -1))
    return (
        f"{messages:,} messages with {len(entries):,} fields and {size:,} bytes left this site from {first} to {last} "
        f"(UTC); models were measured {measured:,} times"
    )

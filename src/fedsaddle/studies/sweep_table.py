"""A sweep as a table for the terminal and as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from rich.table import Table

from fedsaddle.files import write_atomically
from fedsaddle.report.tables import cell as shown
from fedsaddle.studies.bodies import CellBody, SweepBody
from fedsaddle.text import safe_cell

MOST_ROWS = 60  # of the table; the rest is in sweep.csv
COLUMNS = ("seed", "status", "figure", "test", "rounds", "target_round", "bytes_up", "seconds", "folder", "reason")


def write_csv(path: Path, body: SweepBody) -> None:
    """Write a line for each run."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*map(safe_cell, body["axes"]), *COLUMNS])
    for cell in body["cells"]:
        for run in cell["runs"]:
            found: dict[str, Any] = {**run}
            cells = [*cell["values"].values(), *(found[column] for column in COLUMNS)]
            lines.writerow(["" if c is None else safe_cell(str(c)) for c in cells])
    write_atomically(path, text.getvalue().encode())


def sweep_table(body: SweepBody) -> Table:
    """A row for each cell: mean and interval over seeds, the difference to the best, and what became of its runs."""
    keys = list(body["axes"])
    tested = any(cell["test_mean"] is not None for cell in body["cells"])
    aimed = any(cell["reached"] is not None for cell in body["cells"])
    table = Table(
        title=f"{shown(body['by'])}, {body['part']} rows, mean over {len(body['seeds'])} seeds",
        title_justify="left",
    )
    last = [key.rpartition(".")[2] for key in keys]
    for head in last if len(set(last)) == len(last) else keys:
        table.add_column(shown(head), justify="right")
    heads = ["mean", "95 % interval", "best - this", *(["test rows"] if tested else [])]
    for head in [*heads, *(["reached"] if aimed else []), "runs"]:
        table.add_column(head, justify="right")
    for cell in _most_telling(body["cells"]):
        values = [shown(cell["values"].get(key, "")) for key in keys]
        cells = [_number(cell["mean"]), _interval(cell["interval"]), _behind(cell)]
        cells += [_number(cell["test_mean"])] if tested else []
        cells += [f"{cell['reached']} of {len(cell['runs'])}"] if aimed else []
        table.add_row(*values, *cells, _runs(cell), style="bold" if cell["best"] else None)
    return table


def _most_telling(cells: list[CellBody]) -> list[CellBody]:
    """All cells, or of very many the best one and those before and after it in order."""
    if len(cells) <= MOST_ROWS:
        return cells
    at = next((k for k, cell in enumerate(cells) if cell["best"]), 0)
    first = min(max(0, at - MOST_ROWS // 2), len(cells) - MOST_ROWS)
    return cells[first : first + MOST_ROWS]


def notes_of(body: SweepBody) -> list[str]:
    """What to know when reading the table."""
    lines = []
    if len(body["cells"]) > MOST_ROWS:
        lines.append(f"{MOST_ROWS} of {len(body['cells']):,} cells; all are in sweep.csv")
    if body["caution"]:
        lines.append(f"caution: {body['caution']}")
    elif body["part"] == "validation":
        lines.append("the best cell (bold) was chosen on validation rows; test rows had no say")
    if body["unfinished"]:
        lines.append(f"{body['unfinished']} runs diverged, failed or are missing")
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if abs(value) < 1000 else f"{value:,.0f}"


def _interval(pair: list[float] | None) -> str:
    return "" if pair is None else f"[{_number(pair[0])}, {_number(pair[1])}]"


def _behind(cell: CellBody) -> str:
    if cell["best"]:
        return "best"
    gap = cell["behind_best"]
    return "" if gap is None else f"{gap:+.4f} {_interval(cell['behind_interval'])}".strip()


def _runs(cell: CellBody) -> str:
    counts: dict[str, int] = {}
    for run in cell["runs"]:
        counts[run["status"]] = counts.get(run["status"], 0) + 1
    return ", ".join(f"{count} {status}" for status, count in counts.items())

"""A sweep as a table for the terminal, as CSV, and as a picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table

from fedsaddle.documents.sweep import SweepCell, SweepSummary
from fedsaddle.files import write_atomically
from fedsaddle.report.plots import COLOURS, axes_of, label, save
from fedsaddle.report.tables import cell as shown
from fedsaddle.text import safe_cell

MOST_ROWS = 60  # of the table; the rest is in sweep.csv
COLUMNS = ("seed", "status", "figure", "test", "rounds", "target_round", "bytes_up", "seconds", "folder", "reason")
FACTOR = 20  # between the ends of an axis, from which on it is logarithmic
MOST_LINES = len(COLOURS)


def write_csv(path: Path, document: SweepSummary) -> None:
    """Write a line for each run."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*map(safe_cell, document.axes), *COLUMNS])
    for cell in document.cells:
        for run in cell.runs:
            figures = run.to_dict()
            cells = [*cell.values.values(), *(figures[column] for column in COLUMNS)]
            lines.writerow(["" if c is None else safe_cell(str(c)) for c in cells])
    write_atomically(path, text.getvalue().encode())


def sweep_table(document: SweepSummary) -> Table:
    """A row for each cell: mean and interval over seeds, the difference to the best, and what became of its runs."""
    keys = list(document.axes)
    tested = any(cell.test_mean is not None for cell in document.cells)
    aimed = any(cell.reached is not None for cell in document.cells)
    table = Table(
        title=f"{shown(document.by)}, {document.part} rows, mean over {len(document.seeds)} seeds",
        title_justify="left",
    )
    last = [key.rpartition(".")[2] for key in keys]
    for head in last if len(set(last)) == len(last) else keys:
        table.add_column(shown(head), justify="right")
    heads = ["mean", "95 % interval", "best - this", *(["test rows"] if tested else [])]
    for head in [*heads, *(["reached"] if aimed else []), "runs"]:
        table.add_column(head, justify="right")
    for cell in _most_telling(document.cells):
        values = [shown(cell.values.get(key, "")) for key in keys]
        cells = [_number(cell.mean), _interval(cell.interval), _behind(cell)]
        cells += [_number(cell.test_mean)] if tested else []
        cells += [f"{cell.reached} of {len(cell.runs)}"] if aimed else []
        table.add_row(*values, *cells, _runs(cell), style="bold" if cell.best else None)
    return table


def _most_telling(cells: list[SweepCell]) -> list[SweepCell]:
    """All cells, or of very many the best one and those before and after it in order."""
    if len(cells) <= MOST_ROWS:
        return cells
    at = next((k for k, cell in enumerate(cells) if cell.best), 0)
    first = min(max(0, at - MOST_ROWS // 2), len(cells) - MOST_ROWS)
    return cells[first : first + MOST_ROWS]


def notes_of(document: SweepSummary) -> list[str]:
    """What to know when reading the table."""
    lines = []
    if len(document.cells) > MOST_ROWS:
        lines.append(f"{MOST_ROWS} of {len(document.cells):,} cells; all are in sweep.csv")
    if document.caution:
        lines.append(f"caution: {document.caution}")
    elif document.part == "validation":
        lines.append("the best cell (bold) was chosen on validation rows; test rows had no say")
    if document.unfinished:
        lines.append(f"{document.unfinished} runs diverged, failed or are missing")
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if abs(value) < 1000 else f"{value:,.0f}"


def _interval(pair: list[float] | None) -> str:
    return "" if pair is None else f"[{_number(pair[0])}, {_number(pair[1])}]"


def _behind(cell: SweepCell) -> str:
    if cell.best:
        return "best"
    gap = cell.behind_best
    return "" if gap is None else f"{gap:+.4f} {_interval(cell.behind_interval)}".strip()


def _runs(cell: SweepCell) -> str:
    counts: dict[str, int] = {}
    for run in cell.runs:
        counts[run.status] = counts.get(run.status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def plot(document: SweepSummary, path: Path) -> Path:
    """Draw the means of all cells: lines with bands over one axis of numbers, a heat map over two, else points."""
    cells = [cell for cell in document.cells if cell.mean is not None]
    keys = list(document.axes)
    numeric = [key for key in keys if _numbers(cells, key)]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    (axes,) = axes_of(figure)
    searched = any(".." in str(value) for values in document.axes.values() for value in values)
    if len(keys) == 2 and len(numeric) == 2 and not searched and _full(cells, keys):
        _heat_map(figure, axes, cells, keys, document.by)
    elif numeric and not (searched and len(keys) > 1):
        _lines(axes, cells, max(numeric, key=lambda key: len(_distinct(cells, key))), keys, document.by)
    elif numeric:
        _scatter(axes, cells, numeric[0], document.by)
    else:
        _points(axes, cells, keys, document.by)
    axes.set_title(label(f"{document.by}, {document.part} rows, {len(document.seeds)} seeds"), loc="left")
    return save(figure, path)


def _number_of(cell: SweepCell, key: str) -> float:
    """The value of a numeric axis."""
    value = cell.values[key]
    assert isinstance(value, int | float)
    return value


def _numbers(cells: Sequence[SweepCell], key: str) -> bool:
    values = [cell.values[key] for cell in cells]
    plain = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    return plain and len(set(values)) > 1


def _distinct(cells: Sequence[SweepCell], key: str) -> list[float]:
    return sorted({_number_of(cell, key) for cell in cells})


def _full(cells: Sequence[SweepCell], keys: Sequence[str]) -> bool:
    return all(len(_distinct(cells, key)) > 1 for key in keys)


def _logarithmic(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= FACTOR


def _lines(axes: Axes, cells: Sequence[SweepCell], key: str, keys: Sequence[str], by: str) -> None:
    groups: dict[str, list[SweepCell]] = {}
    for cell in cells:
        rest = ", ".join(f"{k.rpartition('.')[2]} {cell.values[k]}" for k in keys if k != key)
        groups.setdefault(rest, []).append(cell)
    for colour, (name, own) in zip(COLOURS, groups.items(), strict=False):
        own.sort(key=lambda cell: _number_of(cell, key))
        x, y = [_number_of(cell, key) for cell in own], [float(cell.mean or 0) for cell in own]
        axes.plot(x, y, marker="o", color=colour, label=label(name) if name else None)
        low, high = zip(*(cell.interval or (m, m) for cell, m in zip(own, y, strict=True)), strict=True)
        axes.fill_between(x, low, high, color=colour, alpha=0.15)
    if _logarithmic(_distinct(cells, key)):
        axes.set_xscale("log")
    if len(groups) > 1:
        left_out = len(groups) - MOST_LINES
        axes.legend(title=f"{left_out} more are in sweep.csv" if left_out > 0 else None, fontsize="small")
    _mark_best(axes, cells, key)
    axes.set_xlabel(label(key))
    axes.set_ylabel(label(by))


def _mark_best(axes: Axes, cells: Sequence[SweepCell], key: str) -> None:
    for cell in cells:
        if cell.best and cell.mean is not None:
            axes.plot(
                [_number_of(cell, key)], [float(cell.mean)], marker="*", markersize=15, color="black", linestyle=""
            )


def _scatter(axes: Axes, cells: Sequence[SweepCell], key: str, by: str) -> None:
    """The cells of a search, over one of its keys."""
    axes.scatter([_number_of(cell, key) for cell in cells], [float(cell.mean or 0) for cell in cells], color=COLOURS[0])
    if _logarithmic(_distinct(cells, key)):
        axes.set_xscale("log")
    _mark_best(axes, cells, key)
    axes.set_xlabel(label(key))
    axes.set_ylabel(label(by))


def _heat_map(figure: Figure, axes: Axes, cells: Sequence[SweepCell], keys: Sequence[str], by: str) -> None:
    down, across = keys
    rows, columns = _distinct(cells, down), _distinct(cells, across)
    grid = np.full((len(rows), len(columns)), np.nan)
    for cell in cells:
        grid[rows.index(_number_of(cell, down)), columns.index(_number_of(cell, across))] = cell.mean
    axes.grid(visible=False)
    picture = axes.imshow(grid, aspect="auto", origin="lower", cmap="viridis")
    figure.colorbar(picture, ax=axes, label=label(by))
    axes.set_xticks(range(len(columns)), [f"{v:g}" for v in columns])
    axes.set_yticks(range(len(rows)), [f"{v:g}" for v in rows])
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for cell in cells:
        r, c = rows.index(_number_of(cell, down)), columns.index(_number_of(cell, across))
        colour = "white" if grid[r, c] < middle else "black"
        axes.text(c, r, f"{'★ ' if cell.best else ''}{grid[r, c]:.3g}", ha="center", va="center", color=colour)
    axes.set_xlabel(label(across))
    axes.set_ylabel(label(down))


def _points(axes: Axes, cells: Sequence[SweepCell], keys: Sequence[str], by: str) -> None:
    """A point with its interval for each combination of names."""
    for at, cell in enumerate(cells):
        mean = float(cell.mean or 0)
        low, high = cell.interval or (mean, mean)
        axes.plot([low, high], [at, at], color=COLOURS[0])
        axes.plot([mean], [at], marker="*" if cell.best else "o", markersize=12, color=COLOURS[0])
    names = [", ".join(str(cell.values[key]) for key in keys) for cell in cells]
    axes.set_yticks(range(len(cells)), [label(name)[:40] for name in names])
    axes.set_xlabel(label(by))

"""`predictions.csv`: the label, scores and probabilities of every held-out row, written and read again."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import GROUP
from fedsaddle.documents.files import RunFiles
from fedsaddle.files import write_atomically
from fedsaddle.metrics.calibration import Platt
from fedsaddle.text import safe_cell

CHOICE, FEDAVG = "choice", "FedAvg"
HEADS = {CHOICE: "", FEDAVG: "fedavg_"}  # begin the columns of each model
TEST, VALIDATION = "test", "validation"
FAR = 1 << 53  # numbers of patients are below


@dataclass(frozen=True, eq=False)
class ScoredPart:
    """The held-out rows of one part, site by site, with the scores of each model.

    Args:
        name: "test" or "validation".
        rows: Features and labels.
        sites: Their names.
        scores: By model: "choice" and, where it is compared, "FedAvg".
        numbers: Of the rows in the table.
        units: The patient of each row.
        groups: By column, the group of each row.
    """

    name: str
    rows: Stacked
    sites: Sequence[str]
    scores: Mapping[str, Floats]
    numbers: Ints | None = None
    units: NDArray[np.generic] | None = None
    groups: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)


def parts_of(data: FederatedData, scores: Mapping[str, Mapping[str, Floats]]) -> list[ScoredPart]:
    """The parts of the data that have rows.

    Args:
        data: Of the run.
        scores: By part and model.
    """
    found = []
    if data.validation is not None and VALIDATION in scores:
        own = (data.validation_rows, data.validation_units, data.validation_groups)
        found.append(ScoredPart(VALIDATION, data.validation, data.names, scores[VALIDATION], *own))
    if data.test is not None and TEST in scores:
        own = (data.test_rows, data.test_units, data.test_groups)
        found.append(ScoredPart(TEST, data.test, data.test_names, scores[TEST], *own))
    return found


def platt_of(parts: Iterable[ScoredPart]) -> dict[str, Platt]:
    """Platt's slope and intercept of each model, from the validation rows; empty without both classes there.

    Args:
        parts: The held-out rows.
    """
    for part in parts:
        labels = part.rows.y.numpy()
        if part.name == VALIDATION and 0 < labels.sum() < len(labels):
            return {model: Platt.fit(scores, labels) for model, scores in part.scores.items()}
    return {}


def write_predictions(folder: Path, parts: Sequence[ScoredPart], platt: Mapping[str, Platt]) -> None:
    """Write a line for each row; row 0 is the first below the names, and patients have numbers in place of names.

    Args:
        folder: Of the run.
        parts: The held-out rows.
        platt: From scores to probabilities, by model.
    """
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    units = _running([part.units for part in parts])
    for part, unit in zip(parts, units, strict=True):
        columns = _columns(part, platt, unit)
        if part is parts[0]:
            lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
    write_atomically(RunFiles(folder).predictions, text.getvalue().encode())


def _columns(part: ScoredPart, platt: Mapping[str, Platt], unit: Ints | None) -> dict[str, list[object]]:
    count = len(part.rows.y)
    safe = np.array([safe_cell(name) for name in part.sites], dtype=object)
    found: dict[str, list[object]] = {} if part.numbers is None else {"row": part.numbers.tolist()}
    found |= {
        "part": [part.name] * count,
        "site": np.repeat(safe[: part.rows.count], part.rows.sizes).tolist(),
        "label": part.rows.y.tolist(),
    }
    for model, scores in part.scores.items():
        found[f"{HEADS[model]}score"] = [f"{s:.8g}" for s in scores.tolist()]
        if model in platt:
            found[f"{HEADS[model]}probability"] = [f"{p:.8g}" for p in platt[model].probability(scores).tolist()]
    if unit is not None:
        found["unit"] = unit.tolist()
    for column, groups in part.groups.items():
        names, codes = np.unique(groups, return_inverse=True)
        cells = np.array([safe_cell(str(name)) for name in names], dtype=object)
        found[safe_cell(f"{GROUP}{column}")] = cells[codes].tolist()
    return found


def _running(units: Sequence[NDArray[np.generic] | None]) -> list[Ints | None]:
    """Numbers from 0 in the order in which the units first appear, over all parts."""
    given = [own.astype(str) for own in units if own is not None]
    if len(given) < len(units) or not given:
        return [None for _ in units]
    _, first, codes = np.unique(np.concatenate(given), return_index=True, return_inverse=True)
    places = np.empty(len(first), dtype=np.int64)
    places[np.argsort(first)] = np.arange(len(first))
    return list(np.split(places[codes], np.cumsum([len(own) for own in given])[:-1]))


@dataclass(frozen=True, eq=False)
class Predictions:
    """The columns of predictions.csv, as numbers and text.

    Args:
        parts: "test" or "validation" for each row.
        sites: The site of each row.
        labels: 1 for positives.
        numbers: Scores and probabilities, by the names of their columns.
        units: The patient of each row; None if rows are independent.
        groups: By column, the group of each row.
        rows: Their numbers in the table.
    """

    parts: NDArray[np.str_]
    sites: list[str]
    labels: Ints
    numbers: Mapping[str, Floats]
    units: Ints | None
    groups: Mapping[str, list[str]]
    rows: Ints | None = None


def read_predictions(path: Path) -> tuple[Predictions | None, list[str]]:
    """Read the columns of the file; None if nothing can be used, and a line about each damage.

    Args:
        path: The file.
    """
    if not path.exists():
        return None, []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            heads, rows = next(lines, []), list(lines)
    except (OSError, ValueError, csv.Error) as reason:
        return None, [f"{path.name} cannot be read ({reason})"]
    if not rows or not {"part", "site", "label", "score"} <= set(heads):
        return None, [f"{path.name} holds no predictions"]
    whole = [row for row in rows if len(row) == len(heads)]
    found, good = _read_columns(heads, whole) if whole else (None, 0)
    damage = [f"{path.name} has {len(rows) - good} lines that are no predictions"] if good < len(rows) else []
    return found, damage


def _read_columns(heads: list[str], rows: list[list[str]]) -> tuple[Predictions | None, int]:
    """The columns without damaged lines, and how many lines are left."""
    columns: dict[str, Sequence[str]] = dict(zip(heads, zip(*rows, strict=True), strict=True))
    keys = [f"{head}{kind}" for head in HEADS.values() for kind in ("score", "probability")]
    numbers = {key: _numbers(columns[key]) for key in (*keys, "label", "unit") if key in columns}
    good = np.isin(numbers["label"], (0, 1))
    for key, column in numbers.items():
        good &= np.isfinite(column)
        if key.endswith("probability"):
            good &= (column >= 0) & (column <= 1)
    if "unit" in numbers:
        good &= (numbers["unit"] >= 0) & (numbers["unit"] < FAR) & (numbers["unit"] % 1 == 0)
    if not good.any():
        return None, 0
    if not good.all():
        rows = [row for row, fine in zip(rows, good.tolist(), strict=True) if fine]
        return _read_columns(heads, rows)
    labels, units = numbers.pop("label"), numbers.pop("unit", None)
    groups = {key.removeprefix(GROUP): list(cells) for key, cells in columns.items() if key.startswith(GROUP)}
    found = Predictions(
        parts=np.array(columns["part"]),
        sites=list(columns["site"]),
        labels=labels.astype(np.int64),
        numbers=numbers,
        units=None if units is None else units.astype(np.int64),
        groups=groups,
        rows=_row_numbers(columns.get("row")),
    )
    return found, len(rows)


def _row_numbers(cells: Sequence[str] | None) -> Ints | None:
    if cells is None:
        return None
    found = _numbers(cells)
    return found.astype(np.int64) if np.isfinite(found).all() and (np.abs(found) < FAR).all() else None


def _numbers(cells: Sequence[str]) -> Floats:
    """The cells as numbers, NaN where one is none."""
    try:
        return np.fromiter(map(float, cells), dtype=np.float64, count=len(cells))
    except ValueError:
        return np.array([_number(cell) for cell in cells])


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def codes_of(cells: Sequence[str], plain: Callable[[str], str]) -> tuple[Ints, list[str]]:
    """A number for each cell, and the text of each number, in the order in which they first appear.

    Args:
        cells: Of a column.
        plain: From a cell of the file to its text.
    """
    place = {cell: k for k, cell in enumerate(dict.fromkeys(cells))}
    codes = np.fromiter(map(place.__getitem__, cells), dtype=np.int64, count=len(cells))
    return codes, [plain(cell) for cell in place]

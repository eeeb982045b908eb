"""`fedsaddle predict`: the model of a run, or of a study at a site, on new rows."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import warnings
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from fedsaddle.commands.documents import SCHEMA, PredictDocument
from fedsaddle.commands.options import usable
from fedsaddle.commands.output import JsonOption, QuietOption, output, say
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.files import write_atomically
from fedsaddle.processes import loading
from fedsaddle.text import safe_cell, shortened, visible

LOADER = "load_model.py"


def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder of a run, or of a site's model.", callback=usable)
    ],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="New rows: CSV, Parquet or Excel.", callback=usable)],
    out: Annotated[Path, typer.Option(metavar="FILE", help="CSV file to write.", callback=usable)] = Path(
        "predictions.csv"
    ),
    lenient: Annotated[
        bool,
        typer.Option("--lenient", metavar="", help="Take unknown categories and unreadable cells as missing."),
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict new rows with the model of a finished run; needs the rows' columns, no label.

    It runs load_model.py of the folder: use folders that you trust.
    """
    with loading():
        from fedsaddle.data.tables.read import column_names, read_roles

    loader = _loader(folder)
    needed, sites = _columns(folder)
    there = column_names(table)
    for name in needed:
        if name not in there and name not in sites:
            raise BadInput("table", str(table), f"has no column {visible(name)!r}, which the model needs")
    cells = read_roles(table, {name: name for name in needed if name in there})
    rows = len(next(iter(cells.values()))) if cells else 0
    given = [{name: str(cells[name][k]) if name in cells else "" for name in needed} for k in range(rows)]
    if not given:
        raise BadInput("table", str(table), "has no rows")
    for name in sites:
        if name not in there:
            say(f"note: no column {name!r} for the site: its mean intercept counts")
    found = _predicted(loader, given, table, lenient)
    threshold = getattr(loader, "THRESHOLD", None)
    outputs = getattr(loader, "OUTPUTS", ("probability" if threshold is not None else "score",))
    head = ["row", *map(safe_cell, outputs)]
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(head + (["called_positive"] if threshold is not None else []))
    for k, values in enumerate(found):
        called = [] if threshold is None else [int(values[0] >= threshold)]
        lines.writerow([k, *(f"{value:.6f}" for value in values[: len(outputs)]), *called])
    if os.path.lexists(out) and not out.is_file():
        raise BadInput("--out", str(out), "is no file; name a CSV file to write")
    write_atomically(out, text.getvalue().encode())
    positive = "" if threshold is None else f", {sum(v[0] >= threshold for v in found):,} called positive"
    output.line(f"{len(found):,} rows{positive}; written to {visible(out)}")
    document: PredictDocument = {
        "schema": SCHEMA,
        "command": "predict",
        "folder": str(folder),
        "table": str(table),
        "out": str(out),
        "rows": len(found),
        "threshold": None if threshold is None else float(threshold),
    }
    output.emit(document)


def _loader(folder: Path) -> ModuleType:
    path = folder / LOADER
    if not path.is_file():
        where = visible(folder)
        raise MissingData(f"{where!r}: there is no {LOADER}; name the folder of a finished run or of a site's model")
    spec = importlib.util.spec_from_file_location("fedsaddle_loaded_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as reason:
        why = shortened(visible(f"{type(reason).__name__}: {reason}"), 200)
        raise BadInput("folder", str(folder), f"its {LOADER} cannot be loaded ({why}); make the run again") from None
    if not hasattr(module, "predict"):
        raise BadInput("folder", str(folder), "its model is of no table; use load_model.py in Python")
    return module


def _columns(folder: Path) -> tuple[list[str], list[str]]:
    """The columns that the model reads, and those of them that name the site."""
    try:
        features = json.loads((folder / "features.json").read_text(encoding="utf-8"))
        kinds = {str(one["column"]): str(one["kind"]) for one in features}
    except (OSError, ValueError, KeyError, TypeError) as reason:
        why = type(reason).__name__
        raise BadInput("folder", str(folder), f"its features.json cannot be read ({why}); make the run again") from None
    return list(kinds), [name for name, kind in kinds.items() if kind == "site"]


def _predicted(loader: ModuleType, rows: list[dict[str, str]], table: Path, lenient: bool) -> list[list[float]]:
    """The outputs of each row."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = loader.predict(rows, strict=not lenient)
        except ValueError as reason:
            why = shortened(visible(reason), 300).replace("strict=False to get a warning instead", "--lenient")
            raise BadInput("table", str(table), why) from None
    for text in list(dict.fromkeys(str(one.message) for one in said))[:20]:
        say(f"warning: {visible(text)}")
    return [[float(v) for v in value] if isinstance(value, list) else [float(value)] for value in found]

"""A run as its folder tells it: what a report is made from.

Files may be missing (of an older version, of another kind of run), cut off or damaged: what cannot be read is left out,
and `damage` says so.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import FedSaddleError, MissingData
from fedsaddle.files import Record, read_object, read_records
from fedsaddle.metrics.ranking import FEW
from fedsaddle.report.predictions import HEADS, PREDICTIONS, Predictions, codes_of, read_predictions
from fedsaddle.text import plain_cell, visible

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, FedSaddleError)


def current_roc(stored: Record) -> Record:
    """roc.json with each figure as `{"value", "interval"}`; one that has this shape is returned as it is.

    The older one has plain AUROCs with an `interval` beside them, also of sites with fewer than five rows of a class.
    """
    models = stored.get("models")
    if not isinstance(models, dict) or not models or not all(map(_is_older, models.values())):
        return stored
    gap = stored.get("difference")
    older = isinstance(gap, dict) and "pooled_auroc" in gap
    return {
        **stored,
        "models": {name: _model(model) for name, model in models.items()},
        "difference": {"name": "pooled", "auroc": _figure(gap, "pooled_auroc")} if older else None,
    }


def current_feature(stored: Record) -> Record:
    """An entry of features.json with its kind; the older ones were numbers or categories, and did not say so."""
    if "kind" in stored:
        return stored
    return {**stored, "kind": "number" if stored.get("category") is None else "category"}


def _is_older(model: Any) -> bool:
    pooled = model.get("pooled") if isinstance(model, dict) else None
    return isinstance(pooled, dict) and isinstance(pooled.get("auroc"), float)


def _model(model: Record) -> Record:
    return {
        **model,
        "pooled": _ranked(model["pooled"]),
        "clients": [_ranked(client) for client in model.get("clients", ())],
        "within_site_auroc": None,
    }


def _ranked(found: Record) -> Record:
    counts = {key: found.get(key) for key in ("name", "positives", "negatives")}
    few = min(found.get("positives", 0), found.get("negatives", 0)) < FEW
    own = None if few else _figure(found, "auroc")
    return {**counts, "few": few, "auroc": own, "average_precision": None, "partial_auroc": None}


def _figure(found: Any, key: str) -> Record | None:
    value, ends = found.get(key), found.get("interval")
    return None if value is None or ends is None else {"value": value, "interval": ends}


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The scores of held-out rows, from predictions.csv, sorted by site.

    `scores` and `probabilities` are by model: "choice" and, where it was compared, "FedAvg".
    """

    labels: Ints  # 1 for positives
    offsets: Ints  # (sites + 1,), where the rows of each site begin
    names: tuple[str, ...]  # of the sites
    scores: Mapping[str, Floats]
    probabilities: Mapping[str, Floats] = field(default_factory=dict)
    units: Ints | None = None  # numbers of patients
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)  # by column; "" where the cell is missing
    rows: Ints | None = None  # their numbers in the table

    @property
    def sites(self) -> Ints:
        """The number of each row's site."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.offsets))

    def reordered(self, codes: Ints, names: Sequence[str]) -> HeldOut:
        """The same rows with other parts in place of the sites, such as groups; a negative code leaves a row out."""
        kept = np.flatnonzero(codes >= 0)
        order = kept[np.argsort(codes[kept], kind="stable")]
        sizes = np.bincount(codes[kept], minlength=len(names))
        return HeldOut(
            labels=self.labels[order],
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            names=tuple(names),
            scores={name: s[order] for name, s in self.scores.items()},
            probabilities={name: p[order] for name, p in self.probabilities.items()},
            units=None if self.units is None else self.units[order],
            groups={name: g[order] for name, g in self.groups.items()},
            rows=None if self.rows is None else self.rows[order],
        )


@dataclass(frozen=True, eq=False)
class StoredRun:
    """The files of a run, as far as they can be read; empty where there are none."""

    folder: Path
    summary: Record
    history: list[Record]
    config: Record = field(default_factory=dict)
    split: Record = field(default_factory=dict)
    roc: Record = field(default_factory=dict)
    search: Record = field(default_factory=dict)  # what a search was asked for
    provenance: Record = field(default_factory=dict)  # versions, date, command
    features: list[Record] = field(default_factory=list)
    trials: list[dict[str, str]] = field(default_factory=list)
    test: HeldOut | None = None
    validation: HeldOut | None = None
    baseline: list[Record] = field(default_factory=list)  # the history of FedAvg
    agreed: Record = field(default_factory=dict)  # what the sites of a deployed run told before the first round
    damage: tuple[str, ...] = ()

    @property
    def is_search(self) -> bool:
        """Whether candidates were tried on a table."""
        return bool(self.search) and "choice" in self.summary

    @property
    def is_deployed(self) -> bool:
        """Whether the run was at real sites."""
        return "sites" in self.summary

    @property
    def name(self) -> str:
        """What was run, in the words of its summary."""
        return str(self.summary.get("algorithm") or self.setting("algorithm", "name") or "run")

    def setting(self, section: str, key: str) -> Any:
        """A value of the run's config; None where it has none."""
        found = self.config.get(section)
        return found.get(key) if isinstance(found, dict) else None

    @property
    def client_names(self) -> tuple[str, ...]:
        """The clients that were trained on."""
        return tuple(map(str, self.split.get("names", ())))


def read_run(folder: Path) -> StoredRun:
    """Read the folder of a run.

    Raises:
        MissingData: if there is no run in it.
    """
    found = _Reader(folder)
    history = found.records(folder / "metrics.jsonl")
    summary = found.read("summary.json")
    if not summary and not history:
        raise MissingData(f"{visible(folder)!r}: holds no run (no summary.json or metrics.jsonl)")
    rows = found.predictions()
    return StoredRun(
        folder=folder,
        summary=summary,
        history=history,
        config=found.read("config.json"),
        split=found.read("split.json"),
        roc=current_roc(found.read("roc.json")),
        search=found.read("search.json"),
        provenance=found.read("provenance.json"),
        features=found.features(),
        trials=found.table("trials.csv"),
        test=_held_out(rows, "test"),
        validation=_held_out(rows, "validation"),
        baseline=found.records(folder / "fedavg" / "metrics.jsonl"),
        agreed=found.read("agreed.json"),
        damage=tuple(found.damage),
    )


@dataclass
class _Reader:
    """Reads files and notes which could not be."""

    folder: Path
    damage: list[str] = field(default_factory=list)

    def read(self, name: str) -> Record:
        path = self.folder / name
        if not path.exists():
            return {}
        try:
            return read_object(path)
        except ValueError as reason:
            self.damage.append(f"{name} cannot be read ({reason})")
            return {}

    def records(self, path: Path) -> list[Record]:
        records, damage = read_records(path)
        self.damage += damage
        return records

    def features(self) -> list[Record]:
        path = self.folder / "features.json"
        if not path.exists():
            return []
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
            return [current_feature(dict(feature)) for feature in found]
        except (ValueError, TypeError, OSError, RecursionError):
            self.damage.append("features.json cannot be read")
            return []

    def table(self, name: str) -> list[dict[str, str]]:
        path = self.folder / name
        if not path.exists():
            return []
        try:
            with path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.reader(file))
        except (OSError, ValueError, csv.Error) as reason:
            self.damage.append(f"{name} cannot be read ({reason})")
            return []
        whole = [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if len(row) == len(rows[0])] if rows else []
        if len(whole) < len(rows) - 1:
            self.damage.append(f"{name} has {len(rows) - 1 - len(whole)} incomplete lines")
        return whole

    def predictions(self) -> Predictions | None:
        found, damage = read_predictions(self.folder / PREDICTIONS)
        self.damage += damage
        return found


def _held_out(found: Predictions | None, part: str) -> HeldOut | None:
    """The rows of one part; None without any."""
    if found is None or not (found.parts == part).any():
        return None
    at = np.flatnonzero(found.parts == part)
    codes, names = codes_of([found.sites[i] for i in at], plain_cell)

    def models(kind: str) -> dict[str, Floats]:
        return {m: found.numbers[f"{head}{kind}"][at] for m, head in HEADS.items() if f"{head}{kind}" in found.numbers}

    everything = HeldOut(
        labels=found.labels[at],
        offsets=np.zeros(1, dtype=np.int64),
        names=(),
        scores=models("score"),
        probabilities=models("probability"),
        units=None if found.units is None else found.units[at],
        groups={name: _groups([cells[i] for i in at]) for name, cells in found.groups.items()},
        rows=None if found.rows is None else found.rows[at],
    )
    return everything.reordered(codes, names)


def _groups(cells: Sequence[str]) -> NDArray[np.str_]:
    codes, names = codes_of(cells, plain_cell)
    return np.array(names)[codes]

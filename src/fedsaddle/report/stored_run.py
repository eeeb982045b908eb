"""A run as its folder shows it: what a report is made from.

Files may be missing, as a run may be of another kind or not yet finished. A damaged file is left out, and `damage` has
one line about it, with the name of the file and the first invalid key.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.table import Encoded
from fedsaddle.documents.files import RunFiles
from fedsaddle.documents.stored import (
    Agreed,
    Provenance,
    ReleaseCheck,
    Roc,
    Round,
    SearchOptions,
    SplitCounts,
    model_digest,
    read_document,
    read_rounds,
)
from fedsaddle.documents.summary import (
    AnySummary,
    DivergedSummary,
    DocumentPart,
    OutcomeSummary,
    PartName,
    RunSummary,
    SearchSummary,
    Settings,
    problem_of,
)
from fedsaddle.errors import MissingData
from fedsaddle.files import read_object
from fedsaddle.metrics.ranking import Ranking
from fedsaddle.report.predictions import HEADS, Predictions, codes_of, read_predictions
from fedsaddle.text import plain_cell, visible

D = TypeVar("D", bound=DocumentPart)
T = TypeVar("T")
FEATURES = TypeAdapter(list[Encoded])


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The scores of held-out rows, from predictions.csv, sorted by site.

    Args:
        labels: (rows,), 1 for positives.
        offsets: (sites + 1,), where the rows of each site begin.
        names: Of the sites.
        scores: By model: "choice" and, where it was compared, "FedAvg".
        probabilities: The same.
        units: (rows,), numbers of patients; None if rows are independent.
        groups: By column, the group of each row; "" where the cell is missing.
        rows: (rows,), their numbers in the table.
    """

    labels: Ints
    offsets: Ints
    names: tuple[str, ...]
    scores: Mapping[str, Floats]
    probabilities: Mapping[str, Floats] = field(default_factory=dict)
    units: Ints | None = None
    groups: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    rows: Ints | None = None

    @property
    def sites(self) -> Ints:
        """The number of each row's site."""
        return np.repeat(np.arange(len(self.names)), np.diff(self.offsets))

    def reordered(self, codes: Ints, names: Sequence[str]) -> HeldOut:
        """The same rows with other parts in place of the sites, such as groups.

        Args:
            codes: (rows,), the part of each row; a negative code leaves the row out.
            names: Of the parts.
        """
        left = np.flatnonzero(codes >= 0)
        order = left[np.argsort(codes[left], kind="stable")]
        sizes = np.bincount(codes[left], minlength=len(names))
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
    """The documents of a run; None or empty where there are none.

    Args:
        folder: The run's folder.
        summary: However the run ended; None before its end.
        history: Its evaluations.
        config: Its settings, with all defaults.
        split: Rows and classes of each client.
        roc: Figures and curves of the ranking.
        search: The options of a search on a table.
        provenance: Versions, machine, date and command.
        features: How each feature is made from a column of a table.
        trials: The lines of trials.csv.
        test: The test rows.
        validation: The validation rows.
        baseline: The evaluations of FedAvg.
        agreed: The encoding that server and sites of a deployed run share.
        release: The check of this very model before it is handed on.
        rankings: The rankings of the test rows by model, if the caller has them in memory; else they are computed from
            the scores of the test rows.
        up: The sites of a deployed run that is still running.
        damage: A line about each damaged file.
    """

    folder: Path
    summary: AnySummary | None = None
    history: Sequence[Round] = ()
    config: Settings = field(default_factory=dict)
    split: SplitCounts | None = None
    roc: Roc | None = None
    search: SearchOptions | None = None
    provenance: Provenance | None = None
    features: Sequence[Encoded] = ()
    trials: Sequence[Mapping[str, str]] = ()
    test: HeldOut | None = None
    validation: HeldOut | None = None
    baseline: Sequence[Round] = ()
    agreed: Agreed | None = None
    release: ReleaseCheck | None = None
    rankings: Mapping[str, Ranking] = field(default_factory=dict)
    up: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()

    @property
    def files(self) -> RunFiles:
        """The names of its files."""
        return RunFiles(self.folder)

    @property
    def finished(self) -> RunSummary | SearchSummary | None:
        """The summary of a run that did not diverge, or of a search of two classes."""
        return None if isinstance(self.summary, DivergedSummary | OutcomeSummary) else self.summary

    @property
    def run_summary(self) -> RunSummary | None:
        """The summary of a run that is no search and did not diverge."""
        return self.summary if isinstance(self.summary, RunSummary) else None

    @property
    def search_summary(self) -> SearchSummary | None:
        """The summary of a search on a table."""
        return self.summary if isinstance(self.summary, SearchSummary) else None

    @property
    def outcome_summary(self) -> OutcomeSummary | None:
        """The summary of a study of another outcome than two classes."""
        return self.summary if isinstance(self.summary, OutcomeSummary) else None

    @property
    def evaluation(self) -> RunSummary | SearchSummary | Round | None:
        """The evaluation that counts: that of the summary, else the last one."""
        if self.finished is not None and self.finished.main_measures:
            return self.finished
        return self.history[-1] if self.history else None

    @property
    def pooled(self) -> dict[str, float]:
        """Measures of the pooled rows, of the summary or else of the last evaluation; empty for a search."""
        if self.search_summary is not None:
            return {}
        return (self.run_summary.main_pooled if self.run_summary else {}) or (
            self.history[-1].main_pooled if self.history else {}
        )

    @property
    def is_search(self) -> bool:
        """Whether candidates were tried on a table."""
        return self.search_summary is not None

    @property
    def site_names(self) -> tuple[str, ...]:
        """The sites of a deployed run; empty for a simulation."""
        return tuple(self.finished.sites) if self.finished is not None and self.finished.sites else self.up

    @property
    def is_deployed(self) -> bool:
        """Whether the run was at real sites."""
        return bool(self.site_names)

    @property
    def name(self) -> str:
        """The algorithm."""
        return (self.summary.algorithm if self.summary else "") or self.setting("algorithm", "name") or "run"

    def setting(self, section: str, key: str) -> str:
        """A text of the run's config.

        Args:
            section: Such as "problem".
            key: Such as "name"; "" if the config does not have it.
        """
        values = self.config.get(section)
        value = values.get(key) if isinstance(values, dict) else None
        return "" if value is None else str(value)

    @property
    def client_names(self) -> tuple[str, ...]:
        """The clients that were trained on."""
        return tuple(self.split.names) if self.split else ()

    @property
    def data_name(self) -> str:
        """The data set."""
        return self.split.data if self.split else self.setting("data", "name")

    def sizes(self, part: PartName) -> list[int]:
        """Number of rows of each client; empty if the run does not know.

        Args:
            part: "test", "validation" or "train".
        """
        return self.split.sizes(part) if self.split else []


def read_run(folder: Path, rankings: Mapping[str, Ranking] | None = None) -> StoredRun:
    """Read the folder of a run.

    Args:
        folder: Its path.
        rankings: Of the test rows by model, if the caller has them in memory.

    Raises:
        MissingData: if there is no run in it.
        OtherVersion: if another version of fedsaddle wrote it.
    """
    reader = _Reader(RunFiles(folder))
    files = reader.files
    history = reader.rounds(files.metrics)
    summary = reader.of(files.summary, lambda path: files.stored_summary())
    if summary is None and not history:
        why = f": {reader.damage[0]}" if reader.damage else ""
        raise MissingData(f"{visible(folder)!r}: holds no run (no summary.json or metrics.jsonl{why})")
    rows = reader.predictions()
    return StoredRun(
        folder=folder,
        summary=summary,
        history=history,
        config=reader.of(files.config, read_object) or {},
        split=reader.document(SplitCounts, files.split),
        roc=reader.document(Roc, files.roc),
        search=reader.document(SearchOptions, files.search),
        provenance=reader.document(Provenance, files.provenance),
        features=reader.of(files.features, _features) or [],
        trials=reader.table(files.trials_table),
        test=_held_out(rows, "test"),
        validation=_held_out(rows, "validation"),
        baseline=reader.rounds(files.baseline.metrics),
        agreed=reader.document(Agreed, files.agreed),
        release=reader.release(),
        rankings=rankings or {},
        damage=tuple(reader.damage),
    )


@dataclass
class _Reader:
    """Reads files, and notes which are damaged."""

    files: RunFiles
    damage: list[str] = field(default_factory=list)

    def of(self, path: Path, read: Callable[[Path], T]) -> T | None:
        """What is in a file; None if there is none, or if it is damaged."""
        if not path.exists():
            return None
        try:
            return read(path)
        except ValueError as reason:
            self.damage.append(f"{path.name} is damaged ({reason})")
            return None

    def document(self, kind: type[D], path: Path) -> D | None:
        return self.of(path, lambda path: read_document(kind, path))

    def rounds(self, path: Path) -> list[Round]:
        rounds, damage = read_rounds(path)
        self.damage += [f"{path.name}: {line}" if line.startswith("round") else line for line in damage]
        return rounds

    def table(self, path: Path) -> list[dict[str, str]]:
        rows = self.of(path, _lines) or []
        whole = [dict(zip(rows[0], row, strict=True)) for row in rows[1:] if len(row) == len(rows[0])] if rows else []
        if len(whole) < len(rows) - 1:
            self.damage.append(f"{path.name} has {len(rows) - 1 - len(whole)} incomplete lines")
        return whole

    def release(self) -> ReleaseCheck | None:
        """The check of the model; None if the model has changed since."""
        check = self.document(ReleaseCheck, self.files.release)
        if check is None or not self.files.model.exists():
            return None
        return check if check.model == model_digest(self.files.model) else None

    def predictions(self) -> Predictions | None:
        predictions, damage = read_predictions(self.files.predictions)
        self.damage += damage
        return predictions


def _features(path: Path) -> list[Encoded]:
    try:
        return FEATURES.validate_python(json.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise ValueError(problem_of(error)) from None
    except (OSError, RecursionError) as reason:
        raise ValueError(str(reason)) from None


def _lines(path: Path) -> list[list[str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.reader(file))
    except (OSError, csv.Error) as reason:
        raise ValueError(str(reason)) from None


def _held_out(predictions: Predictions | None, part: str) -> HeldOut | None:
    """The rows of one part; None without any."""
    if predictions is None or not (predictions.parts == part).any():
        return None
    at = np.flatnonzero(predictions.parts == part)
    codes, names = codes_of([predictions.sites[i] for i in at], plain_cell)
    numbers = predictions.numbers

    def models(kind: str) -> dict[str, Floats]:
        return {m: numbers[f"{head}{kind}"][at] for m, head in HEADS.items() if f"{head}{kind}" in numbers}

    everything = HeldOut(
        labels=predictions.labels[at],
        offsets=np.zeros(1, dtype=np.int64),
        names=(),
        scores=models("score"),
        probabilities=models("probability"),
        units=None if predictions.units is None else predictions.units[at],
        groups={name: _groups([cells[i] for i in at]) for name, cells in predictions.groups.items()},
        rows=None if predictions.rows is None else predictions.rows[at],
    )
    return everything.reordered(codes, names)


def _groups(cells: Sequence[str]) -> NDArray[np.str_]:
    codes, names = codes_of(cells, plain_cell)
    return np.array(names)[codes]

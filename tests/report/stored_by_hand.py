"""Runs as their folders show them, made by hand from plain dictionaries."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from fedsaddle.data.table import Encoded
from fedsaddle.documents.stored import Agreed, Provenance, Roc, Round, SearchOptions, SplitCounts
from fedsaddle.documents.summary import PARTS, STATISTICS, DivergedSummary
from fedsaddle.report.stored_run import StoredRun
from summaries import run_summary, search_summary

COSTS = {"exchanges": 0, "bytes_down": 0, "bytes_up": 0, "samples": 0, "seconds": 0.0}
KINDS = {"roc": Roc, "search": SearchOptions, "provenance": Provenance, "split": SplitCounts, "agreed": Agreed}


def filled(measured: dict[str, Any]) -> dict[str, Any]:
    """The same with all statistics of each measure."""
    spreads = {
        part: {
            measure: dict.fromkeys(STATISTICS, next(iter(own.values()), 0.0)) | own for measure, own in found.items()
        }
        for part in PARTS
        if (found := measured.get(part)) is not None
    }
    return {**measured, **spreads}


def round_of(record: dict[str, Any]) -> Round:
    """An evaluation, with what every evaluation has."""
    some = {} if any(part in record for part in PARTS) else {"train": {"loss": {"mean": 0.0}}}
    return Round.model_validate(filled({"round": 1, **COSTS, **some, **record}))


def split_of(split: dict[str, Any]) -> SplitCounts:
    """The rows of clients, with what every split has."""
    names = split.get("names", [])
    return SplitCounts.model_validate(
        {"data": "", "clients": len(names), "names": names, "train_sizes": [1] * len(names), **split}
    )


def typed(**parts: Any) -> dict[str, Any]:
    """The parts of a run as its models; those that are models already stay as they are."""
    made = {}
    for key, value in parts.items():
        if key == "summary" and isinstance(value, dict):
            if value.get("stopped") == "diverged":
                value = DivergedSummary.model_validate({"round": 1, "client": None, **value})
            elif value:
                value = (search_summary if "choice" in value else run_summary)(**filled(value))
            else:
                value = None
        elif key in ("history", "baseline"):
            value = [r if isinstance(r, Round) else round_of(r) for r in value]
        elif key == "split" and isinstance(value, dict):
            value = split_of(value) if value else None
        elif key == "search" and isinstance(value, dict):
            value = SearchOptions.model_validate({"table": "t.csv", "label": "y", **value}) if value else None
        elif key in KINDS and isinstance(value, dict):
            value = KINDS[key].model_validate(value) if value else None
        elif key == "features":
            value = [one if isinstance(one, Encoded) else Encoded.from_dict(one) for one in value]
        made[key] = value
    return made


def stored(folder: Path | str = "none", **parts: Any) -> StoredRun:
    """A run from plain dictionaries."""
    return StoredRun(folder=Path(folder), **typed(**parts))


def changed(run: StoredRun, **parts: Any) -> StoredRun:
    """The same run with other parts; keys of a summary are added to those that it has."""
    if isinstance(parts.get("summary"), dict) and run.summary is not None and parts["summary"]:
        before = {k: v for k, v in run.summary.to_dict().items() if k != "schema_version"}
        parts["summary"] = {**before, **parts["summary"]}
    return replace(run, **typed(**parts))


def parts_of(run: StoredRun) -> dict[str, Any]:
    """The parts of a run."""
    return {one.name: getattr(run, one.name) for one in fields(run)}


SEARCH_SUMMARY: dict[str, Any] = {
    "algorithm": "FedAvgM, site intercepts",
    "choice": "FedAvgM, site intercepts",
    "aim": "auroc",
    "reason": "the default",
    "positive": "yes",
    "pooled": {
        "choice": {
            key: {"value": 0.8222, "interval": [0.6388, 0.9236]}
            for key in ("auroc", "within_site_auroc", "average_precision")
        },
        "difference": {"auroc": {"value": -0.0044, "interval": [-0.0891, 0.0802]}},
    },
    "probabilities": {"slope": 2.0, "intercept": 0.5, "brier_score": 0.11},
    "threshold": {
        "probability": 0.25,
        "reason": "has the best F1 on the validation rows",
        "test": {"sensitivity": 0.8, "positive_predictive_value": 0.3, "alarms_per_100": 40.0},
    },
    "rows": {
        "train": {"rows": 195, "positives": 29},
        "validation": {"rows": 46, "positives": 5},
        "test": {"rows": 59, "positives": 9},
    },
    "roc": {"single_class_clients": 1, "few_clients": 2},
    "missing": {"lactate": {"share": 0.4, "sites": {"H1": 0.2, "H2": 1.0}}, "age": {"share": 0.01, "sites": {}}},
    "fingerprint": "45ac",
}


def search(**changes: Any) -> StoredRun:
    """A finished search on a table, with the figures that a summary has; `summary` adds or replaces keys."""
    client = {"name": "H", "positives": 0, "negatives": 0, "few": True}
    ranked = {
        "name": "H1",
        "positives": 9,
        "negatives": 9,
        "few": False,
        "auroc": {"value": 0.8, "interval": [0.7, 0.9]},
    }
    model = {"pooled": client, "within_site_auroc": None, "single_class_clients": 0, "few_clients": 0}
    given: dict[str, Any] = {
        "folder": Path("runs/patients"),
        "history": [],
        "split": {"names": ["H1", "H2", "H3"], "clients": 3},
        "search": {
            "table": "patients.csv",
            "site": "hospital",
            "label": "died",
            "drop": ["id"],
            "seed": 0,
            "for": "auroc",
        },
        "roc": {"part": "test", "models": {"FedAvgM": {**model, "clients": [ranked, *[client] * 3]}}},
        "trials": [{"candidate": "FedAvg", "step": "0.3", "gain": "-0.01", "standard_error": "0.02", "note": ""}],
    }
    summary = {**SEARCH_SUMMARY, **changes.pop("summary", {})}
    return StoredRun(**typed(**{**given, "summary": summary, **changes}))


def digits(**changes: Any) -> StoredRun:
    """A finished run that is about the accuracy of clients."""
    spread = {"global": 0.9, "mean": 0.88, "worst": 0.52, "best": 0.99, "std": 0.1, "bottom10": 0.52}
    given: dict[str, Any] = {
        "folder": Path("runs/digits"),
        "summary": {"algorithm": "DRFA", "rounds": 100, "stopped": "finished", "test": {"accuracy": spread}},
        "history": [{"round": 100, "test": {"accuracy": spread}, "clients": {"test": {"accuracy": [0.9, 0.52, 0.99]}}}],
        "config": {"algorithm": {"name": "DRFA"}, "problem": {"name": "supervised"}, "run": {"seed": 3}},
        "split": {"names": ["a", "b", "c"], "clients": 3, "test_sizes": [50, 20, 60], "data": "digits"},
    }
    return StoredRun(**typed(**{**given, **changes}))

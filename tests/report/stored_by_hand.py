"""Runs as their folders tell them, made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsaddle.report.stored_run import StoredRun


def search(**changes: Any) -> StoredRun:
    """A finished search on a table, with the figures that a summary has."""
    figure = {"value": 0.8222, "interval": [0.6388, 0.9236]}
    summary = {
        "algorithm": "FedAvgM, site intercepts",
        "choice": "FedAvgM, site intercepts",
        "aim": "auroc",
        "reason": "the default",
        "positive": "yes",
        "pooled": {
            "choice": {"auroc": figure, "within_site_auroc": figure, "average_precision": figure},
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
    trial = {"candidate": "FedAvg", "step": "0.3", "gain": "-0.01", "standard_error": "0.02", "note": ""}
    given: dict[str, Any] = {
        "folder": Path("runs/patients"),
        "summary": summary,
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
        "roc": {"models": {"FedAvgM": {"clients": [{}, {}, {}, {}]}}},
        "trials": [trial],
    }
    return StoredRun(**{**given, **changes})


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
    return StoredRun(**{**given, **changes})

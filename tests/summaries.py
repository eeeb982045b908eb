"""Summaries made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsaddle.documents.files import RunFiles
from fedsaddle.documents.summary import RunSummary, SearchSummary

LEDGER = {"exchanges": 0, "bytes_down": 0, "bytes_up": 0, "asked": 0, "answered": 0, "samples": 0, "fields": {}}


def run_summary(**changes: Any) -> RunSummary:
    """Of a finished run, with what every run has."""
    found = {
        "algorithm": "DRFA",
        "stopped": "finished",
        "rounds": 1,
        "seconds": 1.0,
        "engine": {"name": "vectorised"},
        "fingerprint": "45ac",
        **changes,
    }
    return RunSummary.model_validate({**found, "ledger": {**LEDGER, **found.get("ledger", {})}})


def write_summary(folder: Path, **changes: Any) -> None:
    """To its file in a folder."""
    RunFiles(folder).write_summary(run_summary(**changes))


def search_summary(**changes: Any) -> SearchSummary:
    """Of a finished search, with what every search has."""
    figures = {"auroc": {"value": 0.8, "interval": [0.7, 0.9]}}
    found = {
        "algorithm": "FedAvgM",
        "choice": "FedAvgM",
        "aim": "auroc",
        "reason": "the default",
        "step": 0.3,
        "positive": "yes",
        "trials": 9,
        "probabilities": {"slope": 2.0, "intercept": 0.5},
        "threshold": {"probability": 0.25, "reason": "has the best F1"},
        "rows": {},
        **changes,
    }
    pooled = {"choice": figures, "FedAvg": figures, "difference": {}, **found.pop("pooled", {})}
    base = run_summary(ledger=found.pop("ledger", {})).to_dict() | found
    return SearchSummary.model_validate({**base, "pooled": pooled})

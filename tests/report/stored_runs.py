"""Runs with two classes, made up: what their folders would hold."""

from __future__ import annotations

import numpy as np
from stored_by_hand import stored

from fedsaddle.metrics.calibration import Platt
from fedsaddle.metrics.ranking import rank
from fedsaddle.report import plots
from fedsaddle.report.stored_run import HeldOut

SUMMARY = {
    "choice": "FedAvgM",
    "algorithm": "FedAvgM",
    "positive": "yes",
    "threshold": {"probability": 0.3, "reason": "has the best F1 on the validation rows"},
}
SEARCH = {"label": "died", "site": "hospital", "table": "t.csv"}


def held_out(sizes=(60, 80, 100), *, seed=0, signal=1.2, base=0.3, groups=None, probabilities=True, fedavg=True):
    """Rows at sites; FedAvg's scores are noisier."""
    rng, rows = np.random.default_rng(seed), sum(sizes)
    y = (rng.random(rows) < base).astype(np.int64)
    s = rng.normal(size=rows) + signal * y - 1.5
    scores = {"choice": s} | ({"FedAvg": s + 2 * rng.normal(size=rows)} if fedavg else {})
    return HeldOut(
        labels=y,
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        names=tuple(f"H{k}" for k in range(len(sizes))),
        scores=scores,
        probabilities={m: Platt.fit(v, y).probability(v) for m, v in scores.items()} if probabilities else {},
        groups=groups or {},
    )


def run_of(test, **others):
    """A search with these test rows."""
    return stored(**{"summary": SUMMARY, "history": [], "search": SEARCH, "test": test, **others})


def roc_of(test, folder):
    """roc.json of the rows."""
    from fedsaddle.files import read_object

    names = {"choice": "FedAvgM", "FedAvg": "FedAvg"}
    found = {names[m]: rank(s, test.labels, test.offsets, test.names) for m, s in test.scores.items()}
    plots.write(found, "test", folder)
    return read_object(folder / "roc.json")

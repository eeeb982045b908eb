"""A search on a table of one's own: what it tries, chooses and writes.

The time budget decides which trials begin, so the outcome must not depend on it: with next to none only FedAvg and the
default are trained, which always are; with an hour all candidates are. Searches compute in single precision, so that on
a machine that is not that of the recording a model may differ by 1e-3. `golden_folder` says how to record anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_command import fedsaddle
from golden_folder import SINGLE, check, folder, metrics, table

PATIENTS = Path(__file__).parents[1] / "data" / "patients.csv"
ROLES = ("--site", "hospital", "--label", "died", "--patient", "patient")


def searched(out: Path, *words: str) -> dict[str, Any]:
    """The folder, its trials and predictions, and the history of FedAvg."""
    outcome = fedsaddle("run", PATIENTS, *ROLES, *words, "--out", out)
    assert outcome.code == 0, outcome.err
    return {
        **folder(out),
        "fedavg": metrics(out / "fedavg" / "metrics.jsonl"),
        "trials": table(out / "trials.csv"),
        "predictions": table(out / "predictions.csv"),
    }


def test_fedavg_and_the_default(tmp_path):
    check("search", searched(tmp_path / "out", "--budget", "0.001s"), elsewhere=SINGLE)


@pytest.mark.slow
@pytest.mark.parametrize("aim", ["auroc", "worst-site"])
def test_all_candidates(aim, tmp_path):
    found = searched(tmp_path / "out", "--budget", "1h", "--for", aim)
    assert found["summary"]["cut"] == [], "the budget ended the search"
    check(f"search_{aim}", found, elsewhere=SINGLE)

"""What a rehearsal says of a run's cost, beside the run itself."""

from __future__ import annotations

import pytest

from fedsaddle.algorithms.protocols import mixture_of
from fedsaddle.config.build import build
from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.config.schema import validate_config
from fedsaddle.runs.cost_probe import Length, rehearse
from fedsaddle.runs.run import run

PROBLEM = {"minimisation": {"name": "supervised", "loss": "logistic"}, "minimax": {"name": "auc"}}
PROBLEM["pairwise"] = {"name": "pairwise", "risk": "auc"}
NEEDED = {
    "DRFA-GA": {"regulariser": {"name": "kl", "strength": 0.1}},
    "CODA+": {"stage_rounds": 2},
    "CODASCA": {"stage_rounds": 2},
}
ROUNDS = 5


def experiment(name: str, **algorithm):
    return validate_config(
        {
            "data": {"name": "breast-cancer"},
            "split": {"name": "iid", "clients": 5},
            "model": {"name": "logistic"},
            "problem": PROBLEM[ALGORITHMS[name].kind],
            "algorithm": {"name": name, **NEEDED.get(name, {}), **algorithm},
            "run": {"rounds": ROUNDS},
        }
    )


FAMILIES = [
    "FedAvg",
    "q-FedAvg",
    "DRFA",
    "DRFA-GA",
    "Local SGDA",
    "FedSGDA-STORM",
    "CODA+",
    "CODASCA",
    "FedX1",
    "FedX2",
]


@pytest.mark.parametrize("name", FAMILIES)
def test_bytes_and_exchanges_are_those_of_the_run(name):
    built = build(experiment(name))
    estimate = rehearse(built.algorithm, built.data, Length(ROUNDS))
    result = run(built.algorithm, built.data, ROUNDS, evaluate_every=ROUNDS)
    ledger = result.summary["ledger"]
    assert estimate.exact == (mixture_of(built.algorithm, result.server) is None)
    assert (estimate.ledger.exchanges, estimate.ledger.fields) == (ledger["exchanges"], ledger["fields"])
    counts = ("bytes_down", "bytes_up", "asked")
    said, true = ([found[k] for k in counts] for found in (estimate.ledger.to_dict(), ledger))
    if estimate.exact:
        assert said == true
    else:
        assert said == pytest.approx(true, rel=0.35)
    assert estimate.parameters == built.algorithm.model(result.server).numel()
    assert estimate.clients == 5


def test_lost_replies_are_lost_in_a_rehearsal_too():
    built = build(experiment("FedAvg"))
    estimate = rehearse(built.algorithm, built.data, Length(ROUNDS, lost_replies=0.5))
    ledger = run(built.algorithm, built.data, ROUNDS, lost_replies=0.5).summary["ledger"]
    assert estimate.ledger.answered == ledger["answered"] < ledger["asked"]
    assert estimate.ledger.bytes_up == ledger["bytes_up"]


def test_long_runs_are_not_counted_to_the_end(monkeypatch):
    monkeypatch.setattr("fedsaddle.runs.cost_probe.COUNTING", 0.0)
    built = build(experiment("FedAvg", sampled_clients=2))
    estimate = rehearse(built.algorithm, built.data, Length(1000))
    assert not estimate.exact
    assert "extrapolated from 2 of 1,000 rounds" in estimate.note
    assert estimate.ledger.bytes_up == 1000 * 2 * estimate.parameters * 4


def test_a_large_cohort_is_asked_in_part(monkeypatch):
    monkeypatch.setattr("fedsaddle.runs.cost_probe.EXCHANGE", 0.0)
    built = build(experiment("q-FedAvg"))
    estimate = rehearse(built.algorithm, built.data, Length(3))
    ledger = run(built.algorithm, built.data, 3).summary["ledger"]
    assert estimate.ledger.bytes_up == ledger["bytes_up"]
    assert estimate.ledger.samples == pytest.approx(ledger["samples"], rel=0.01)  # clients differ by a row

"""Secure aggregation with real processes and TLS, over NVFlare or Flower.

Slow: run with `-m slow` where one of them is installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from real import Federation, ends, same_model, wait

from fedsaddle.commands.deploy import audit
from fedsaddle.deployment.ledger import LEDGER, SECRET
from fedsaddle.deployment.project import RUNS

pytestmark = pytest.mark.slow
FEDAVG = 'name = "FedAvg"\nlocal_steps = 3\nbatch_size = 4\n[privacy]\nsecure_aggregation = true'


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    from fedsaddle.deployment.nvflare import processes

    made = Federation(tmp_path / "trial", sites=4)
    yield made
    made.stop()
    assert not [p for kit in made.started for p in processes.members(kit)], "a process was left behind"


@pytest.mark.skipif(find_spec("nvflare") is None, reason="wants fedsaddle[nvflare]")
def test_over_nvflare_the_model_is_that_of_the_simulation(federation):
    federation.make(FEDAVG, 6, minimum=4)
    federation.start()
    assert "6 rounds, finished" in ends(federation.submit())
    same_model(federation)
    summary = federation.summary()
    assert summary["secure_aggregation"] == {"sums": ["LocalModel.final"], "single": []}
    assert all(site["left_out"] == {} for site in summary["sites"].values())
    print("seconds an exchange:", summary["seconds"] / summary["ledger"]["exchanges"])


@pytest.mark.skipif(find_spec("nvflare") is None, reason="wants fedsaddle[nvflare]")
def test_over_nvflare_a_site_is_killed_and_the_others_open_its_masks(federation):
    federation.make(FEDAVG, 20, timeout=20.0, grace=5.0, minimum=3)
    federation.start()
    run = federation.submit()
    wait(lambda: federation.rounds() >= 4, 600, run)
    federation.kill("site-2")
    ends(run)
    summary = federation.summary()
    assert summary["rounds"] == 20
    assert summary["sites"]["site-2"]["left_out"]
    assert summary["sites"]["site-1"]["answered"] >= 15
    assert summary["train"]["loss"]["mean"] < 1.0


@pytest.mark.skipif(find_spec("nvflare") is None, reason="wants fedsaddle[nvflare]")
def test_over_nvflare_sites_add_their_own_noise_behind_masks(federation, capsys):
    pytest.importorskip("dp_accounting")
    federation.make(f"{FEDAVG}\nepsilon = 8.0", 3, minimum=4)
    federation.start()
    assert "3 rounds, finished" in ends(federation.submit())
    summary = federation.summary()
    assert 0 < summary["privacy"]["epsilon_spent"] <= 8
    assert summary["secure_aggregation"] == {"sums": ["LocalModel.final"], "single": []}
    assert "train" not in summary
    secrets = set()
    for i in range(1, 5):
        (ledger,) = (federation.kit(f"site-{i}") / RUNS).glob(f"*/{LEDGER}")
        kept = json.loads(ledger.read_text())
        assert kept["spent"] == kept["planned"] == [[4, 1, 9]], "three rounds of three steps"
        assert len(kept["answered"]) == 3
        secrets.add((ledger.parent / SECRET).read_bytes())
    assert len(secrets) == 4
    audit(federation.kit("site-1"), None)
    said = capsys.readouterr().out
    assert "sum only" in said
    assert "of 8 spent" in said


def said(run: Path) -> str:
    """The run's log."""
    return (run / "log.txt").read_text() if (run / "log.txt").exists() else ""


@pytest.mark.skipif(find_spec("flwr") is None, reason="wants fedsaddle[flower]")
def test_over_flower_the_model_is_that_of_the_simulation(tmp_path):
    from flower_network import FlowerNetwork

    from fedsaddle.commands.deploy import flower

    made = Federation(tmp_path / "trial", sites=3)
    made.prepare(FEDAVG, 1, timeout=300.0)
    flower(made.folder)
    run = made.folder / "runs" / "run-1"
    with FlowerNetwork(made.folder / "flower", tmp_path / "home") as network:
        network.start("site-1", "site-2", "site-3")
        network.flwr("run", made.folder / "flower" / "app", "here")
        wait(lambda: (run / "summary.json").exists() or "the run ended" in said(run), 1800)
    assert (run / "summary.json").exists(), said(run)
    same_model(made, "runs/run-1", threads=int(network.environment["OMP_NUM_THREADS"]))

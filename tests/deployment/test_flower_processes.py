"""Flower with a SuperLink and SuperNodes on loopback, TLS and node authentication: the model of the simulation.

Slow: run with `-m slow` where Flower is installed.
"""

from __future__ import annotations

import pytest
from real import DRFA, Federation, same_model, wait

from fedsaddle.commands.deploy import flower

pytest.importorskip("flwr")
pytestmark = pytest.mark.slow


@pytest.fixture
def federation(tmp_path):
    """Whose files `fedsaddle deploy flower` wrote."""
    made = Federation(tmp_path / "trial", sites=4)
    made.prepare(DRFA, 1, timeout=300.0)  # a message takes seconds: Flower starts a process for each
    flower(made.folder)
    return made


def test_a_run_over_flower_gives_the_model_of_the_simulation(federation, tmp_path):
    from flower_network import FlowerNetwork

    run = federation.folder / "runs" / "run-1"
    with FlowerNetwork(federation.folder / "flower", tmp_path / "home") as network:
        network.start("site-1", "site-2", "site-3", "site-4")
        network.flwr("run", federation.folder / "flower" / "app", "here")
        wait(lambda: (run / "summary.json").exists(), 1800)
    same_model(federation, "runs/run-1", threads=int(network.environment["OMP_NUM_THREADS"]))


def test_a_node_whose_key_is_not_registered_is_refused(federation, tmp_path):
    from flower_network import FlowerNetwork

    with FlowerNetwork(federation.folder / "flower", tmp_path / "home") as network:
        network.start("site-2")  # the SuperLink is up
        stranger = network.start_node("site-1", registered=False)
        assert stranger.wait(60) != 0
        assert "Failed to activate SuperNode" in (tmp_path / "home" / "site-1.log").read_text()

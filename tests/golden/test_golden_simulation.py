"""A simulation from a config: DRFA with validation rows, checkpoints and the choice of a round, whole and resumed.

`golden_folder` says how to record anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_command import run
from golden_folder import check, folder, table

CONFIG = """
[data]
name = "breast-cancer"
validation_share = 0.2
stratify = true
[split]
name = "dirichlet"
clients = 5
alpha = 0.5
[model]
name = "logistic"
[algorithm]
name = "DRFA"
sampled_clients = 3
local_steps = 3
batch_size = 8
primal_step = 0.1
dual_step = 0.01
[run]
rounds = 12
evaluate_every = 2
checkpoint_every = 3
dtype = "float64"
select = "worst loss"
"""


@pytest.fixture
def drfa(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "drfa.toml"
    config.write_text(CONFIG)
    return config


def simulated(config: Path, *changes: str, resume: bool = False) -> dict[str, object]:
    """The folder `out`, and its predictions."""
    outcome = run(config, *changes, out=Path("out"), resume=resume)
    assert outcome.code == 0, outcome.err
    return {**folder(Path("out")), "predictions": table(Path("out/predictions.csv"))}


def test_the_whole_run(drfa):
    found = simulated(drfa)
    assert found["summary"]["selected_round"] < 12
    check("simulation", found)


def test_half_of_the_rounds_then_the_rest(drfa):
    half = simulated(drfa, "run.rounds=6")
    assert half["summary"]["rounds"] == 6
    check("simulation", simulated(drfa, resume=True), write=False)

"""`fedsaddle check-release`: what leaks is found, in runs and in studies, and what cannot be checked is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cli_command import fedsaddle, no_pictures, run
from table_runs import PATIENTS, searched

CONFIG = """
[data]
name = "file"
path = "{path}"
target = "label"
client = "site"
test_share = 0.35
[split]
name = "natural"
column = "site"
[model]
{model}
[problem]
name = "supervised"
loss = "logistic"
[algorithm]
name = "FedAvg"
local_steps = 8
batch_size = 32
primal_step = 0.3
[run]
rounds = {rounds}
evaluate_every = {rounds}
"""


def planted(folder: Path, rows: int, model: str, rounds: int) -> Path:
    """A finished run on rows with a linear signal; the label of each row is partly chance."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(rows, 8))
    table = pd.DataFrame(x, columns=[f"v{k}" for k in range(8)])
    table["site"] = [f"s{i}" for i in draw.integers(0, 2, rows)]
    table["label"] = (x[:, 0] + draw.logistic(size=rows) > 0).astype(int)
    table.to_csv(folder / "rows.csv", index=False)
    config = folder / "run.toml"
    config.write_text(CONFIG.format(path=folder / "rows.csv", model=model, rounds=rounds))
    with no_pictures():
        assert run(config, out=folder / "out").code in (0, 1)  # a network may end worse than it began
    return folder / "out"


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return planted(tmp_path_factory.mktemp("network"), 60, 'name = "mlp"\nhidden = [64]', 100)


def test_an_overfitted_network_is_not_to_be_released(network):
    done = fedsaddle("check-release", network, "--shadows", 4, "--json")
    assert done.code == 1
    found = json.loads(done.out)
    check = json.loads((network / "release.json").read_text())
    assert found["check"] == check
    assert found["successful"]
    assert max(check[key]["value"] for key in ("loss_threshold", "likelihood_ratio")) >= 0.7
    assert check["members"] + check["others"] == 60
    assert "Do not release this model" in (network / "report.html").read_text()
    assert "Do not release this model" in (network / "MODEL_CARD.md").read_text()
    again = json.loads(fedsaddle("check-release", network, "--shadows", 4, "--json").out)["check"]
    assert {**again, "seconds": 0, "checked": 0} == {**check, "seconds": 0, "checked": 0}


def test_a_regression_on_many_rows_may_be_released_and_only_that_one(tmp_path):
    out = planted(tmp_path, 3000, 'name = "logistic"', 10)
    done = fedsaddle("check-release", out, "--shadows", 4)
    assert done.code == 0, done.out
    assert "No attack recognised training rows better than chance" in done.out
    assert "May the model be released?" in (out / "report.html").read_text()
    model = (out / "model.safetensors").read_bytes()
    (out / "model.safetensors").write_bytes(model[:-4] + b"\0\0\0\0")
    assert fedsaddle("report", out).code == 0
    assert "May the model be released?" not in (out / "report.html").read_text()
    assert "The release check was not made" in (out / "MODEL_CARD.md").read_text()


def test_a_study_of_a_table_is_checked_with_patients_together(tmp_path):
    assert searched(PATIENTS, tmp_path / "out").code == 0
    done = fedsaddle("check-release", tmp_path / "out", "--shadows", 2, "--json")
    found = json.loads(done.out)["check"]
    table = pd.read_csv(PATIENTS)
    assert found["members"] + found["others"] == len(table)
    assert found["smallest_cell"]["rows"] >= 1
    (tmp_path / "out" / "predictions.csv").unlink()  # not what is read
    name = tmp_path / "out" / "search.json"
    name.write_text(name.read_text().replace('"features": "', '"features": "0'))
    done = fedsaddle("check-release", tmp_path / "out", "--shadows", 2)
    assert done.code != 0
    assert "its rows have changed since the study" in done.err


def test_what_cannot_be_checked_is_refused_in_one_line(network, tmp_path):
    rows = network.parent / "rows.csv"
    kept = rows.read_text()
    try:
        rows.write_text(kept.replace("\n", "\n", 1).replace("0.", "1.", 1))
        done = fedsaddle("check-release", network)
        assert "have changed since it was run" in done.err
        rows.unlink()
        assert fedsaddle("check-release", network).err.count("\n") == 1
    finally:
        rows.write_text(kept)
    path = network / "summary.json"
    summary = json.loads(path.read_text())
    site = {"answered": 1, "left_out": {}}
    deployed = tmp_path / "deployed"
    deployed.mkdir()
    for file in network.iterdir():
        if file.is_file():
            (deployed / file.name).write_bytes(file.read_bytes())
    (deployed / "summary.json").write_text(json.dumps({**summary, "sites": {"a": site}}))
    done = fedsaddle("check-release", deployed)
    assert done.code != 0
    assert "its training rows are at real sites" in done.err
    assert fedsaddle("check-release", tmp_path / "none").err.count("\n") == 1
    assert fedsaddle("check-release", network, "--shadows", 1).err.startswith("error: ")

"""predictions.csv of config runs with two classes: the scores of both models, and probabilities where rows allow it."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from cli_command import no_pictures, run
from sklearn.metrics import roc_auc_score
from table_runs import lines, summary

CANCER = """
[data]
name = "breast-cancer"
validation_share = {share}
[split]
name = "iid"
clients = 4
[model]
name = "logistic"
[problem]
name = "auc"
[algorithm]
name = "CODA+"
local_steps = 2
batch_size = 16
[run]
rounds = 3
"""


@pytest.fixture
def config(tmp_path):
    def written(share):
        path = tmp_path / "c.toml"
        path.write_text(CANCER.format(share=share))
        return path

    with no_pictures():
        yield written


def test_both_models_have_scores_and_probabilities(config, tmp_path):
    out = tmp_path / "out"
    assert run(config(0.2), out=out).code == 0
    rows = lines(out / "predictions.csv")
    heads = ["row", "part", "site", "label", "score", "probability", "fedavg_score", "fedavg_probability"]
    assert list(rows[0]) == heads
    assert len({row["row"] for row in rows}) == len(rows)
    assert {row["part"] for row in rows} == {"validation", "test"}
    test = [row for row in rows if row["part"] == "test"]
    y = np.array([int(row["label"]) for row in test])
    for model, column in (("CODA+", "score"), ("FedAvg", "fedavg_score")):
        s = np.array([float(row[column]) for row in test])
        assert summary(out)["roc"][model]["auroc"]["value"] == pytest.approx(roc_auc_score(y, s))


def test_without_validation_rows_there_are_no_probabilities(config, tmp_path):
    out = tmp_path / "out"
    assert run(config(0.0), "run.compare=false", out=out).code == 0
    rows = lines(out / "predictions.csv")
    assert list(rows[0]) == ["row", "part", "site", "label", "score"]
    assert {row["part"] for row in rows} == {"test"}


def test_very_many_rows_and_training_rows_are_not_written(config, tmp_path):
    with mock.patch("fedsaddle.commands.simulation.MOST_PREDICTIONS", 10):
        assert run(config(0.2), "run.compare=false", out=tmp_path / "many").code == 0
    assert run(config(0.0), "run.compare=false", "data.test_share=0.0", out=tmp_path / "none").code == 0
    for name in ("many", "none"):
        assert (tmp_path / name / "roc.json").exists()
        assert not (tmp_path / name / "predictions.csv").exists()

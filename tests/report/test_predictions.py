"""predictions.csv: what is written is read again, quickly, and damaged lines are left out and counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsaddle.data.store import Stacked
from fedsaddle.metrics.calibration import Platt
from fedsaddle.report.predictions import ScoredPart, platt_of, read_predictions, write_predictions
from fedsaddle.report.stored_run import read_run
from summaries import write_summary

SITES = ("=cmd", "Berlin", "a,b")


def part(name, rng, units, groups=()):
    y = torch.tensor(rng.integers(0, 2, 9))
    rows = Stacked(torch.zeros(9, 1), y, np.array([0, 4, 4, 9]), allow_empty=True)
    scores = {"choice": rng.normal(size=9), "FedAvg": rng.normal(size=9)}
    return ScoredPart(name, rows, SITES, scores, np.arange(9), units, dict(groups))


@pytest.fixture
def written(tmp_path):
    rng = np.random.default_rng(0)
    groups = {"sex": np.array(["-f", "m", "=m"] * 3)}
    parts = [
        part("validation", rng, np.array(list("ponmlkjih")), groups),
        part("test", rng, np.array(list("zzyyxxwwz")), groups),
    ]
    write_predictions(tmp_path, parts, platt_of(parts))
    write_summary(tmp_path)
    return tmp_path, parts


def test_a_part_is_read_as_it_was(written):
    folder, (_, test) = written
    run = read_run(folder)
    assert run.damage == ()
    held = run.test
    assert held.names == ("=cmd", "a,b")  # a site without rows has no line
    assert np.diff(held.offsets).tolist() == [4, 5]
    assert held.labels.tolist() == test.rows.y.tolist()
    platt = platt_of(written[1])
    for model, scores in test.scores.items():
        np.testing.assert_allclose(held.scores[model], scores, rtol=1e-7)
        np.testing.assert_allclose(held.probabilities[model], platt[model].probability(scores), rtol=1e-7)
    assert held.groups["sex"].tolist() == ["-f", "m", "=m"] * 3
    assert len(run.validation.labels) == 9


def test_patients_are_numbers_in_the_order_of_the_rows(written):
    run = read_run(written[0])
    assert run.validation.units.tolist() == list(range(9))
    assert run.test.units.tolist() == [9, 9, 10, 10, 11, 11, 12, 12, 9]
    assert "z" not in (written[0] / "predictions.csv").read_text().replace("\n", "").split(",")


def test_without_validation_rows_there_are_scores_only(tmp_path):
    parts = [part("test", np.random.default_rng(1), None)]
    write_predictions(tmp_path, parts, platt_of(parts))
    heads = (tmp_path / "predictions.csv").read_text().split("\n", 1)[0]
    assert heads == "row,part,site,label,score,fedavg_score"


def test_one_class_among_the_validation_rows_gives_no_probabilities():
    own = part("validation", np.random.default_rng(2), None)
    own.rows.y[:] = 1
    assert platt_of([own]) == {}
    own.rows.y[0] = 0
    assert isinstance(platt_of([own])["FedAvg"], Platt)


BAD = {
    "cut off": "7,test,Ber",
    "no number": "7,test,Berlin,1,zero,0.5",
    "not finite": "7,test,Berlin,1,inf,0.5",
    "another label": "7,test,Berlin,2,0.1,0.5",
    "no share": "7,test,Berlin,1,0.1,1.5",
    "no label": "7,test,Berlin,,0.1,0.5",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_damaged_lines_are_left_out_and_counted(tmp_path, line):
    good = "row,part,site,label,score,probability\n1,test,Berlin,1,0.2,0.6\n2,test,Paris,0,0.1,0.4\n"
    (tmp_path / "predictions.csv").write_text(good + line + "\n")
    found, damage = read_predictions(tmp_path / "predictions.csv")
    assert found.labels.tolist() == [1, 0]
    assert found.sites == ["Berlin", "Paris"]
    assert damage == ["predictions.csv has 1 lines that are no predictions"]


@pytest.mark.parametrize(
    "content", [b"", b"row,part\n1,test\n", b"\xff\xfe", b"part,site,label,score\nx,y,z,w\n", b"\0"]
)
def test_a_file_without_predictions_is_none(tmp_path, content):
    (tmp_path / "predictions.csv").write_bytes(content)
    found, damage = read_predictions(tmp_path / "predictions.csv")
    assert found is None
    assert len(damage) == 1
    assert read_predictions(tmp_path / "none.csv") == (None, [])

"""`fedsaddle predict`: the probabilities of `load_model.py`, and one line for what it cannot do."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from cli_command import fedsaddle

import fedsaddle as fs
from fedsaddle.studies import search

PATIENTS = Path(__file__).parents[1] / "data" / "patients.csv"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out, real = tmp_path_factory.mktemp("study") / "out", search.candidates
    with (
        mock.patch.object(search, "candidates", lambda *a: [replace(c, rounds=4, steps=(0.3,)) for c in real(*a)][:2]),
        mock.patch("fedsaddle.studies.table_study.Finished._draw"),
    ):
        fs.study(PATIENTS, site="hospital", label="died", patient="patient", budget=None, out=out, workers=1)
    return out


def test_new_rows_get_the_probabilities_of_the_loader(run, tmp_path):
    rows = pd.read_csv(PATIENTS, dtype=str, keep_default_na=False)
    new = rows.drop(columns=["died", "patient"]).iloc[::-1]
    new.to_csv(tmp_path / "new.csv", index=False)
    done = fedsaddle("predict", run, tmp_path / "new.csv", "--out", tmp_path / "p.csv", "--json")
    assert done.code == 0, done.err
    told = pd.read_csv(tmp_path / "p.csv")
    spec = importlib.util.spec_from_file_location("loader_for_predict", run / "load_model.py")
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    exact = np.array(loader.predict(new))
    np.testing.assert_allclose(told["probability"], exact, rtol=0, atol=1e-6)
    assert (told["called_positive"] == (exact >= loader.THRESHOLD)).all()
    assert told["row"].tolist() == list(range(len(rows)))
    document = json.loads(done.out)
    assert (document["rows"], document["threshold"]) == (len(rows), loader.THRESHOLD)
    stored = pd.read_csv(run / "predictions.csv")
    ours = told["probability"].to_numpy()[::-1]
    np.testing.assert_allclose(ours[stored["row"]], stored["probability"], rtol=0, atol=2e-6)


def test_rows_of_a_new_site(run, tmp_path):
    rows = pd.read_csv(PATIENTS, dtype=str, keep_default_na=False).drop(columns="hospital")
    rows.to_csv(tmp_path / "new.csv", index=False)
    done = fedsaddle("predict", run, tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    assert done.code == 0, done.err
    assert "no column 'hospital' for the site: its mean intercept counts" in done.err
    assert f"{len(rows)} rows" in done.out


def test_what_cannot_be_predicted_is_one_line(run, tmp_path):
    rows = pd.read_csv(PATIENTS, dtype=str, keep_default_na=False)
    rows.drop(columns="age").to_csv(tmp_path / "lacks.csv", index=False)
    rows.assign(age="old").to_csv(tmp_path / "words.csv", index=False)
    rows.iloc[:0].to_csv(tmp_path / "empty.csv", index=False)
    cases = [
        ((run, tmp_path / "lacks.csv"), "has no column 'age', which the model needs"),
        ((run, tmp_path / "words.csv"), "row 1, column 'age'"),
        ((run, tmp_path / "none.csv"), "none.csv"),
        ((tmp_path, PATIENTS), "there is no load_model.py; name the folder of a finished run"),
    ]
    for given, said in cases:
        done = fedsaddle("predict", *given, "--out", tmp_path / "p.csv")
        assert done.code == 2, done.err
        assert said in done.err
        assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "p.csv").exists()
    lenient = fedsaddle("predict", run, tmp_path / "words.csv", "--out", tmp_path / "p.csv", "--lenient")
    assert lenient.code == 0, lenient.err
    assert "column 'age'" in lenient.err

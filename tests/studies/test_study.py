"""`fs.study`: what `fedsaddle run TABLE` does, from Python."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import fedsaddle as fs
from fedsaddle.data.splits import Natural
from fedsaddle.errors import BadCheckpoint, BadInput, NotGiven
from fedsaddle.studies import search

PATIENTS = Path(__file__).parents[1] / "data" / "patients.csv"
ROLES = {"site": "hospital", "label": "died", "patient": "patient"}
CLOCKS = ("seconds", "engine")


@pytest.fixture(scope="module", autouse=True)
def short():
    real = search.candidates
    with (
        mock.patch.object(search, "candidates", lambda *a: [replace(c, rounds=6, steps=(0.3,)) for c in real(*a)]),
        mock.patch("fedsaddle.studies.table_study.Finished._draw"),
    ):
        yield


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    return fs.study(PATIENTS, **ROLES, budget=None, out=out, workers=1)


def without_clocks(summary):
    return {key: value for key, value in summary.items() if key not in CLOCKS}


def test_the_folder_is_that_of_the_command(found, tmp_path):
    from typer.testing import CliRunner

    from fedsaddle.cli import app

    out = tmp_path / "out"
    words = [word for key, value in ROLES.items() for word in (f"--{key}", value)]
    done = CliRunner().invoke(app, ["run", str(PATIENTS), *words, "--out", str(out), "--budget", "1h"])
    assert done.exit_code == 0, done.output
    names = [sorted(p.relative_to(f).as_posix() for p in f.rglob("*") if p.is_file()) for f in (found.folder, out)]
    assert names[0] == names[1]
    theirs = json.loads((out / "summary.json").read_text())
    assert theirs.pop("budget") == 3600
    ours = json.loads((found.folder / "summary.json").read_text())
    assert ours.pop("budget") is None
    assert without_clocks(ours) == without_clocks(theirs)
    for name in ("model.safetensors", "predictions.csv", "load_model.py", "fedsaddle.toml"):
        assert (found.folder / name).read_bytes() == (out / name).read_bytes(), name


def test_what_it_gives(found):
    assert found.report == found.folder / "report.html"
    assert found.report.exists()
    assert set(found.test) == {found.choice.name, "FedAvg"}
    assert found.summary.to_dict() == json.loads((found.folder / "summary.json").read_text())
    assert found.summary.to_dict()["threshold"]["probability"] == found.threshold.probability
    assert found.summary.to_dict()["probabilities"]["slope"] == found.calibration.slope
    assert found.leave_one_out is None
    assert str(found).startswith(f"{found.choice.name}: AUROC 0.")


@pytest.mark.filterwarnings("ignore:column")
def test_probabilities_of_later_rows_are_those_of_the_loader(found):
    rows = pd.read_csv(PATIENTS)
    stored = pd.read_csv(found.folder / "predictions.csv")
    np.testing.assert_allclose(found.predict(rows)[stored["row"]], stored["probability"], rtol=0, atol=2e-6)
    spec = importlib.util.spec_from_file_location("loader_of_this_study", found.folder / "load_model.py")
    load_model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(load_model)
    some = rows.head(20).assign(hospital="a new one")
    theirs = load_model.predict(some, strict=False)
    np.testing.assert_allclose(found.predict(some), theirs, rtol=0, atol=2e-6)
    np.testing.assert_allclose(found.predict(some.iloc[0].to_dict()), theirs[:1], rtol=0, atol=2e-6)
    with pytest.raises(BadInput, match="no column 'age'"):
        found.predict(rows.drop(columns="age"))


def test_a_data_frame_without_a_folder(found):
    frame = pd.read_csv(PATIENTS, dtype=str, keep_default_na=False)
    again = fs.study(frame, **ROLES, budget=None, workers=1)
    assert (again.folder, again.report) == (None, None)
    assert again.choice.name == found.choice.name
    np.testing.assert_array_equal(again.choice.chosen.vector, found.choice.chosen.vector)
    assert again.summary.pooled == found.summary.pooled
    np.testing.assert_array_equal(again.predict(frame), found.predict(frame))


def test_data_that_are_federated_already(found):
    table = fs.from_frame(pd.read_csv(PATIENTS), site="hospital", label="died", patient="patient", positive="yes")
    data = fs.federate(table, Natural("hospital"), 0, 0.2, True, 0.16)
    again = fs.study(data, budget=0.0, workers=1, out=None)
    assert again.test["FedAvg"].pooled.to_dict()["auroc"]["value"] > 0.5
    assert again.predict(data.test.x).shape == (len(data.test.y),)
    with pytest.raises(BadInput, match=r"rows\.shape"):
        again.predict(np.zeros((3, 2)))


class Stopping(fs.StudyWatch):
    def __init__(self):
        self.rounds, self.began = 0, False

    def begin(self, data, notes, cautions, seconds):
        self.began = data.count == 12 and any("admitted" in note for note in notes) and seconds < 1

    def trial(self, trial, done, best):
        self.rounds += 1

    def stop(self):
        return self.rounds >= 3


def test_a_study_that_was_stopped_goes_on(found, tmp_path):
    watch, out = Stopping(), tmp_path / "out"
    with pytest.raises(search.Interrupted):
        fs.study(PATIENTS, **ROLES, budget=None, out=out, workers=1, watch=watch)
    assert watch.began
    assert not (out / "summary.json").exists()
    with pytest.raises(BadInput, match=r"out = .*: holds a run already; resume it"):
        fs.study(PATIENTS, **ROLES, out=out)
    with pytest.raises(BadCheckpoint, match=r"`aim` = 'accuracy': the search in .* has 'auroc'"):
        fs.study(PATIENTS, **ROLES, out=out, resume=True, aim="accuracy")
    again = fs.study(PATIENTS, **ROLES, budget=None, out=out, workers=1, resume=True)
    assert again.summary.pooled == found.summary.pooled
    with pytest.raises(BadInput, match="is finished; choose another `out`"):
        fs.study(PATIENTS, **ROLES, out=out, resume=True)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"label": "died"}, "site is missing: name the column"),
        ({"site": "hospital"}, "label is missing: name the column"),
        ({**ROLES, "label": "dead"}, "label = 'dead': there is no such column"),
        ({**ROLES, "site": "died"}, "site = 'died': is `label` too"),
        ({"site": "hospital", "label": "patient"}, "label = 'patient': has 281 values, and at most 20 classes"),
        ({**ROLES, "positive": "maybe"}, "positive = 'maybe': is not a value of column 'died'"),
        ({**ROLES, "aim": "speed"}, "aim = 'speed': choose one of auroc"),
        ({**ROLES, "budget": -1}, "budget = -1"),
        ({**ROLES, "sensitivity": 2}, "sensitivity = 2"),
        ({**ROLES, "drop": "age"}, "drop = 'age': must be a list of column names"),
        ({**ROLES, "test_sites": ["H99"]}, "test_sites = 'H99': is no client; did you mean"),
        ({**ROLES, "test_sites": ["H01"], "leave_one_site_out": True}, "leave_one_site_out = True: tests every site"),
        ({**ROLES, "resume": True}, "resume = True: needs `out`"),
        ({**ROLES, "seed": 0.5}, "seed = 0.5"),
        ({**ROLES, "watch": print}, "must be an fs.StudyWatch"),
    ],
)
def test_bad_arguments_are_one_plain_error(given, said):
    with pytest.raises((BadInput, NotGiven)) as error:
        fs.study(PATIENTS, **given)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert "--" not in str(error.value)


def test_what_is_no_table():
    with pytest.raises(BadInput, match="data = 'list': must be the path of a table"):
        fs.study([1, 2], **ROLES)
    data = fs.load("breast-cancer", split="iid", clients=3, validation_share=0.2)
    with pytest.raises(BadInput, match="site = 'x': is for a table"):
        fs.study(data, site="x")
    with pytest.raises(BadInput, match="leave_one_site_out = True: needs a table"):
        fs.study(data, leave_one_site_out=True)
    with pytest.raises(BadInput, match="validation rows = 0"):
        fs.study(fs.load("breast-cancer", split="iid", clients=3))


def test_the_coefficients_are_those_of_a_penalised_regression_on_the_pooled_rows(found):
    own, data = found.summary.coefficients, found.choice.default.data
    assert (own.measure, own.of) == ("odds ratio", found.choice.default.name)
    patients = pd.read_csv(PATIENTS)["patient"].to_numpy()[data.train_rows]
    assert own.patients == len(np.unique(patients))
    x = np.column_stack([data.train.x.double().numpy(), np.ones(len(data.train.y))])
    y = data.train.y.double().numpy()
    R = np.diag([own.penalty] * (x.shape[1] - 1) + [0.0])
    w = np.zeros(x.shape[1])
    for _ in range(40):
        p = 1 / (1 + np.exp(-x @ w))
        H = (x * (p * (1 - p))[:, None]).T @ x + R
        w -= np.linalg.solve(H, x.T @ (p - y) + R @ w)
    score = pd.DataFrame(x * (p - y)[:, None]).groupby(patients).sum().to_numpy()
    covariance = np.linalg.inv(H) @ (score.T @ score + R) @ np.linalg.inv(H)
    at = {f.name: k for k, f in enumerate(data.encoding)}
    feature = next(f for f in data.encoding if f.kind == "number" and f.column == "age")
    k, unit = at["age"], float(own.listed[0].name.removeprefix("age, per "))
    assert own.listed[0].estimate == pytest.approx(w[k] * unit / feature.std, abs=1e-6)
    assert own.listed[0].standard_error == pytest.approx(np.sqrt(covariance[k, k]) * unit / feature.std, rel=1e-5)
    assert {site.site for site in own.sites} == set(data.names)

"""`fs.study` of several classes, a number, a count and a time to an event: what it writes, predicts and refuses."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

import fedsaddle as fs
from fedsaddle.cli import app
from fedsaddle.documents.files import RunFiles
from fedsaddle.documents.summary import OutcomeSummary
from fedsaddle.errors import BadInput, NotGiven
from fedsaddle.problems.protocols import DataFacts
from fedsaddle.studies import outcomes as module
from fedsaddle.studies.aims import OUTCOME_AIMS, Rows
from fedsaddle.studies.table_config import TableConfig

N = 600
KINDS = {
    "number": {"label": "score"},
    "classes": {"label": "stage"},
    "count": {"label": "falls", "family": "poisson", "exposure": "years"},
    "survival": {"time": "days", "event": "died"},
}
COLUMNS = ("score", "stage", "falls", "years", "days", "died")
each = pytest.mark.parametrize("kind", KINDS)


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "site": rng.choice(list("ABCD"), n),
            "age": rng.normal(60, 10, n).round(),
            "sex": rng.choice(["f", "m"], n),
            "lab": rng.exponential(size=n).round(3),
        }
    )
    s = 0.05 * (frame.age - 60) + 0.5 * (frame.sex == "m") + 0.3 * frame.lab
    p = np.exp(np.stack([0 * s, s, -s], 1))
    stage = (rng.random((n, 1)) > (p / p.sum(1, keepdims=True)).cumsum(1)).sum(1)
    frame["score"] = (20 + 5 * s + rng.normal(0, 4, n)).round(2)
    frame["stage"] = np.array(["I", "II", "III"])[stage.clip(0, 2)]
    frame["years"] = rng.uniform(0.5, 5, n).round(2)
    frame["falls"] = rng.poisson(frame.years * np.exp(s - 1))
    time, end = rng.exponential(500 * np.exp(-s)), rng.uniform(50, 1500, n)
    frame["days"], frame["died"] = np.minimum(time, end).round(1), np.where(time <= end, "yes", "no")
    return frame


def arguments(kind):
    own = KINDS[kind]
    return {"site": "site", **own, "drop": [c for c in COLUMNS if c not in own.values()], "groups": ["sex"]}


@pytest.fixture(scope="module")
def short():
    real = module.outcome_candidates

    def fewer(*given):
        return [c if c.exact else replace(c, rounds=8, steps=(0.1, 0.3)) for c in real(*given)]

    with (
        mock.patch("fedsaddle.studies.study.outcome_candidates", fewer),
        mock.patch("fedsaddle.studies.search.EXTENSIONS", 0),
    ):
        yield


@pytest.fixture(scope="module")
def studies(short, tmp_path_factory):
    frame, made = rows(), {}

    def study(kind):
        if kind not in made:
            out = tmp_path_factory.mktemp(kind) / "out"
            made[kind] = fs.study(frame, **arguments(kind), budget=None, out=out, workers=1)
        return made[kind]

    return study


@each
def test_the_files_and_the_summary(kind, studies):
    found = studies(kind)
    stored = RunFiles(found.folder).stored_summary()
    assert isinstance(stored, OutcomeSummary)
    assert stored.outcome == kind == found.outcome.kind
    assert stored.figures.keys() == {"choice", "FedAvg", "difference"}
    for figure in stored.figures["choice"].values():
        low, high = figure.interval
        assert low < figure.value < high
    assert {site.name for site in stored.site_figures} == set("ABCD")
    assert {group.name for group in stored.groups["sex"]} == {"f", "m"}
    assert (kind == "classes") == (not stored.calibration)
    assert (kind == "survival") == bool(stored.curves)
    predictions = pd.read_csv(found.folder / "predictions.csv")
    assert len(predictions) == stored.rows["test"]
    label = {"number": "score", "count": "falls", "classes": "stage", "survival": "days"}[kind]
    own = predictions["time" if kind == "survival" else "label"]
    assert (own.to_numpy() == rows()[label].to_numpy()[predictions["row"]]).all() or kind in ("number", "survival")
    one = "log_hazard_ratio" if kind == "survival" else "prediction"
    first = predictions["probability of I"] if kind == "classes" else predictions[one]
    again = found.predict(rows().iloc[predictions["row"]])
    again = again[:, 0] if kind == "classes" else np.log(again) if kind == "survival" else again
    np.testing.assert_allclose(first, again, rtol=1e-4, atol=1e-5)
    page = (found.folder / "report.html").read_text()
    assert "At which site it is worst" in page
    assert "Left out" not in page
    assert ("Kaplan-Meier" in page) == (kind == "survival")
    assert "Odds ratios" in page or kind != "classes"
    assert (found.folder / "MODEL_CARD.md").exists()


def test_what_is_for_two_classes_refuses_the_folder(studies):
    found = CliRunner().invoke(app, ["compare", str(studies("number").folder), str(studies("number").folder)])
    assert isinstance(found.exception, BadInput)
    assert "is a study of the outcome 'number'" in str(found.exception)
    again = CliRunner().invoke(app, ["report", str(studies("number").folder)])
    assert again.exit_code == 0, again.output


@each
def test_what_is_learnt_is_better_than_nothing(kind, studies):
    name, least = {
        "number": ("r2", 0.1), "classes": ("macro_auroc", 0.6), "count": ("explained", 0.1),
        "survival": ("concordance", 0.58),
    }[kind]  # fmt: skip
    found = studies(kind)
    assert found.summary.figures["choice"][name].value > least
    assert name.replace("_", " ") in str(found)


@each
def test_the_loader_predicts_as_the_study(kind, studies, tmp_path):
    found, frame = studies(kind), rows().drop(columns=list(COLUMNS)).iloc[:20]
    spec = importlib.util.spec_from_file_location(f"load_{kind}", found.folder / "load_model.py")
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    text = io.StringIO()
    frame.to_csv(text, index=False)
    cells = list(csv.DictReader(io.StringIO(text.getvalue())))
    predicted = np.array(own.predict(cells))
    theirs = found.predict_survival(frame, own.TIMES) if kind == "survival" else found.predict(frame)
    np.testing.assert_allclose(predicted, theirs, rtol=1e-5)
    assert own.predict(cells[0]) == pytest.approx(predicted[0].tolist())
    frame.to_csv(tmp_path / "later.csv", index=False)
    words = ["predict", str(found.folder), str(tmp_path / "later.csv"), "--out", str(tmp_path / "p.csv")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    written = pd.read_csv(tmp_path / "p.csv")
    assert tuple(written.columns) == ("row", *own.OUTPUTS)
    np.testing.assert_allclose(written.iloc[:, 1:].to_numpy().squeeze(), predicted, atol=2e-6)
    if kind == "classes":
        assert own.CLASSES == ("I", "II", "III")
        np.testing.assert_allclose(predicted.sum(1), 1, atol=1e-6)
    if kind != "survival":
        with pytest.raises(BadInput, match="has no survival"):
            found.predict_survival(frame, [1.0])


@each
def test_coefficients_are_those_of_statsmodels(kind, studies):
    """The penalty is small, so that they agree to a part of a standard error."""
    sm = pytest.importorskip("statsmodels.api")
    found = studies(kind)
    at = found.choice.default.data.train_rows
    frame = rows().iloc[at]
    X = np.column_stack([frame.age, frame.sex == "m", *(frame.site == s for s in "ABCD")]).astype(float)
    lab = np.log2(1 + frame.lab) if any("doubling" in c.name for c in found.summary.coefficients.listed) else frame.lab
    X = np.column_stack([X[:, :2], lab, X[:, 2:]])
    if kind == "number":
        theirs = sm.OLS(frame.score, X).fit()
    elif kind == "classes":
        theirs = sm.MNLogit(np.unique(frame.stage, return_inverse=True)[1], X).fit(disp=0)
    elif kind == "count":
        theirs = sm.GLM(frame.falls, X, family=sm.families.Poisson(), exposure=frame.years).fit()
    else:
        died = (frame.died == "yes").astype(int)
        theirs = sm.PHReg(frame.days, X[:, :3], status=died, strata=frame.site, ties="efron").fit()
    params, errors = (np.asarray(v).reshape(len(np.asarray(v)), -1).T for v in (theirs.params, theirs.bse))
    own = {c.name: c for c in found.summary.coefficients.listed}
    classes = ["II: ", "III: "] if kind == "classes" else [""]
    for k, front in enumerate(classes):
        for j, column in enumerate(("age, per ", "sex: m against f", "lab, per ")):
            starts = (front + column, f"{front}sex: f against m" if column.startswith("sex") else front + column)
            name = next(name for name in own if name.startswith(starts))
            unit = float(name.rpartition(" ")[2]) if "per " in column and "doubling" not in name else 1.0
            unit = -1.0 if name.endswith("f against m") else unit
            assert own[name].estimate == pytest.approx(unit * params[k, j], abs=0.1 * errors[k, j] * abs(unit))
            assert own[name].standard_error == pytest.approx(abs(unit) * errors[k, j], rel=0.03)
    measure = {"number": "difference", "classes": "odds ratio", "count": "rate ratio", "survival": "hazard ratio"}[kind]
    assert found.summary.coefficients.measure == measure
    assert found.summary.coefficients.against == ("I" if kind == "classes" else None)


@each
def test_the_worst_site_is_an_aim_too(kind, short):
    if kind == "survival":
        with pytest.raises(BadInput, match="is not for a time to an event; choose one of partial-likelihood"):
            fs.study(rows(), **arguments(kind), aim="worst-site")
        return
    found = fs.study(rows(), **arguments(kind), aim="worst-site", budget=None, workers=1)
    assert found.choice.aim.startswith("worst-")
    assert any("then DRFA" in record.candidate for record in found.choice.trials)
    assert found.folder is None


@pytest.mark.usefixtures("short")
def test_a_stopped_study_goes_on(tmp_path):
    class Stop(fs.StudyWatch):
        begun = 0

        def trial(self, trial, done, best):
            self.begun += 1

        def stop(self):
            return self.begun > 20

    with pytest.raises(Exception, match="Continue with --resume"):
        fs.study(rows(), **arguments("number"), budget=None, out=tmp_path, workers=1, watch=Stop())
    found = fs.study(rows(), **arguments("number"), budget=None, out=tmp_path, workers=1, resume=True)
    assert json.loads((tmp_path / "summary.json").read_text())["outcome"] == "number"
    assert found.summary.figures["choice"]["r2"].value > 0


def test_what_a_label_is():
    frame = rows(200)
    frame["code"] = np.arange(200) % 4
    frame["many"] = np.arange(200) % 30
    frame["two"] = frame.code > 1
    labels = ("code", "many", "score", "stage", "two")
    kind = {label: TableConfig(frame, "site", label).with_outcome()[1] for label in labels}
    assert kind == {"code": "classes", "many": "number", "score": "number", "stage": "classes", "two": None}


@pytest.mark.parametrize(
    ("change", "given", "match"),
    [
        ({"days": -1.0}, "survival", r"row 1, column 'days' = -1\.0: is a negative time"),
        ({"died": "yes"}, "survival", "event = 'died': never or always happens: all rows have 'yes'"),
        ({"died": "no"}, "survival", "event = 'died': never or always happens"),
        ({"falls": -1}, "count", "is no count"),
        ({"falls": 1.5}, "count", "is no count"),
        ({"falls": 0}, "count", "label = 0: is 0 in all training rows"),
        ({"years": 0.0}, "count", r"column 'years' = 0\.0: is no exposure, which must be above 0"),
        ({"years": "x"}, "count", "has cells that are empty or no numbers"),
        ({"score": 1e300}, "number", r"row 1, column 'score' = '1e\+300': is not a finite number"),
        ({"score": 3.0}, "number", "is the same number in all training rows"),
    ],
)
def test_labels_that_cannot_be_learnt(change, given, match):
    frame = rows(120)
    for column, value in change.items():
        frame[column] = frame[column].astype(object)
        one = value in (-1.0, -1, 1.5, 0.0, "x", 1e300)
        frame.loc[frame.index[:1] if (one and column != "falls") or value == -1 else frame.index, column] = value
    own = {**arguments(given), **({"family": "number"} if given == "number" else {})}
    with pytest.raises(BadInput, match=match) as refused:
        fs.study(frame, **own)
    assert "\n" not in str(refused.value)


def test_a_class_with_two_rows():
    frame = rows(200)
    frame.loc[:1, "stage"] = "IV"
    with pytest.raises(BadInput, match="with label 'IV' = 0: each part needs rows of every class; merge"):
        fs.study(frame, **arguments("classes"))


def test_more_parameters_than_newton_takes():
    frame = rows(300)
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(300, 600)).round(3), columns=[f"c{k}" for k in range(600)])
    table = pd.concat([frame[["site", "score"]], wide], axis=1)
    own = TableConfig(table, "site", "score")
    data, outcome = module.prepared(own.federated(own.with_outcome()[0], hinges=False), "number")
    listed = module.outcome_candidates(data, outcome, "squared-error")
    assert listed[1].algorithm == "FedAvg"
    assert listed[1].options["server_momentum"] == 0.9


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"label": "score", "family": "gamma"}, "choose one of"),
        ({"label": "score", "exposure": "years"}, "is for counts; say `family` poisson"),
        ({"label": "score", "horizon": 3.0}, "is for a time to an event"),
        ({"label": "score", "positive": "1", "family": "number"}, "is for two classes"),
        ({"label": "score", "sensitivity": 0.9}, "is for two classes"),
        ({"label": "score", "leave_one_site_out": True}, "is for two classes"),
        ({"label": "score", "aim": "auroc"}, "is not for a number; choose one of squared-error, worst-site"),
        ({"time": "days"}, "event"),
        ({"event": "died"}, "time"),
        ({"time": "days", "event": "died", "label": "score"}, "is the time of the event here"),
        ({"time": "days", "event": "died", "horizon": -1.0}, "horizon"),
        ({"time": "days", "event": "died", "family": "number"}, "is not for a time to an event"),
        ({"time": "days", "event": "stage"}, "write 1 for an event and 0 for none"),
    ],
)
def test_arguments_that_do_not_go_together(given, match):
    with pytest.raises((BadInput, NotGiven), match=match):
        fs.study(rows(120), site="site", **given)


def test_the_partial_likelihood_that_chooses_is_that_of_each_site():
    rng = np.random.default_rng(0)
    n = 60
    scores, time = rng.normal(size=n), np.ceil(4 * rng.exponential(size=n))
    event, site = (rng.random(n) < 0.6).astype(float), np.sort(rng.integers(0, 3, n))
    weights = rng.integers(0, 3, n).astype(float)
    total = count = 0.0
    for i in range(n):
        at_risk = sum(w * np.exp(s) for w, s, t, k in zip(weights, scores, time, site, strict=True)
                      if t >= time[i] and k == site[i])  # fmt: skip
        if event[i] and weights[i]:
            total += weights[i] * (scores[i] - np.log(at_risk))
            count += weights[i]
    own = OUTCOME_AIMS["partial-likelihood"]
    rows_of = Rows(np.stack([time, event], 1), site, np.arange(n))
    assert own.figure(scores, rows_of, weights) == pytest.approx(total / count, abs=1e-12)


def test_losses_that_choose_are_those_of_torch():
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(40, 3)), rng.integers(0, 3, 40)
    rows_of = Rows(y, np.repeat([0, 1], 20), np.arange(40))
    loss = torch.nn.functional.cross_entropy(torch.from_numpy(scores), torch.from_numpy(y), reduction="none").numpy()
    assert OUTCOME_AIMS["log-loss"].value(scores, rows_of) == pytest.approx(-loss.mean())
    worst = max(loss[:20].mean(), loss[20:].mean())
    assert OUTCOME_AIMS["worst-log-loss"].value(scores, rows_of) == pytest.approx(-worst)
    counts = np.stack([rng.poisson(2.0, 40), rng.uniform(0.5, 2, 40)], 1)
    own = fs.losses.Poisson().value(torch.from_numpy(scores[None, :, :1]), torch.from_numpy(counts[None])).numpy()[0]
    constant = torch.lgamma(torch.from_numpy(counts[:, 0]) + 1).numpy() - counts[:, 0] * np.log(counts[:, 1])
    found = OUTCOME_AIMS["deviance"].value(scores[:, 0], Rows(counts, rows_of.site, rows_of.unit))
    assert found == pytest.approx(-(own - constant).mean())


CONFIG = """
[data]
name = "file"
path = {path!r}
target = "days"
event = "died"
client = "site"
drop = ["score", "stage", "falls", "years"]

[split]
name = "natural"
column = "site"

[model]
name = "logistic"

[problem]
name = "cox"
l2 = 0.001

[algorithm]
name = "Newton"

[run]
rounds = 12
"""


def test_a_config_of_survival_finds_the_same_coefficients(tmp_path):
    frame = rows(200)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "cox.toml").write_text(CONFIG.format(path=str(tmp_path / "rows.csv")))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "cox.toml"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    drop = ["score", "stage", "falls", "years"]
    dataset = fs.from_frame(frame, site="site", label="days", event="died", drop=drop)
    data = fs.federate(dataset, fs.splits.Natural("site"))
    problem = fs.Cox(torch.nn.Linear(len(data.features), 1, bias=False), l2=0.001)
    expected = fs.run(fs.Newton(problem=problem), data, rounds=12).model
    (weights,) = load_file(tmp_path / "out" / "model.safetensors").values()
    torch.testing.assert_close(weights[0].double(), expected.double(), atol=1e-5, rtol=1e-5)
    facts = DataFacts("made up", (3,), ("no", "yes"), (5, 5))
    with pytest.raises(BadInput, match="two numbers a row"):
        fs.Cox.from_data(facts, lambda scores: torch.nn.Linear(3, scores))

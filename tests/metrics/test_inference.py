"""Effects of a table's columns in units that a person knows, against statsmodels on the columns as they are."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from torch import nn

import fedsaddle as fs

N = 600


def table():
    """Numbers on several scales, zeros and ones, two and three values, cells that are missing."""
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {
            "site": np.array(["north", "south", "west"])[np.arange(N) % 3],
            "age": rng.normal(60, 13, N).round(2),
            "crp": np.exp(rng.normal(1, 1.5, N)).round(3),
            "diabetes": (rng.random(N) < 0.3).astype(float),
            "smoker": np.where(rng.random(N) < 0.4, "yes", "no"),
            "ward": rng.choice(["icu", "medical", "surgical"], N),
        }
    )
    score = 0.04 * (frame.age - 60) + 0.5 * (frame.smoker == "yes") - 0.6 * (frame.ward == "icu") + 0.4 * frame.diabetes
    frame["died"] = (rng.random(N) < 1 / (1 + np.exp(-score))).astype(int)
    return frame


def fitted(frame, l2=0.0, drop=()):
    dataset = fs.from_frame(frame, label="died", site="site", drop=drop)
    data = fs.federate(dataset, fs.splits.Natural("site"), test_share=0.0)
    model = nn.Linear(len(data.features), 1)
    problem = fs.Supervised(model, fs.losses.Logistic(), l2=l2, l2_biases=False)
    return fs.run(fs.Newton(problem=problem, sandwich=True), data, rounds=12), data


def test_units_of_a_person_are_those_of_statsmodels_on_the_columns_as_they_are():
    sm = pytest.importorskip("statsmodels.api")
    frame = table()
    result, data = fitted(frame, drop=("ward", "crp"))
    found = fs.inference(result).per(data, {"age": 10})
    assert found.names == ("age, per 10", "diabetes: 1 against 0", "smoker: yes against no")
    X = np.column_stack([frame.age / 10, frame.diabetes, frame.smoker == "yes", np.ones(N)]).astype(float)
    plain = sm.Logit(frame.died, X).fit(disp=0, tol=1e-14)
    np.testing.assert_allclose(found.estimate, plain.params[:3], atol=1e-5)  # rows are in single precision
    np.testing.assert_allclose(found.standard_error, plain.bse[:3], atol=1e-5)
    ratios = found.to_pandas(ratios=True)
    np.testing.assert_allclose(ratios["ratio"], np.exp(plain.params[:3]), atol=1e-4)
    np.testing.assert_allclose(ratios[["low", "high"]], np.exp(plain.conf_int()[:3]), atol=1e-4)
    np.testing.assert_allclose(ratios["p_value"], plain.pvalues[:3], atol=1e-5)


def test_categories_are_compared_with_the_first_and_numbers_by_round_units():
    frame = table()
    frame.loc[:20, "age"] = np.nan
    result, data = fitted(frame, l2=1 / N)
    found = fs.inference(result)
    names = {
        "age, per 10", "age: missing against filled", "diabetes: 1 against 0", "ward: medical against icu",
        "ward: surgical against icu", "smoker: yes against no", "crp, per doubling of 1 + it",
    }  # fmt: skip
    per = found.per(data)
    assert set(per.names) == names
    own = dict(zip(found.names, found.estimate, strict=True))
    assert dict(zip(per.names, per.estimate, strict=True))["ward: medical against icu"] == pytest.approx(
        own["ward=medical"] - own["ward=icu"]
    )
    covariance = pd.DataFrame(found.covariance, found.names, found.names)
    two = covariance.loc[["ward=medical", "ward=icu"], ["ward=medical", "ward=icu"]].to_numpy()
    error = dict(zip(per.names, per.standard_error, strict=True))["ward: medical against icu"]
    assert error == pytest.approx(np.sqrt(two[0, 0] + two[1, 1] - 2 * two[0, 1]))


def test_of_several_classes_each_is_compared_with_the_first():
    frame = table()
    frame["died"] = np.where(frame.age > 70, "late", np.where(frame.died, "early", "alive"))
    dataset = fs.from_frame(frame, label="died", site="site", drop=("ward", "crp"))
    data = fs.federate(dataset, fs.splits.Natural("site"), test_share=0.0)
    problem = fs.Supervised(fs.models.logistic_regression(3, 3), l2=0.01)
    result = fs.run(fs.Newton(problem=problem), data, rounds=12)
    found = fs.inference(result, classes=data.classes).per(data)
    assert found.names[:3] == ("early: age, per 10", "early: diabetes: 1 against 0", "early: smoker: yes against no")
    assert len(found.names) == 6


@pytest.fixture(scope="module")
def penalised():
    return fitted(table(), 0.01)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda f, d: f.per(d, {"ag": 10}), "did you mean 'age'"),
        (lambda f, d: f.per(d, {"ward": 10}), "no number column"),
        (lambda f, d: f.per(d, {"age": 0}), "age"),
        (lambda f, d: f.per(d, {"crp": 10}), "logarithm"),
        (lambda f, d: f.per(fs.load("iris", split="iid", clients=3)), "no columns of a table"),
        (lambda f, d: f.per(fitted(table().rename(columns={"age": "years"}), 0.01)[1]), "a column 'years'"),
        (lambda f, d: f.combined([[1.0]], ["a"]), "a column for each of"),
    ],
)
def test_invalid_questions_are_refused(call, match, penalised):
    result, data = penalised
    with pytest.raises(fs.BadInput, match=match):
        call(fs.inference(result), data)


def test_whole_numbers_have_no_part_of_one_as_their_unit():
    frame = table()
    frame["sex"] = 1.0 + (frame.age > 62)
    frame["stage"] = np.minimum(np.arange(N) % 7, 2).astype(float)
    frame["share"] = frame.stage / 4
    frame.loc[::9, "sex"] = np.nan
    result, data = fitted(frame, l2=1 / N, drop=("ward", "crp"))
    names = fs.inference(result).per(data).names
    assert {"sex, per 1", "stage, per 1", "share, per 0.2"} <= set(names)


def test_with_a_prior_the_covariance_is_the_inverse_of_the_penalised_hessian():
    frame = table()
    result, data = fitted(frame, l2=0.05, drop=("ward", "crp"))
    own = fs.inference(result, prior=True)
    x = np.column_stack([data.train.x.double().numpy(), np.ones(N)])
    p = 1 / (1 + np.exp(-x @ own.estimate))
    R = np.diag([0.05] * (x.shape[1] - 1) + [0.0])
    H = (x * (p * (1 - p))[:, None]).T @ x / N
    np.testing.assert_allclose(own.covariance, np.linalg.inv(H + R) / N, rtol=1e-10)
    score = x * (p - data.train.y.double().numpy())[:, None]
    robust, A = fs.inference(result, covariance="sandwich", prior=True), np.linalg.inv(H + R)
    np.testing.assert_allclose(robust.covariance, A @ (score.T @ score / N + R) @ A / N, rtol=1e-10)
    assert own.prior
    assert (own.standard_error > fs.inference(result).standard_error).all()

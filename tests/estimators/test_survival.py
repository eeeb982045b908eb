"""`fs.FederatedSurvival`: scikit-survival's form, against statsmodels, saved and loaded."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import fedsaddle as fs
from fedsaddle.errors import BadInput

N = 240


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    X, sites = rng.normal(size=(N, 3)), np.arange(N) % 3
    time, end = rng.exponential(np.exp(-X @ [0.8, -0.4, 0.0])), rng.uniform(0.2, 3, N)
    y = np.empty(N, dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = time <= end, np.ceil(20 * np.minimum(time, end))
    return X, y, sites


def test_coefficients_are_those_of_statsmodels():
    sm = pytest.importorskip("statsmodels.api")
    X, y, sites = drawn()
    model = fs.FederatedSurvival(alpha=0).fit(X, y, sites=sites)
    Z = (X - X.mean(0)) / X.std(0)
    theirs = sm.PHReg(y["time"], Z, status=y["event"].astype(int), strata=sites, ties="efron").fit()
    np.testing.assert_allclose(model.coef_, theirs.params, atol=1e-5)  # rows are in single precision
    np.testing.assert_allclose(model.predict(X) - model.predict(X)[0], (Z - Z[0]) @ theirs.params, atol=1e-4)
    shrunk = fs.FederatedSurvival(alpha=100).fit(X, y, sites=sites)
    assert np.linalg.norm(shrunk.coef_) < np.linalg.norm(model.coef_)


def test_survival_functions():
    X, y, sites = drawn()
    model = fs.FederatedSurvival().fit(X, y, sites=sites)
    functions, values = (
        model.predict_survival_function(X[:4]),
        model.predict_survival_function(X[:4], return_array=True),
    )
    assert values.shape == (4, len(model.event_times_))
    assert (np.diff(values) <= 0).all()
    for function, row in zip(functions, values, strict=True):
        np.testing.assert_allclose(function(function.x), row)
        np.testing.assert_array_equal(function.y, row)
        assert function(0.0) == 1.0
    order = np.argsort(model.predict(X[:4]))
    assert (np.diff(values[order, 10]) < 0).all()  # a higher risk survives less
    mean = model.predict_survival_function(X, return_array=True)[:, np.searchsorted(model.event_times_, 15.0)].mean()
    fitted = fs.FederatedSurvival().fit(X[:, :1] * 0 + np.arange(N)[:, None] % 2, y, sites=sites)
    assert fitted.predict_survival_function([[0.0]])[0](15.0) == pytest.approx(mean, abs=0.1)


def test_it_is_an_estimator(tmp_path):
    X, y, sites = drawn()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(
        site=np.array(["x", "y", "z"])[sites], sex=np.where(X[:, 0] > 0, "f", "m")
    )
    model = clone(fs.FederatedSurvival(site="site", hinges=2)).fit(frame, np.column_stack([y["event"], y["time"]]))
    assert model.score(frame, y) > 0.65
    assert set(model.sites_) == {"x", "y", "z"}
    loaded = fs.FederatedSurvival.load(model.save(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))
    np.testing.assert_array_equal(
        loaded.predict_survival_function(frame, return_array=True),
        model.predict_survival_function(frame, return_array=True),
    )
    assert loaded.get_params() == model.get_params()
    assert (cross_val_score(fs.FederatedSurvival(), X, y, cv=3) > 0.6).all()


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda y: y["time"], "must be a structured array"),
        (lambda y: y[:10], "give one entry for each row"),
        (lambda y: np.column_stack([y["time"], y["event"]]), "must be true or false"),
        (lambda y: np.column_stack([y["event"], -y["time"]]), "is no time; times are finite and not negative"),
        (lambda y: np.column_stack([y["event"], np.full(N, np.inf)]), "is no time"),
        (lambda y: np.column_stack([0 * y["event"], y["time"]]), "at least one row must have had the event"),
    ],
)
def test_targets_that_are_invalid(change, match):
    X, y, _ = drawn()
    with pytest.raises(BadInput, match=match) as refused:
        fs.FederatedSurvival().fit(X, change(y))
    assert isinstance(refused.value, ValueError)


def test_parameters_that_are_invalid():
    X, y, _ = drawn()
    for wrong in ({"alpha": -1}, {"intervals": 0}, {"hinges": -1}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            fs.FederatedSurvival(**wrong).fit(X, y)
    model = fs.FederatedSurvival().fit(X, y)
    with pytest.raises(BadInput, match="no pair of rows"):
        model.score(X[:1], y[:1])


def test_newton_trains_the_other_estimators_exactly():
    X, _, sites = drawn()
    rng = np.random.default_rng(1)
    target = X[:, 0] + rng.normal(size=N)
    number = fs.FederatedRegressor(algorithm="Newton", rounds=10, problem={"l2": 1e-7}).fit(X, target, sites=sites)
    D = np.column_stack([X, np.eye(3)[sites]])
    expected = D @ np.linalg.lstsq(D, target, rcond=None)[0]
    np.testing.assert_allclose(number.predict(X, sites), expected, atol=1e-4)
    classes = fs.FederatedClassifier(algorithm="Newton", rounds=15).fit(X, target > 0, sites=sites)
    assert classes.score(X, target > 0) > 0.6

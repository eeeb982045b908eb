"""The regressor: squared error on targets of any size."""

from __future__ import annotations

import numpy as np
import pytest
from patients import patients

import fedsaddle as fs


def test_targets_of_any_size():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    y = 5000 + 300 * X[:, 0] - 100 * X[:, 1] + rng.normal(size=90)
    model = fs.FederatedRegressor(rounds=30).fit(X, y, sites=np.arange(90) % 3)
    assert model.score(X, y) > 0.99
    assert abs(model.predict(X).mean() - y.mean()) < 20


def test_the_worst_site_and_its_weight():
    X, _ = patients()
    y = X["age"] + np.where(X["hospital"] == "west", 30, 0)
    model = fs.FederatedRegressor("DRFA", site="hospital", site_intercept=False, rounds=5).fit(X.drop(columns="age"), y)
    assert model.mixture_.shape == (3,)
    assert model.predict(X.drop(columns="age")).shape == (120,)


def test_constant_targets_are_no_division_by_zero():
    assert np.allclose(fs.FederatedRegressor(rounds=2).fit(np.eye(4), [3.0] * 4).predict(np.eye(4)), 3)
    model = fs.FederatedRegressor(rounds=2).fit(np.eye(6), [0.1] * 6)  # whose standard deviation is 1e-17
    assert model.target_scale_ == 1.0


@pytest.mark.parametrize("algorithm", ["CODASCA", "FedX2", "Local SGDA"])
def test_what_is_for_classes_is_refused(algorithm):
    with pytest.raises(ValueError, match=f"algorithm = '{algorithm}': is for classes"):
        fs.FederatedRegressor(algorithm).fit(np.eye(4), [1.0, 2.0, 3.0, 4.0])

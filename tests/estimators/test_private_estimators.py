"""Estimators with differential privacy: the budget, patients, whole clients, files, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("dp_accounting")

import fedsaddle as fs
from privacy_quickly import coarse_accountant  # noqa: F401

QUICK = {"rounds": 2, "local_steps": 1, "batch_size": 16}


def rows():
    g = np.random.default_rng(0)
    X = g.normal(size=(120, 3))
    return X, (X[:, 0] + 0.5 * g.normal(size=120) > 0).astype(int), np.arange(120) // 2


@pytest.mark.parametrize("privacy", [fs.Privacy(epsilon=8), {"epsilon": 8, "clip": 1}])
def test_the_budget_is_told_and_saved(privacy, tmp_path):
    X, y, _ = rows()
    model = fs.FederatedClassifier(clients=2, privacy=privacy, **QUICK).fit(X, y)
    assert 0 < model.privacy_["epsilon_spent"] <= 8
    plain = fs.FederatedClassifier(clients=2, **QUICK).fit(X, y)
    assert plain.privacy_ is None
    assert not np.allclose(model.decision_function(X), plain.decision_function(X)), "it has noise"
    again = fs.FederatedClassifier.load(model.save(tmp_path / "model.safetensors"))
    assert again.privacy_ == model.privacy_
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_patients_and_clients_are_units(recwarn):
    X, y, patient = rows()
    by_patient = fs.FederatedClassifier(clients=2, privacy={"epsilon": 8, "unit": "patient"}, **QUICK)
    assert by_patient.fit(X, y, patients=patient).privacy_["unit"] == "patient"
    with pytest.raises(ValueError, match="together"):
        by_patient.fit(X, y)
    for name in ("FedAvgM", "CODA+"):
        client = fs.FederatedClassifier(name, clients=3, privacy={"epsilon": 8, "unit": "client"}, **QUICK)
        with pytest.warns(UserWarning, match="100 clients"):
            assert client.fit(X, y).privacy_["unit"] == "client"


def test_nothing_is_fitted_to_training_rows_besides():
    X, y, _ = rows()
    ranker = fs.FederatedClassifier("CODA+", clients=2, privacy={"epsilon": 8}, **QUICK)
    assert ranker.fit(X, y).calibration_ is None
    with pytest.raises(ValueError, match="no part of the budget"):
        ranker.set_params(calibrate=True).fit(X, y)
    assert ranker.set_params(validation_share=0.3).fit(X, y).calibration_ is not None
    with pytest.raises(ValueError, match="privacy"):
        fs.FederatedRegressor(privacy=8).fit(X, X[:, 1])
    assert fs.FederatedRegressor(clients=2, privacy={"epsilon": 8}, **QUICK).fit(X, X[:, 1]).privacy_["epsilon"] == 8

"""Estimators that grow trees: two classes, several and a number, where a linear model finds nothing."""

from __future__ import annotations

import numpy as np
import pytest

import fedsaddle as fs

RNG = np.random.default_rng(0)
X = RNG.normal(size=(600, 4))
ODDS = 3 * np.sign(X[:, 0]) * X[:, 1]
SITES = np.arange(600) % 4


def test_two_classes_with_an_interaction(tmp_path):
    y = (RNG.random(600) < 1 / (1 + np.exp(-ODDS))).astype(int)
    trees = fs.FederatedClassifier("BoostedTrees").fit(X, y, sites=SITES)
    assert trees.score(X, y) > 0.8 > 0.6 > fs.FederatedClassifier().fit(X, y, sites=SITES).score(X, y)
    loaded = fs.FederatedClassifier.load(trees.save(tmp_path / "model.safetensors"))
    assert np.array_equal(loaded.predict_proba(X), trees.predict_proba(X))


def test_several_classes_and_a_number():
    classes = np.digitize(ODDS, [-1, 1])
    assert fs.FederatedClassifier("BoostedTrees").fit(X, classes, sites=SITES).score(X, classes) > 0.9
    assert fs.FederatedRegressor("BoostedTrees").fit(X, ODDS, sites=SITES).score(X, ODDS) > 0.9


def test_a_network_does_not_grow():
    with pytest.raises(ValueError, match="grows fs\\.models\\.Forest"):
        fs.FederatedClassifier("BoostedTrees", model="mlp").fit(X, ODDS > 0, sites=SITES)

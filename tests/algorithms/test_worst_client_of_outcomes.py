"""DRFA and q-FedAvg with the losses of several classes, numbers, counts and times to an event."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedsaddle as fs

SIZES = (0, 80, 150, 240)


def rows(kind):
    """Three clients with slopes of their own."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SIZES[-1], 3)).astype(np.float64)
    s = x[:, 0] * np.repeat([1.5, 1.0, 0.5], np.diff(SIZES))
    time = rng.exponential(np.exp(-s))
    y = {
        "classes": (rng.random(len(s)) < 1 / (1 + np.exp(-2 * s))).astype(np.int64) + (x[:, 1] > 1),
        "number": (s + rng.normal(size=len(s))).astype(np.float64),
        "count": np.stack([rng.poisson(np.exp(s)), np.ones(len(s))], 1).astype(np.float64),
        "survival": np.stack([time, rng.random(len(s)) < 0.8], 1).astype(np.float64),
    }[kind]
    return fs.Stacked(torch.from_numpy(x), torch.from_numpy(y), np.array(SIZES))


def problem(kind):
    if kind == "survival":
        layer = torch.nn.Linear(3, 1, bias=False)
        torch.nn.init.constant_(layer.weight, -1.0)
        return fs.Cox(layer)
    if kind == "classes":
        return fs.Supervised(fs.models.logistic_regression(3, 3))
    return fs.Supervised(torch.nn.Linear(3, 1), {"number": fs.losses.Square(), "count": fs.losses.Poisson()}[kind])


@pytest.mark.parametrize("kind", ["classes", "number", "count", "survival"])
def test_the_worst_client_is_served_better(kind):
    step = 0.005 if kind == "survival" else 0.05  # its gradients are of whole risk sets
    local = {"local_steps": 4, "batch_size": 32, "primal_step": step}
    for algorithm in (
        fs.Drfa(problem=problem(kind), dual_step=0.01, **local),
        fs.QFedAvg(problem=problem(kind), **local),
    ):
        result = fs.run(algorithm, rows(kind), rounds=30)
        worst = [record["train"]["loss"]["worst"] for record in result.history]
        assert worst[-1] < worst[0] - 0.02

"""A new user's first run, with nothing set: it stays finite and learns something."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.errors import Diverged

PAIRWISE = {
    "FedX1": lambda model: fs.FedX1(problem=fs.risks.auc(model)),
    "FedX2": lambda model: fs.FedX2(problem=fs.risks.partial_auc(model)),
    "Local Pair": lambda model: fs.LocalPair(problem=fs.risks.auc(model)),
}


def linear(data: fs.FederatedData) -> nn.Module:
    torch.manual_seed(0)
    return fs.models.logistic_regression(data.train.x.shape[1], 1).float()


@pytest.mark.parametrize("name", PAIRWISE)
@pytest.mark.parametrize(
    ("data", "split"), [("digits", {"split": "imbalanced"}), ("breast-cancer", {"split": "dirichlet", "alpha": 0.3})]
)
def test_pairwise_algorithms_begin_well(name: str, data: str, split: dict[str, Any]) -> None:
    """A linear model of 64 features that are not centred bounds the step more than most."""
    rows = fs.load(data, clients=4, **split)
    model = linear(rows)
    result = fs.run(PAIRWISE[name](model), rows, 6, evaluate_every=6)
    assert np.isfinite(result.summary["test"]["loss"]["global"])
    assert result.summary["pooled"]["auroc"] > 0.85


def test_a_step_of_a_tenth_is_too_large_for_fedx1_on_the_digits_without_the_guard() -> None:
    """What `guard` is for; without it, as in the box, the complaint says what to do."""
    rows = fs.load("digits", split="imbalanced", clients=4)
    model = linear(rows)
    with pytest.raises(Diverged, match="not finite; try a smaller step"):
        fs.run(fs.FedX1(problem=fs.risks.auc(model), primal_step=0.1, guard=float("inf")), rows, 10)
    guarded = fs.run(fs.FedX1(problem=fs.risks.auc(model), primal_step=0.1), rows, 10, evaluate_every=10)
    assert np.isfinite(guarded.summary["test"]["loss"]["global"])

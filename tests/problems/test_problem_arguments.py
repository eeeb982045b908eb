"""Arguments of problems, models and runs: numbers of numpy, subclasses and shapes of torch pass; the remedy is said."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.errors import BadInput
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.games import NonconvexPl
from fedsaddle.problems.robust import RobustTraining
from small import classes


class Absolute(fs.losses.Loss):
    """A loss of a user's own."""

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        return (scores.squeeze(-1) - y).abs()

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        return (scores.squeeze(-1) - y).sign().unsqueeze(-1)


def model(scores: int = 3) -> nn.Module:
    return fs.models.logistic_regression(np.int64(4), np.int32(scores))


@pytest.mark.parametrize(
    "problem",
    [
        lambda: ClassFair(model=model(), classes=np.int64(3), penalty=np.float32(0.1)),
        lambda: ClassFair(model=model(), classes=3, class_shares=torch.tensor([0.2, 0.3, 0.5])),
        lambda: RobustTraining(model=model(), shape=torch.Size([4]), radius=np.float64(0.5), attack_steps=np.int64(1)),
        lambda: RobustTraining(model=model(), shape=(np.int64(4),), norm="linf", radius=1, attack_rows=np.int16(2)),
    ],
)
def test_numbers_of_numpy_work_in_min_max_problems(problem: Any):
    algorithm = fs.LocalSgda(problem=problem(), local_steps=np.int64(2), primal_step=np.float64(0.1))
    result = fs.run(
        algorithm, classes(), rounds=np.int64(1), seed=np.uint8(3), options=fs.RunOptions(evaluate_train=np.True_)
    )
    assert result.summary["rounds"] == 1


@pytest.mark.parametrize(
    ("loss", "scores"), [(Absolute(), 1), (fs.losses.Custom(lambda s, y: (s[..., 0] - y).square()), 1)]
)
def test_losses_of_the_user_work(loss: Any, scores: int):
    problem = fs.Supervised(model(scores), loss, l2=np.float64(0.1), compiled=np.False_)
    projection = fs.projections.Box(-inf, np.float64(2))
    assert fs.run(fs.FedAvg(problem=problem, projection=projection, local_steps=2), classes(), rounds=1).history


@pytest.mark.parametrize("hidden", [(), [3], (np.int64(3), 2), np.array([3, 2]), range(2, 4)])
def test_layers_of_a_network(hidden: Any):
    assert fs.models.mlp(4, hidden, 2)(torch.zeros(1, 4)).shape == (1, 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: fs.Supervised(nn.Linear), "model = <class 'torch.nn.modules.linear.Linear'>: give a torch.nn.Module"),
        (lambda: fs.Supervised(model(), "square"), r"loss = 'square': give an object such as fs.losses.Square\(\)"),
        (lambda: fs.Supervised(model(), fs.losses.Square), "loss = <class .*: give an object"),
        (lambda: fs.Supervised(model(), nn.Tanh()), "loss = 'Tanh': has no `reduction`"),
        (lambda: fs.Supervised(model(), compiled=1), "compiled = 1: must be True or False"),
        (lambda: RobustTraining(model=model(), shape=3), "shape = 3: must be the shape of one row"),
        (lambda: RobustTraining(model=model(), shape=(4, 10**9)), "has more than 1,000,000,000 numbers"),
        (lambda: RobustTraining(model=model(), shape=(4,), norm="l1"), "norm = 'l1': choose one of 'l2', 'linf'"),
        (lambda: MinimaxAuc(model=model(1), positive_share=1.0), "positive_share = 1.0: .* above 0 and below 1"),
        (lambda: MinimaxAuc(model=model(1), positive_share=0.5, sigmoid="yes"), "sigmoid = 'yes': must be True"),
        (lambda: NonconvexPl(mu=2**70), "mu = 1180591620717411303424: is too large"),
        (lambda: fs.Minimax(lambda x, y: 0, torch.zeros(1), torch.zeros(1)), "function = .*: .* of 3 arguments"),
        (lambda: fs.models.mlp(4, "ab", 2), r"hidden = 'ab': must be a list of the layers' units, such as \[50, 50\]"),
        (lambda: fs.models.McMahanCnn(side=3), "side = 3: must be a whole number from 4"),
        (lambda: fs.FedAvg(problem=fs.Supervised(model()), projection=fs.projections.Ball), "projection = <class"),
    ],
)
def test_the_argument_and_the_remedy_are_said(make: Any, said: str):
    with pytest.raises(BadInput, match=said):
        make()


def test_a_perturbation_has_the_shape_of_a_row():
    problem = RobustTraining(model=model(), shape=(1,))
    with pytest.raises(BadInput, match=r"shape = \(1,\): the rows are of shape \(4,\)"):
        fs.run(fs.LocalSgda(problem=problem), classes(), rounds=1)


def test_a_schedule_that_grows_beyond_all_bounds():
    assert fs.schedules.Geometric(1.0, 10).at(10_000) == inf
    auc = MinimaxAuc(model=model(1), positive_share=0.5)
    growing = fs.CodaPlus(problem=auc, local_steps=fs.schedules.Geometric(1, 10**7), stage_rounds=1)
    with pytest.raises(BadInput, match=r"local_steps = 10000000.0: is its value in stage 2"):
        fs.run(growing, classes(classes=2), rounds=3)

"""What makes two runs the same run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from run_cases import drfa, fedavg, iris, problem, unequal
from torch import nn

from fedsaddle.data.store import Stacked
from fedsaddle.numerics.projections import Ball, Box
from fedsaddle.numerics.regularisers import KullbackLeibler, Quadratic
from fedsaddle.problems.losses import Custom, Logistic
from fedsaddle.problems.models.networks import mlp
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.checkpoints import digest, fingerprint, to_plain


def test_equal_for_equal_runs():
    rows = unequal()
    copy = Stacked(rows.x.clone(), rows.y.clone(), rows.offsets.copy())
    assert fingerprint(drfa(), rows, 3) == fingerprint(drfa(), copy, 3)
    assert fingerprint(drfa(), rows, 3, 0.0) == fingerprint(drfa(), copy, np.int64(3), 0)
    assert len(fingerprint(drfa(), rows, 3)) == 16


def test_different_for_everything_that_shapes_the_run():
    rows = unequal()
    other_x, other_y = rows.x.clone(), rows.y.clone()
    other_x[4, 2] += 1e-3
    other_y[4] = (other_y[4] + 1) % 3
    moved = rows.offsets.copy()
    moved[1] += 1
    started = problem()
    nn.init.constant_(started.model[1].bias, 0.5)
    runs = [
        (drfa(), rows, 0),
        (drfa(), rows, 1),
        (drfa(), rows, 0, 0.1),
        (drfa(local_steps=4), rows, 0),
        (drfa(primal_step=0.11), rows, 0),
        (drfa(dual_step=0.1), rows, 0),
        (drfa(batch_size=9), rows, 0),
        (drfa(sampled_clients=3), rows, 0),
        (drfa(weighting="weight"), rows, 0),
        (drfa(output="average"), rows, 0),
        (drfa(projection=Ball(1.0)), rows, 0),
        (drfa(projection=Ball(2.0)), rows, 0),
        (drfa(projection=Box(-1.0, 1.0)), rows, 0),
        (drfa(regulariser=KullbackLeibler(0.1)), rows, 0),
        (drfa(regulariser=Quadratic(0.1)), rows, 0),
        (drfa(regulariser=Quadratic(0.1, torch.tensor([0.1, 0.2, 0.3, 0.4]))), rows, 0),
        (drfa(local_steps=1), rows, 0),
        (fedavg(), rows, 0),
        (replace(drfa(), problem=started), rows, 0),
        (replace(drfa(), problem=Supervised(mlp(4, [3], 3))), rows, 0),
        (replace(drfa(), problem=replace(problem(), l2=0.1)), rows, 0),
        (replace(drfa(), problem=replace(problem(), loss=Logistic())), rows, 0),
        (drfa(), Stacked(other_x, rows.y, rows.offsets), 0),
        (drfa(), Stacked(rows.x, other_y, rows.offsets), 0),
        (drfa(), Stacked(rows.x, rows.y, moved), 0),
        (drfa(), Stacked(rows.x.double(), rows.y, rows.offsets), 0),
        (drfa(), iris().train, 0),
    ]
    assert len({fingerprint(*run) for run in runs}) == len(runs)


def test_any_algorithm_can_be_described():
    def mine(scores, y):
        return scores[..., 0]

    said = to_plain(replace(problem(), loss=Custom(mine)))
    assert said[""] == "Supervised"
    assert said["loss"] == {"": "Custom", "function": "test_any_algorithm_can_be_described.<locals>.mine"}
    assert to_plain((1, None, [True, "a"])) == [1, None, [True, "a"]]
    assert digest(torch.zeros(2)) != digest(torch.zeros(2, dtype=torch.float64))
    assert digest(torch.arange(6).view(2, 3).mT) == digest(torch.arange(6).view(2, 3).mT.contiguous())

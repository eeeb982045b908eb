"""Exponential DRO where losses differ by many temperatures, so that plain exponentials overflow."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms.exponential_dro import InnerLoss, Tilt
from fedsaddle.engines.site import LocalSite
from fedsaddle.metrics.evaluation import evaluate
from small import play, seeded, vectorised


def clients(dtype=torch.float32):
    """Five clients that agree, and one that does not."""
    g = torch.Generator().manual_seed(4)
    x = torch.randn(6, 40, 4, generator=g, dtype=torch.float64)
    y = (x[..., 0] + x[..., 1] > 0).long()
    y[5] = (x[5, :, 1] + x[5, :, 2] - x[5, :, 0] > 0).long()
    return fs.Stacked(x.flatten(0, 1).to(dtype), y.flatten(), 40 * np.arange(7))


@pytest.mark.parametrize("temperature", [0.03, 0.01, 0.001])
def test_a_low_temperature_helps_the_worst_client_and_leaves_nobody_out(temperature):
    rows, problem = clients(), fs.Supervised(seeded(lambda: nn.Linear(4, 2)).float())
    algorithm = fs.ExponentialDro(problem=problem, temperature=temperature, primal_step=0.05)
    states = play(algorithm, vectorised(rows), 60)
    assert all(torch.isfinite(s.w).all() and torch.isfinite(s.momentum).all() for s in states)
    average = play(fs.FedAvg(problem=problem, primal_step=0.05, local_steps=5, batch_size=20), vectorised(rows), 60)
    ours, theirs = (evaluate(problem, s[-1].w, rows).values["loss"] for s in (states, average))
    assert ours[5] < theirs[5] - 0.1
    assert ours.max() < theirs.max() - 0.1


class Constant(fs.MinimisationProblem):
    """Client k has the loss `level_k`, its first feature, wherever w is; its gradient is (1, 1)."""

    def initial(self):
        return torch.zeros(2, dtype=torch.float64)

    def value(self, w, batch):
        return batch.x[..., 0].mean(1)

    def gradient(self, w, batch):
        return torch.ones_like(w)

    def row_measures(self, w, x, y, dual=None):
        return {"loss": x[:, 0]}


def constant(levels):
    x = torch.tensor(levels, dtype=torch.float64)[:, None]
    return fs.Stacked(x, torch.zeros(len(levels), dtype=torch.int64), np.arange(len(levels) + 1))


@pytest.mark.parametrize("levels", [[3.0, 20.0, 1.0, 0.5], [0.0, 0.0, 0.0, 100.0], [1.0, 1.001, 1.002, 1.0], [2.0] * 4])
@pytest.mark.parametrize("temperature", [0.001, 0.01, 10.0])
def test_the_mean_weight_is_one_where_losses_are_close_and_e_where_they_are_far(levels, temperature):
    λ, u = temperature, np.array(levels)
    algorithm = fs.ExponentialDro(problem=Constant(), temperature=λ, primal_step=0.1, local_steps=2, batch_size=1)
    states = play(algorithm, vectorised(constant(levels)), 3)[1:]
    top = λ * np.log(np.mean(np.exp((u - u.max()) / λ))) + u.max()  # λ log mean exp(u / λ)
    c = max(u.mean(), top - λ)
    for state in states:
        assert state.offset == pytest.approx(c, abs=1e-9)
        assert state.mass == pytest.approx(math.exp((top - c) / λ), rel=1e-6)
        torch.testing.assert_close(state.momentum, state.mass * torch.ones(2, dtype=torch.float64))
        assert state.mass <= math.e * (1 + 1e-6)


def test_losses_that_fall_by_many_temperatures_do_not_lengthen_the_steps():
    """Old gradients weighed exp(100) times more than new ones: they may not make steps that much longer."""

    class Falling(Constant):
        def value(self, w, batch):
            return batch.x[..., 0].mean(1) + w[:, 0]  # falls as w does

    algorithm = fs.ExponentialDro(
        problem=Falling(), temperature=0.001, primal_step=0.1, local_steps=3, batch_size=1, inner_averaging=1.0
    )
    w = torch.stack([s.w for s in play(algorithm, vectorised(constant([1.0, 1.0])), 8)])
    steps = (w[:-1] - w[1:])[:, 0] / 3 / 0.1
    assert float(steps.max()) <= math.e * (1 + 1e-6)
    assert float(steps.min()) > 0


def test_a_client_whose_loss_rises_within_a_round_counts_at_most_e_times_all():
    class Rising(Constant):
        def value(self, w, batch):
            return batch.x[..., 0].mean(1) - 50 * w[:, 0]

    algorithm = fs.ExponentialDro(problem=Rising(), temperature=0.01, primal_step=0.1, local_steps=5, batch_size=1)
    states = play(algorithm, vectorised(constant([1.0, 1.0, 1.0])), 3)
    assert all(torch.isfinite(s.w).all() and s.mass <= math.e * (1 + 1e-6) for s in states)
    assert abs(float(states[1].w[0])) <= 0.1 * 5 * 3 * math.e


def test_the_first_u_of_a_client_is_kept_while_the_first_offset_is_sought():
    """A later exchange draws other rows; a weight that is of another u than before would shift the offset."""
    algorithm = fs.ExponentialDro(problem=Constant(), batch_size=1)
    site, zero = LocalSite.alone(constant([4.0]), 0), torch.zeros(1, dtype=torch.float64)
    fresh, found = algorithm.first_weight(InnerLoss(zero, zero), Tilt(zero, 3.0, 2.0), site)
    assert (fresh.u.item(), fresh.began.item()) == (4.0, 1.0)
    assert found.weight.item() == pytest.approx(math.exp((4 - 3) / 2))
    kept, found = algorithm.first_weight(InnerLoss(zero + 7, zero + 1), Tilt(zero, 3.0, 2.0), site)
    assert (kept.u.item(), kept.began.item()) == (7.0, 1.0)
    assert found.weight.item() == pytest.approx(math.exp((7 - 3) / 2))

"""FedX's default limits: correct pairs count in full, pairs with an old u are bounded, and runs stay finite."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms.fedx.fedx2 import Start
from fedsaddle.problems.pair_losses import WeightedScores
from small import classes, play, rows_of, seeded, serial, vectorised

NONE = {"pair_cap": math.inf, "clip": math.inf}  # the box


def scores(values, label, weights=None):
    h = torch.tensor(values, dtype=torch.float64)[None, :, None]
    weight = torch.ones_like(h[..., 0]) if weights is None else torch.tensor(weights, dtype=torch.float64)[None]
    return WeightedScores(h, torch.full(h.shape[:2], label), weight)


def sent(clients, positives, negatives):
    nothing = torch.zeros(1)
    means = {"mean1": positives / clients, "mean2": negatives / clients}
    return Start(nothing, nothing, nothing, nothing, clients=clients, step=0.1, cohort=clients, scale=0.0, **means)


def fedx2(λ, batch, cap=None):
    risk = fs.risks.partial_auc(nn.Linear(1, 1), temperature=λ)
    return fs.FedX2(problem=risk, batch_size=batch, tracking=0.9, pair_cap=cap)


@pytest.mark.parametrize(("cap", "gradient"), [(None, 4.0), (math.inf, 4.0), (32 / 0.9, 0.364)])
def test_one_hard_negative_of_many_beside_a_lazy_positive(cap, gradient):
    """All scores at one model and u exact: of 391 negatives the hard one has all of the gradient."""
    algorithm = fedx2(0.1, 32, cap)
    risk, ζ, all_ = algorithm.problem, scores([0.0], 1), scores([1.0] + [-1.0] * 390, 0)
    _, lazy = algorithm._ratio_caps(sent(1, 10, 391))
    _, slopes = risk.slopes(ζ, all_, risk.inner_mean(ζ, all_), caps=lazy)  # its mean over draws is this sum
    assert float(slopes.sum()) == pytest.approx(gradient, abs=5e-4)


@pytest.mark.parametrize(("cap", "gradient"), [(None, 0.480), (math.inf, 0.480), (8 / 0.9, 0.108)])
def test_a_hard_negative_of_a_small_client_beside_an_active_positive(cap, gradient):
    """ω2 = 0.05: the pair is worth 39.5 times its mean, more than B2/γ, and less than B2/(γ ω2)."""
    algorithm = fedx2(0.1, 8, cap)
    risk, hard = algorithm.problem, 0.972
    easy = math.sqrt(hard**2 + 0.1 * math.log((8 / 39.5 - 0.05) / 7))
    h1, ξ = scores([0.0], 1), scores([hard - 1] + [easy - 1] * 7, 0, [0.05] + [1.0] * 7)
    u = risk.inner_mean(h1, ξ)
    assert float((hard**2 / 0.1 - u).exp()) == pytest.approx(39.5, rel=1e-6)
    active, _ = algorithm._ratio_caps(sent(20, 100, 2000))
    only = replace(ξ, weight=ξ.weight * torch.tensor([[1.0] + [0.0] * 7], dtype=torch.float64))
    slope, _ = risk.slopes(h1, only, u, caps=active)
    assert -float(slope.sum()) == pytest.approx(gradient, abs=5e-4)


def test_an_old_u_cannot_make_a_pair_worth_more_than_all_pairs():
    algorithm = fedx2(0.1, 32)
    risk, ζ, fresh = algorithm.problem, scores([0.0], 1), scores([1.0], 0)
    old = risk.inner_mean(ζ, scores([-1.0], 0))  # before the negative rose
    _, lazy = algorithm._ratio_caps(sent(4, 10, 391))
    _, slope = risk.slopes(ζ, fresh, old, caps=lazy)
    assert float(slope.sum()) == pytest.approx(4 * 391)


@pytest.mark.parametrize(("cap", "worth"), [(50.0, 50.0), (math.inf, 1 / (0.1 + 1e-8))])
def test_precision_is_held_to_the_same(cap, worth):
    """ℓ / u₂ of a pair whose loss is 100, with u₂ = 0.1: at most the cap."""
    caps = fs.outers.RatioCaps(pair=math.log(cap))
    L = torch.tensor([[[[0.0, 100.0]]]], dtype=torch.float64)
    factors = fs.outers.Ratio().factors(torch.tensor([[[0.05, 0.1]]], dtype=torch.float64), L, caps=caps)
    assert -float(factors[..., 0]) * (100 if cap < math.inf else 1) == pytest.approx(worth)


def federation():
    six = [classes(classes=2).client(i) for i in range(6)]
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return rows_of([*(x for x, _ in six), x], [*(y for _, y in six), torch.ones(4, dtype=torch.int64)])


RISKS = {
    "partial AUC": lambda m: fs.risks.partial_auc(m, temperature=0.8),
    "average precision": fs.risks.average_precision,
}


def longest(risk, rounds=40, **limits):
    model = seeded(lambda: nn.Linear(4, 1))
    how = {"local_steps": 3, "batch_size": 2, "primal_step": 0.1}
    clients = serial(federation(), seed=5)
    states = play(fs.FedX2(problem=RISKS[risk](model), **how, **limits), clients, rounds, seed=5)
    return math.inf if clients.left_out.counts else max(float(s.w.norm()) for s in states)


@pytest.mark.slow
def test_the_box_runs_away():
    assert longest("partial AUC", **NONE) == math.inf, "some replies are not finite"
    assert longest("average precision", **NONE) > 1e6


@pytest.mark.parametrize("risk", RISKS)
def test_the_defaults_stay_finite(risk):
    assert longest(risk) < 3


@pytest.mark.parametrize("make", [fs.FedX1, fs.FedX2])
@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_a_step_is_shortened_and_not_turned(make, engine):
    """One step of one client: along the box's, and as long as the clip allows."""
    rows = federation()
    one, problem = rows_of([rows.x], [rows.y]), fs.risks.auc(seeded(lambda: nn.Linear(4, 1)))
    options = {"averaging": 1.0} if make is fs.FedX2 else {}

    def step(clip):
        algorithm = make(problem=problem, local_steps=1, batch_size=4, primal_step=0.5, clip=clip, **options)
        clients = serial(one) if engine == "serial" else vectorised(one)
        states = play(algorithm, clients, 1)
        return states[1].w - states[0].w

    box, short = step(math.inf), step(0.01)
    assert float(box.norm()) > 0.05
    torch.testing.assert_close(short, box * float(0.005 / box.norm()), rtol=0, atol=1e-12)
    torch.testing.assert_close(step(1e6), box, rtol=0, atol=1e-12)

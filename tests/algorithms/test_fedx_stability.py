"""FedX's default limits: correct pairs count in full, pairs with an old u are bounded, and runs stay finite."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms.fedx.fedx2 import Start
from fedsaddle.problems.pair_losses import WeightedScores
from small import classes, play, rows_of, seeded, serial, vectorised

NONE = {"pair_cap": math.inf, "guard": math.inf}  # the box


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


def guarded_run(make, step, guard):
    how = {"local_steps": 8, "batch_size": 4, "primal_step": step, "guard": guard}
    algorithm = make(problem=fs.risks.auc(seeded(lambda: nn.Linear(4, 1))), **how)
    return play(algorithm, vectorised(federation(), seed=5), 12, seed=5)


@pytest.mark.parametrize("make", [fs.FedX1, fs.FedX2])
def test_the_guard_is_the_box_where_nothing_explodes(make):
    box, guarded = guarded_run(make, 0.03, math.inf)[-1], guarded_run(make, 0.03, 2.0)[-1]
    torch.testing.assert_close(guarded.w, box.w, rtol=0, atol=1e-12)
    assert guarded.pace == 1


@pytest.mark.parametrize("make", [fs.FedX1, fs.FedX2])
def test_the_guard_bounds_each_round_where_gradients_explode(make):
    """A round moves the model by at most K steps of κ ρ; without the guard the same run is lost."""
    assert not float(guarded_run(make, 3.0, math.inf)[-1].w.norm()) < 1e6
    states = guarded_run(make, 3.0, 2.0)
    moves = [float((b.w - a.w).norm()) for a, b in itertools.pairwise(states)]
    assert max(moves) <= 3.0 * 8 * 2.0 * states[-1].reference
    assert states[-1].pace < 0.5


def test_all_clients_shorten_their_steps_alike():
    """What they are sent: the step times the pace, and nothing of their own."""
    sent = []

    class Spy(fs.FedX1):
        def local_sgd(self, own, start, site):
            sent.append((start.step, start.reference))
            return super().local_sgd(own, start, site)

    algorithm = Spy(problem=fs.risks.auc(seeded(lambda: nn.Linear(4, 1))), local_steps=8, batch_size=4, primal_step=3.0)
    states = play(algorithm, serial(federation(), seed=5), 4, seed=5)
    rounds = [sent[i : i + 7] for i in range(0, 28, 7)]
    assert [set(each) for each in rounds] == [{(3.0 * s.pace, s.reference)} for s in states[:-1]]
    assert [s.pace for s in states[:4]] == [1, 0.5, 0.25, 0.125]


def test_a_reply_without_gradients_leaves_the_pace():
    """Sites with one label only, whose gradients are zero."""
    rows = rows_of([torch.zeros(3, 4, dtype=torch.float64)] * 2, [torch.tensor([1, 1, 1]), torch.tensor([0, 0, 0])])
    algorithm = fs.FedX1(problem=fs.risks.auc(nn.Linear(4, 1, bias=False).double()), local_steps=2, batch_size=2)
    state = play(algorithm, serial(rows), 2)[-1]
    assert (state.pace, state.reference) == (1.0, 0.0)
    assert torch.equal(state.w, algorithm.problem.initial())


@pytest.mark.parametrize("guard", [1.0, 0.3, -1, "3"])
def test_a_guard_must_be_above_one(guard):
    with pytest.raises(fs.errors.BadInput, match="guard = "):
        fs.FedX1(problem=fs.risks.auc(nn.Linear(4, 1)), guard=guard)

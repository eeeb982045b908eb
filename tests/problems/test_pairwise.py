"""Pair losses and pairwise risks against loops over pairs, and against what exponentials do to floating point."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.problems import outers, pair_losses, risks
from fedsaddle.problems.pair_losses import Scores
from fedsaddle.problems.pairwise import PairwiseRisk
from small import classes, rows_of, seeded

BY_HAND = {
    "square": (pair_losses.SquaredMargin(margin=0.5), lambda t: (0.5 - t) ** 2),
    "squared hinge": (pair_losses.SquaredHinge(margin=0.7), lambda t: max(0.0, 0.7 - t) ** 2),
    "hinge": (pair_losses.Hinge(), lambda t: max(0.0, 1 - t)),
    "logistic": (pair_losses.LogisticMargin(steepness=2.0), lambda t: math.log1p(math.exp(-2 * t))),
    "sigmoid": (pair_losses.Sigmoid(), lambda t: 1 / (1 + math.exp(t))),
    "barrier hinge": (
        pair_losses.BarrierHinge(slope_outside=5.0, width=0.8),
        lambda t: max(-5 * (0.8 + t) + 0.8, max(5 * (t - 0.8), 0.8 - t)),
    ),
    "difference": (pair_losses.Difference(), lambda t: -t),
}
by_hand = pytest.mark.parametrize(("loss", "of"), BY_HAND.values(), ids=BY_HAND)


def scores(rows, outputs=1, seed=0, clients=2):
    g = torch.Generator().manual_seed(seed)
    h = torch.randn(clients, rows, outputs, generator=g, dtype=torch.float64)
    return Scores(h, torch.randint(2, (clients, rows), generator=g))


@by_hand
@pytest.mark.parametrize("first_is_higher", [True, False])
def test_margin_losses_pair_by_pair(loss, of, first_is_higher):
    loss = type(loss)(**{**vars(loss), "first_is_higher": first_is_higher})
    a, b = scores(4), scores(3, seed=1)
    found = loss.value(a, b)
    assert found.shape == (2, 4, 3, 1)
    for c in range(2):
        for i in range(4):
            for j in range(3):
                t = float(a.h[c, i, 0] - b.h[c, j, 0])
                assert float(found[c, i, j, 0]) == pytest.approx(of(t if first_is_higher else -t), abs=1e-12)


def every_loss():
    yield from (loss for loss, _ in BY_HAND.values())
    yield pair_losses.SquaredHinge(first_is_higher=False)
    yield pair_losses.Precision(pair_losses.SquaredHinge())
    yield pair_losses.Contrastive(1.5)
    yield pair_losses.CustomPairLoss(lambda a, b: (a * b).sum(-1))
    yield pair_losses.CustomPairLoss(lambda a, b, y, z: (a - b).square().squeeze(-1) * (y == z), labels=True)


@pytest.mark.parametrize("loss", list(every_loss()), ids=lambda loss: type(loss).__name__)
def test_slopes_are_derivatives(loss):
    several = isinstance(loss, pair_losses.Contrastive)
    a, b = scores(4, 3 if several else 1), scores(5, 3 if several else 1, seed=1)
    c = torch.randn(2, 4, 5, loss.parts, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for k, found in enumerate(loss.slopes(a, b, c)):
        for at in np.ndindex(*found.shape):
            moved = []
            for e in (1e-6, -1e-6):
                both = [a.h.clone(), b.h.clone()]
                both[k][at] += e
                moved.append((loss.value(Scores(both[0], a.y), Scores(both[1], b.y)) * c).sum())
            assert float(found[at]) == pytest.approx(float(moved[0] - moved[1]) / 2e-6, abs=1e-6)


def test_contrastive_pair_by_pair():
    a, b = scores(4, 3), scores(5, 3, seed=1)
    found = pair_losses.Contrastive(2.0).value(a, b)
    for c, i, j in np.ndindex(2, 4, 5):
        d = float((a.h[c, i] - b.h[c, j]).norm())
        expected = d**2 if a.y[c, i] == b.y[c, j] else max(0.0, 2.0 - d) ** 2
        assert float(found[c, i, j, 0]) == pytest.approx(expected, abs=1e-9)


def hinge(t):
    return max(0.0, 1 - t) ** 2


def risk_by_hand(kind, h, y):
    ups, downs = [float(s) for s in h[y == 1]], [float(s) for s in h[y == 0]]
    if kind == "auc":
        return np.mean([hinge(a - b) for a in ups for b in downs])
    if kind == "partial":
        return np.mean([2 * math.log(np.mean([math.exp(hinge(a - b) / 2) for b in downs])) for a in ups])
    if kind == "two-way":
        return 3 * math.log(np.mean([np.mean([math.exp(hinge(a - b) / 2) for b in downs]) ** (2 / 3) for a in ups]))
    if kind == "precision":
        every = ups + downs
        return -np.mean([sum(hinge(a - b) for b in ups) / sum(hinge(a - b) for b in every) for a in ups])
    return np.log(np.mean([np.mean([math.exp(b - a) for a in ups]) ** 4 for b in downs])) / 4


RISKS = {
    "auc": risks.auc,
    "partial": lambda m: risks.partial_auc(m, temperature=2.0),
    "two-way": lambda m: risks.two_way_partial_auc(m, temperature=2.0, positive_temperature=3.0),
    "precision": risks.average_precision,
    "push": risks.p_norm_push,
}


@pytest.mark.parametrize("kind", RISKS)
def test_risks_by_loops_over_pairs(kind):
    problem = RISKS[kind](seeded(lambda: nn.Linear(4, 1)))
    data = classes((9, 8), classes=2)
    for i in range(2):
        x, y = data.client(i)
        w = problem.initial()
        h = problem.scores(w, x)[:, 0]
        batch = Batch(x[None], y[None])
        assert float(problem.value(w[None], batch)[0]) == pytest.approx(risk_by_hand(kind, h, y), abs=1e-7)
        found = problem.gradient(w[None], batch)[0]
        for k in range(len(w)):
            step = torch.zeros_like(w)
            step[k] = 1e-6
            ends = [risk_by_hand(kind, problem.scores(w + s, x)[:, 0], y) for s in (step, -step)]
            assert float(found[k]) == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=2e-6)


def test_padding_and_clients_without_pairs():
    problem = RISKS["partial"](seeded(lambda: nn.Linear(4, 1)))
    x, y = classes((9,), classes=2).client(0)
    more = torch.cat([x, x[:2]])[None], torch.cat([y, y[:2]])[None], torch.tensor([[1.0] * 9 + [0.0] * 2]).double()
    w = problem.initial()[None]
    torch.testing.assert_close(problem.gradient(w, Batch(*more)), problem.gradient(w, Batch(x[None], y[None])))
    torch.testing.assert_close(problem.value(w, Batch(*more)), problem.value(w, Batch(x[None], y[None])))
    for label in (0, 1):
        alone = Batch(x[None], torch.full((1, 9), label))
        assert float(problem.value(w, alone)) == 0
        assert float(problem.gradient(w, alone).abs().max()) == 0


@pytest.mark.parametrize("kind", ["partial", "two-way", "push"])
@pytest.mark.parametrize("margin", [100.0, -100.0])
def test_small_temperatures_and_large_margins_stay_finite(kind, margin):
    outer = {
        "partial": outers.Kl(0.01),
        "two-way": outers.LogPower(power=0.5, temperature=0.01),
        "push": outers.LogPower(power=4.0, temperature=0.01),
    }[kind]
    for dtype in (torch.float32, torch.float64):
        model = nn.Linear(1, 1).to(dtype)
        problem = PairwiseRisk(model=model, outer=outer)
        x = torch.tensor([[-margin], [margin], [margin / 2], [0.0]], dtype=dtype)[None]
        batch = Batch(x, torch.tensor([[1, 0, 0, 1]]))
        w = torch.tensor([[1.0, 0.0]], dtype=dtype)
        assert torch.isfinite(problem.value(w, batch)).all()
        g = problem.gradient(w, batch)
        assert torch.isfinite(g).all()
        if margin > 0:
            assert float(g.abs().max()) > 0


def test_the_log_domain_is_the_plain_one():
    """Kl and a user's plain f of exponentials are the same, u and all."""
    kl, plain = outers.Kl(2.0), outers.Smooth(lambda u: 2.0 * u.squeeze(-1).log())
    g = torch.Generator().manual_seed(0)
    L, weight = torch.rand(2, 3, 4, 1, generator=g) * 3, torch.rand(2, 4, generator=g) + 0.5
    log_u, u = kl.observed(L, weight), plain.observed((L / 2).exp(), weight)
    torch.testing.assert_close(log_u.exp(), u)
    new = u * 1.7
    torch.testing.assert_close(kl.mixed(log_u, new.log(), 0.3).exp(), plain.mixed(u, new, 0.3))
    torch.testing.assert_close(kl.mixed(log_u, new.log(), 1.0), new.log())
    torch.testing.assert_close(kl.value(log_u), plain.value(u))
    slope_of_l = (L / 2).exp() / 2
    torch.testing.assert_close(kl.factors(log_u, L), plain.factors(u, (L / 2).exp()) * slope_of_l)
    log = outers.SmoothLog(lambda v: 2.0 * v.squeeze(-1), 2.0)
    torch.testing.assert_close(log.factors(log_u, L), kl.factors(log_u, L))


def test_a_users_own_pair_loss_and_outer_function():
    loss = pair_losses.CustomPairLoss(lambda a, b: (1 - (a - b).squeeze(-1)).clamp_min(0) ** 2)
    mine = PairwiseRisk(model=seeded(lambda: nn.Linear(4, 1)), loss=loss, outer=outers.Smooth(lambda u: u.squeeze(-1)))
    ready = risks.auc(mine.model)
    x, y = classes((9,), classes=2).client(0)
    w, batch = mine.initial()[None], Batch(x[None], y[None])
    torch.testing.assert_close(mine.gradient(w, batch), ready.gradient(w, batch))


def test_bad_losses_are_named():
    model = seeded(lambda: nn.Linear(4, 1))
    x, y = classes((9,), classes=2).client(0)
    bad = PairwiseRisk(model=model, loss=pair_losses.CustomPairLoss(lambda a, b: (a - b).mean()))
    with pytest.raises(BadInput, match="must give the loss of each pair"):
        bad.value(bad.initial()[None], Batch(x[None], y[None]))
    two = risks.auc(seeded(lambda: nn.Linear(4, 2)))
    with pytest.raises(BadInput, match="needs a model with a single score"):
        two.value(two.initial()[None], Batch(x[None], y[None]))
    with pytest.raises(BadInput, match="temperature = 0"):
        risks.partial_auc(model, temperature=0)
    with pytest.raises(BadInput, match=r"loss\.parts = 2"):
        PairwiseRisk(model=model, loss=pair_losses.Precision(pair_losses.SquaredMargin()))
    with pytest.raises(BadInput, match="FedX1 is for the identity"):
        fs.FedX1(problem=risks.partial_auc(model))
    wrong = PairwiseRisk(model=model, outer=outers.Smooth(lambda u: u.sum()))
    with pytest.raises(BadInput, match="outer = "):
        wrong.value(wrong.initial()[None], Batch(x[None], y[None]))


def test_clients_are_measured_against_everybody():
    data = classes((9, 8, 3), classes=2)
    data = rows_of([data.x[:9], data.x[9:17], data.x[17:]], [data.y[:9], data.y[9:17], torch.zeros(3).long()])
    problem = risks.auc(seeded(lambda: nn.Linear(4, 1)))
    w = problem.initial()
    counts, found = problem.client_measures(w, data.x, data.y, data.offsets)
    h = problem.scores(w, data.x)[:, 0]
    downs = [float(s) for s in h[data.y == 0]]
    for i in range(2):
        rows = slice(data.offsets[i], data.offsets[i + 1])
        own = [float(s) for s in h[rows][data.y[rows] == 1]]
        assert counts[i] == len(own)
        assert found["loss"][i] == pytest.approx(np.mean([hinge(a - b) for a in own for b in downs]))
    assert counts[2] == 0
    assert np.isnan(found["loss"][2])
    whole = (found["loss"][:2] @ counts[:2]) / counts.sum()
    assert whole == pytest.approx(float(problem.value(w[None], Batch(data.x[None], data.y[None]))))


def model():
    return seeded(lambda: nn.Linear(4, 1))


REFUSED = {
    "model": lambda: PairwiseRisk(model=None),
    "loss": lambda: PairwiseRisk(model=model(), loss="hinge"),
    "loss ": lambda: PairwiseRisk(model=model(), loss=pair_losses.Hinge),
    "outer": lambda: PairwiseRisk(model=model(), outer=3),
    "outer ": lambda: PairwiseRisk(model=model(), outer=outers.Identity),
    "first": lambda: PairwiseRisk(model=model(), first="a"),
    "first ": lambda: PairwiseRisk(model=model(), first=True),
    "second": lambda: PairwiseRisk(model=model(), second=0.5),
    "loss.parts": lambda: PairwiseRisk(model=model(), outer=outers.Ratio()),
    "loss.parts ": lambda: PairwiseRisk(
        model=model(), loss=pair_losses.Precision(pair_losses.Hinge()), outer=outers.Kl()
    ),
    "margin": lambda: pair_losses.SquaredHinge(margin=math.nan),
    "margin ": lambda: pair_losses.SquaredMargin(margin="1"),
    "margin  ": lambda: pair_losses.Hinge(margin=math.inf),
    "margin   ": lambda: risks.metric(model(), margin=-1.0),
    "first_is_higher": lambda: pair_losses.Sigmoid(first_is_higher="no"),
    "steepness": lambda: pair_losses.LogisticMargin(steepness=0.0),
    "slope_outside": lambda: pair_losses.BarrierHinge(slope_outside=0.5),
    "width": lambda: pair_losses.BarrierHinge(width=None),
    "surrogate": lambda: pair_losses.Precision("square"),
    "function": lambda: pair_losses.CustomPairLoss(None),
    "parts": lambda: pair_losses.CustomPairLoss(lambda a, b: a - b, parts=0),
    "labels": lambda: pair_losses.CustomPairLoss(lambda a, b: a - b, labels=1),
    "floor": lambda: outers.Ratio(-1.0),
    "function ": lambda: outers.Smooth(2.0),
    "function  ": lambda: outers.SmoothLog("log"),
    "temperature": lambda: outers.Kl("x"),
    "temperature ": lambda: outers.SmoothLog(lambda v: v, temperature=0),
    "temperature  ": lambda: risks.two_way_partial_auc(model(), temperature="x"),
    "positive_temperature": lambda: risks.two_way_partial_auc(model(), positive_temperature=0),
    "power": lambda: risks.p_norm_push(model(), power=math.inf),
    "loss  ": lambda: risks.auc(model(), loss=0),
    "loss   ": lambda: risks.average_precision(model(), loss=pair_losses.CustomPairLoss(lambda a, b: a - b)),
}


@pytest.mark.parametrize("key", REFUSED)
def test_bad_arguments_are_named(key):
    with pytest.raises(BadInput) as refused:
        REFUSED[key]()
    assert refused.value.key == key.strip()


ALGORITHMS = {"FedX1": fs.FedX1, "FedX2": fs.FedX2, "Local Pair": fs.LocalPair}
BAD_HYPERPARAMETERS = [
    ("FedX1", "problem", fs.Supervised(nn.Linear(2, 2))),
    ("FedX1", "problem", PairwiseRisk),
    ("FedX1", "local_steps", 1.5),
    ("FedX1", "batch_size", 0),
    ("FedX1", "second_batch_size", "32"),
    ("FedX1", "sampled_clients", -1),
    ("FedX1", "buffer_rounds", 0),
    ("FedX1", "buffer_rounds", None),
    ("FedX1", "sharing", "some"),
    ("FedX1", "privacy", {"bound": 1.0, "noise": 1.0}),
    ("FedX1", "primal_step", math.nan),
    ("FedX2", "tracking", 0.0),
    ("FedX2", "averaging", 1.1),
    ("FedX2", "averaging", None),
    ("FedX1", "clip", 0.0),
    ("FedX2", "clip", None),
    ("FedX2", "pair_cap", 0.0),
    ("FedX2", "pair_cap", math.nan),
    ("Local Pair", "tracking", "0.9"),
    ("Local Pair", "averaging", 0.0),
    ("Local Pair", "centralised", 1),
]


@pytest.mark.parametrize(("name", "key", "value"), BAD_HYPERPARAMETERS)
def test_bad_hyperparameters_are_named(name, key, value):
    with pytest.raises(BadInput) as refused:
        ALGORITHMS[name](**{"problem": risks.auc(model()), key: value})
    assert refused.value.key == key

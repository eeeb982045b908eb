"""The min-max problems: closed forms against automatic differentiation and against brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import nn

from fedsaddle import Minimax
from fedsaddle.data.sets.synthetic import nonconvex_pl
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Ball, CappedSimplex, Simplex
from fedsaddle.numerics.roc import auroc
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.games import NonconvexPl
from fedsaddle.problems.robust import RobustTraining
from small import classes, seeded

SHARES = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


def deep(outputs):
    return seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)))


PROBLEMS = {
    "fair": lambda: ClassFair(model=deep(3), classes=3, penalty=0.3, class_shares=SHARES),
    "fair, equal": lambda: ClassFair(model=deep(3), classes=3),
    "robust": lambda: RobustTraining(model=deep(3), shape=(4,)),
    "robust, linf": lambda: RobustTraining(model=deep(3), shape=(4,), norm="linf"),
    "auc": lambda: MinimaxAuc(model=deep(1), positive_share=0.3),
    "auc, margin": lambda: MinimaxAuc(model=deep(1), positive_share=0.3, margin=0.7),
    "auc, sigmoid": lambda: MinimaxAuc(model=deep(1), positive_share=0.3, sigmoid=True),
    "auc, margin, sigmoid": lambda: MinimaxAuc(model=deep(1), positive_share=0.3, margin=0.7, sigmoid=True),
    "nonconvex-PL": lambda: NonconvexPl(4, mu=0.7, nu=1.3),
    "nonconvex-PL, one number": lambda: NonconvexPl(1, mu=0.7, nu=1.3),
}


def batch(name, clients=3, rows=6, padded=True):
    g = torch.Generator().manual_seed(5)
    width = {"nonconvex-PL": 12, "nonconvex-PL, one number": 3}.get(name, 4)
    y = torch.randint(2 if name.startswith("auc") else 3, (clients, rows), generator=g)
    weight = torch.ones(clients, rows)
    weight[1, 4:] = 0
    return Batch(torch.randn(clients, rows, width, generator=g), y, weight if padded else None)


def pair(problem, clients=3):
    g = torch.Generator().manual_seed(6)
    x, y = problem.initial()
    x = x + 0.3 * torch.randn(clients, len(x), generator=g)
    return x, problem.project_y(y + 0.2 * torch.randn(clients, len(y), generator=g))


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", PROBLEMS)
def test_gradients_are_those_of_the_value(name, padded):
    problem, rows = PROBLEMS[name](), batch(name, padded=padded)
    x, y = (v.requires_grad_() for v in pair(problem))
    expected = torch.autograd.grad(problem.value(x, y, rows).sum(), (x, y))
    gx, gy, statistics = problem.gradients(x.detach(), y.detach(), rows)
    assert statistics is None, "there is no BatchNorm"
    for found, want in zip((gx, gy), expected, strict=True):
        torch.testing.assert_close(found, want, rtol=0, atol=1e-12)
        assert want.abs().max() > 1e-3


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", ["robust", "robust, linf", "fair"])
def test_each_gradient_alone_is_the_same(name, padded):
    problem, rows = PROBLEMS[name](), batch(name, padded=padded)
    x, y = pair(problem)
    both = problem.gradients(x, y, rows)
    torch.testing.assert_close(problem.gradient_x(x, y, rows).x, both.x)
    torch.testing.assert_close(problem.gradient_y(x, y, rows), both.y)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_cohort_is_its_clients_one_by_one_and_padding_does_not_count(name):
    problem, rows = PROBLEMS[name](), batch(name)
    x, y = pair(problem)
    for c in range(3):
        n = int(rows.weight[c].sum())
        alone = Batch(rows.x[c : c + 1, :n], rows.y[c : c + 1, :n])
        value = problem.value(x[c : c + 1], y[c : c + 1], alone)
        torch.testing.assert_close(problem.value(x, y, rows)[c : c + 1], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("name", [name for name in PROBLEMS if name.startswith(("fair", "auc"))])
def test_a_step_of_both_is_a_step_along_the_gradients(name, clients):
    problem, rows = PROBLEMS[name](), Batch(*(v[:clients] for v in batch(name)[:3]))
    x, y = pair(problem, clients)
    both, after_x = problem.gradients(x, y, rows), x.clone()
    ascent = problem.descend_(after_x, y, rows, 0.3)
    torch.testing.assert_close(after_x, x - 0.3 * both.x, rtol=0, atol=1e-12)
    torch.testing.assert_close(ascent.y, both.y, rtol=0, atol=1e-12)
    after_y = problem.project_y(y + 0.2 * ascent.y)
    torch.testing.assert_close(after_y, problem.project_y(y + 0.2 * both.y), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name.startswith(("fair", "auc"))])
def test_the_slopes_of_a_batch_are_the_means_of_those_of_its_rows(name):
    problem, rows = PROBLEMS[name](), batch(name, padded=False)
    x, y = pair(problem)
    scores = problem.flat.scores(problem.weights(x), rows.x)
    whole, each = problem.slopes(scores.clone(), x, y, rows), problem.row_slopes(scores.clone(), x, y, rows)
    torch.testing.assert_close(each.scores / rows.x.shape[1], whole.scores, rtol=0, atol=1e-12)
    torch.testing.assert_close(each.y.mean(1), whole.y, rtol=0, atol=1e-12)
    if whole.rest is not None:
        torch.testing.assert_close(each.rest.mean(1), whole.rest, rtol=0, atol=1e-12)


def test_fair_objective_by_hand():
    problem, rows = PROBLEMS["fair"](), batch("fair", padded=False)
    x, y = pair(problem)
    for c in range(3):
        losses = nn.functional.cross_entropy(problem.module(x[c])(rows.x[c]), rows.y[c], reduction="none")
        by_hand = sum(y[c, k] * losses[rows.y[c] == k].sum() / SHARES[k] for k in range(3)) / 6 - 0.15 * y[c] @ y[c]
        torch.testing.assert_close(problem.value(x, y, rows)[c], by_hand, rtol=0, atol=1e-12)


def test_auc_optimum_is_the_pairwise_square_loss():
    g = torch.Generator().manual_seed(1)
    x, labels = torch.randn(40, 4, generator=g), torch.arange(40) < 12
    p = 12 / 40
    problem = MinimaxAuc(model=deep(1), positive_share=p)
    w = problem.flat.initial()
    h = problem.module(torch.cat([w, w.new_zeros(2)]))(x).squeeze(-1)
    a, b = h[labels].mean(), h[~labels].mean()
    point = torch.cat([w, a[None], b[None]]).detach()
    f = problem.value(point[None], (b - a).detach()[None, None], Batch(x[None], labels.long()[None]))
    pairs = (1 - h[labels][:, None] + h[~labels][None]).square().mean()
    torch.testing.assert_close(f[0] / (p * (1 - p)) + 1, pairs.detach(), rtol=0, atol=1e-12)
    gx = problem.gradients(point[None], (b - a).detach()[None, None], Batch(x[None], labels.long()[None])).x
    leaves = w.clone().requires_grad_()
    scores = problem.flat.scores(leaves[None], x[None])[0, :, 0]
    loss = (1 - scores[labels][:, None] + scores[~labels][None]).square().mean()
    (expected,) = torch.autograd.grad(loss, leaves)
    torch.testing.assert_close(gx[0, :-2] / (p * (1 - p)), expected, rtol=0, atol=1e-12)


def test_margin_form_is_the_square_form_with_a_shifted_dual():
    square, margin = PROBLEMS["auc"](), MinimaxAuc(model=deep(1), positive_share=0.3, margin=1.0)
    rows, p = batch("auc"), 0.3
    x, y = pair(square)
    shifted = margin.value(x, 1 + y, rows) - square.value(x, y, rows)
    torch.testing.assert_close(shifted, torch.full((3,), p * (1 - p)), rtol=0, atol=1e-12)


def test_auroc_is_sklearns_with_ties():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 6, 200) / 5, rng.random(200) < 0.3
    found = auroc(torch.tensor(scores), torch.tensor(labels.astype(int)))
    assert found == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert auroc(torch.zeros(3), torch.zeros(3)) is None


def test_nonconvex_pl_closed_form_of_phi():
    rows, problem = nonconvex_pl(clients=3, rows=5, dimension=4, seed=2), NonconvexPl(4)
    x = torch.tensor([0.3, -0.2, 0.5, 0.1]).requires_grad_()
    y = problem.best_response(x, Batch(rows.x, rows.y))
    everyone = Batch(rows.x[None], rows.y[None])
    for step in (0.1 * torch.randn(4, generator=torch.Generator().manual_seed(0)), torch.ones(4) * 0.01):
        assert problem.value(x[None], (y + step)[None], everyone) < problem.value(x[None], y[None], everyone)
    (expected,) = torch.autograd.grad(problem.value(x[None], y[None], everyone).sum(), x)
    torch.testing.assert_close(problem.gradient_of_phi(x.detach(), rows), expected, rtol=0, atol=1e-12)


def test_robust_measures_are_worse_than_plain_ones():
    problem, rows = RobustTraining(model=deep(3), shape=(4,), radius=0.5), classes(sizes=(30, 30))
    x, y = problem.initial()
    plain = problem.row_measures(x, rows.x, rows.y)
    robust = problem.pooled_measures(x, y, rows)
    assert robust["robust_loss"] > float(plain["loss"].mean())
    assert problem.attack(x, rows.x, rows.y).norm() <= 0.5 + 1e-9


def test_the_attack_takes_rows_in_blocks_and_may_look_at_a_part(monkeypatch):
    rows = classes(sizes=(30, 30))
    whole, part = (RobustTraining(model=deep(3), shape=(4,), attack_rows=n) for n in (None, 20))
    x, y = whole.initial()
    at_once = whole.attack(x, rows.x, rows.y)
    monkeypatch.setattr("fedsaddle.problems.robust.BLOCK", 7)
    torch.testing.assert_close(whole.attack(x, rows.x, rows.y), at_once)
    found = part.pooled_measures(x, y, rows)
    by_hand = part.row_measures(x, rows.x + part.attack(x, rows.x[::3], rows.y[::3]), rows.y)
    assert found["robust_loss"] == pytest.approx(float(by_hand["loss"].mean()))
    assert found["robust_loss"] <= whole.pooled_measures(x, y, rows)["robust_loss"] + 1e-6


def own(**options):
    given = {"start_x": torch.zeros(2), "start_y": torch.zeros(3)} | options
    return Minimax(given.pop("function", lambda x, y, b: b.x[:, 0] * x.sum() - y @ y), **given)


@pytest.mark.parametrize(
    ("key", "make"),
    [
        (
            "function",
            lambda: own(function=lambda x, y, b: x @ x).value(torch.ones(3, 2), torch.ones(3, 3), batch("x")),
        ),
        ("start_x", lambda: own(model=nn.Linear(2, 1))),
        ("start_x", lambda: own(start_x=torch.zeros(2, 2))),
        ("project_y", lambda: own(project_y=lambda y: y / 2)),
        ("project_y", lambda: own(project_y=lambda y: y[..., :2])),
        ("project_y", lambda: own(project_y=lambda y: torch.where(y > 5, y - 5, y))),
        ("project_y", lambda: own(project_y=lambda y: y / max(1.0, float(y.norm())))),
        ("project_y", lambda: own(project_y=lambda y: None)),
        ("project_y", lambda: own(project_y=lambda y: y @ torch.ones(7))),
        ("project_y", lambda: own(project_y=5)),
        ("project_x", lambda: own(project_x=lambda x: x + 1)),
        ("project_x", lambda: ClassFair(model=deep(3), classes=3, project_x=lambda x: x / 2)),
        ("project_y", lambda: ClassFair(model=deep(3), classes=3, project_y=lambda y: y / 2)),
        ("project_x", lambda: MinimaxAuc(model=deep(1), positive_share=0.5, project_x=lambda x: x / 2)),
        ("project_y", lambda: NonconvexPl(project_y=lambda y: y + 1)),
        ("dimension", lambda: NonconvexPl(0)),
        ("start_y", lambda: own(start_y=torch.zeros(3, 1))),
        ("start_y", lambda: own(start_y=torch.zeros(0))),
        ("start_y", lambda: own(start_y=[0.0, 0.0])),
        ("start_y", lambda: own(start_y=torch.zeros(3, dtype=torch.int64))),
        ("start_y", lambda: own(start_y=torch.tensor([0.0, float("nan")]))),
        ("start_y", lambda: own(start_y=torch.zeros(3, dtype=torch.float32))),
        ("start_y", lambda: own(project_y=Simplex())),
        ("positive_share", lambda: MinimaxAuc(model=deep(1), positive_share=1.0)),
        ("penalty", lambda: ClassFair(model=deep(3), classes=3, penalty=-1.0)),
        ("class_shares", lambda: ClassFair(model=deep(3), classes=3, class_shares=torch.ones(2))),
        ("norm", lambda: RobustTraining(model=deep(3), shape=(4,), norm="l1")),
        ("radius", lambda: RobustTraining(model=deep(3), shape=(4,), radius=0.0)),
        ("attack_rows", lambda: RobustTraining(model=deep(3), shape=(4,), attack_rows=0)),
        ("mu", lambda: NonconvexPl(mu=0.0)),
    ],
)
def test_refusals_name_the_key(key, make):
    with pytest.raises(BadInput, match=key) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_projection_that_fits_is_taken():
    assert own(project_y=Ball(1.0)).project_y == Ball(1.0)


def test_sigmoid_is_a_last_layer_of_the_model():
    """h = sigmoid(s) in the problem is the plain problem on a model that ends in a sigmoid."""
    inside, outside = deep(1), deep(1)
    squashed = MinimaxAuc(model=inside, positive_share=0.3, sigmoid=True)
    plain = MinimaxAuc(model=nn.Sequential(*outside, nn.Sigmoid()), positive_share=0.3)
    rows = batch("auc")
    x, y = pair(plain)
    for found, want in zip(squashed.gradients(x, y, rows)[:2], plain.gradients(x, y, rows)[:2], strict=True):
        torch.testing.assert_close(found, want, rtol=0, atol=1e-12)
    torch.testing.assert_close(squashed.best_dual(x, rows), plain.best_dual(x, rows))
    scores = squashed.ranking(x[0], rows.x[0])
    torch.testing.assert_close(scores.sigmoid(), plain.ranking(x[0], rows.x[0]))


@pytest.mark.parametrize("inside", [Simplex(), CappedSimplex(0.4), CappedSimplex(0.5), CappedSimplex(1 / 3)])
def test_the_best_mixture_without_a_penalty_is_the_best_corner_of_its_set(inside):
    """A linear function is largest at a corner, of which all are tried; not at a class that the set does not allow."""
    problem = ClassFair(model=deep(3), classes=3, penalty=0.0, project_y=inside)
    g = torch.Generator().manual_seed(3)
    rows = Batch(torch.randn(12, 4, generator=g, dtype=torch.float64), torch.arange(12) % 3)
    x = problem.initial()[0] + 0.3
    found = problem.best_response(x, rows)
    high = getattr(inside, "high", 1.0)
    corners = {
        tuple(torch.tensor(c)[list(o)].tolist())
        for c in [(high, min(high, 1 - high), max(0.0, 1 - 2 * high))]
        for o in itertools.permutations(range(3))
    }
    batch = Batch(rows.x[None], rows.y[None])
    values = {c: float(problem.value(x[None], torch.tensor([c]), batch)) for c in corners}
    assert float(found.sum()) == pytest.approx(1)
    assert float(found.max()) <= high + 1e-9
    assert float(problem.value(x[None], found[None], batch)) == pytest.approx(max(values.values()), abs=1e-8)


def test_the_dual_of_the_margin_form_is_not_negative():
    problem = MinimaxAuc(model=deep(1), positive_share=0.3, margin=1.0)
    given = torch.tensor([-2.0, 0.0, 0.5, 3.0], dtype=torch.float64)
    assert problem.project_y(given).tolist() == [0.0, 0.0, 0.5, 3.0]
    assert MinimaxAuc(model=deep(1), positive_share=0.3).project_y(given).tolist() == given.tolist()

"""CODA+ and Local SGDA on the compositional AUC objective, with a linear score, row by row in numpy."""

import numpy as np
import pytest
import torch
from agreement import ENGINES, ROUNDS, SEED, agree
from draws import World
from torch import nn

import fedsaddle as fs
from fedsaddle.federation.clients import Batch
from fedsaddle.metrics.measures import GradientOfPhi, Objective, Position, SolverLimits
from small import SIZES, classes, play, seeded

ROWS = classes(SIZES, features=4, classes=2)
P, STEP, LOCAL, BATCH = 0.4, 0.2, 3, 4


def cross_entropy_gradient(w, c, rows, labels):
    gw, gc = np.zeros(4), 0.0
    for a, label in zip(rows, labels, strict=True):
        away = 1 / (1 + np.exp(-(a @ w + c))) - label
        gw, gc = gw + away * a / len(rows), gc + away / len(rows)
    return gw, gc


def auc_gradients(w, c, a, b, alpha, rows, labels):
    """Of eq. (2) in (w, c, a, b) and in alpha."""
    gw, gc, ga, gb, g_alpha = np.zeros(4), 0.0, 0.0, 0.0, 0.0
    for row, label in zip(rows, labels, strict=True):
        h = row @ w + c
        if label == 1:
            slope = 2 * (1 - P) * (h - a) - 2 * (1 + alpha) * (1 - P)
            ga += -2 * (1 - P) * (h - a)
            g_alpha += -2 * (1 - P) * h
        else:
            slope = 2 * P * (h - b) + 2 * (1 + alpha) * P
            gb += -2 * P * (h - b)
            g_alpha += 2 * P * h
        gw, gc = gw + slope * row, gc + slope
        g_alpha -= 2 * P * (1 - P) * alpha
    n = len(rows)
    return gw / n, gc / n, ga / n, gb / n, g_alpha / n


def box(start, inner_step, inner_weight, gamma):
    """One stage of CODA+ with all clients; gamma = 0 is Local SGDA."""
    world = World(ROWS, 2, SEED)
    v, alpha, xs, ys = start.copy(), 0.0, [], []
    v_0 = start.copy()
    for round in range(ROUNDS):
        ends, alphas = [], []
        for k in range(world.N):
            v_k, alpha_k = v.copy(), alpha
            for t in range(LOCAL):
                rows, labels = world.batch(round, 0, k, t, BATCH)
                w, c, a, b = v_k[:4], v_k[4], v_k[5], v_k[6]
                cw, cc = cross_entropy_gradient(w, c, rows, labels)
                u, u_c = w - inner_step * cw, c - inner_step * cc
                gw, gc, ga, gb, g_alpha = auc_gradients(u, u_c, a, b, alpha_k, rows, labels)
                g = np.concatenate([gw + inner_weight * cw, [gc + inner_weight * cc, ga, gb]])
                v_k = v_k - STEP * (g + gamma * (v_k - v_0))
                alpha_k = alpha_k + STEP * g_alpha
            ends.append(v_k)
            alphas.append(alpha_k)
        v, alpha = sum(ends) / world.N, sum(alphas) / world.N
        xs.append(v)
        ys.append([alpha])
    return xs, ys


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("inner_step", "inner_weight"), [(0.3, 0.0), (0.2, 1.0), (0.3, 0.7)])
@pytest.mark.parametrize("name", ["CODA+", "Local SGDA"])
def test_compositional_auc(engine, inner_step, inner_weight, name):
    model = seeded(lambda: nn.Linear(4, 1))
    options = {"inner_step": inner_step, "inner_weight": inner_weight}
    problem = fs.CompositionalAuc(model=model, positive_share=P, **options)
    shared = {"problem": problem, "local_steps": LOCAL, "batch_size": BATCH, "primal_step": STEP}
    coda = name == "CODA+"
    algorithm = (
        fs.CodaPlus(**shared, stage_rounds=ROUNDS + 1, proximal=0.1) if coda else fs.LocalSgda(**shared, dual_step=STEP)
    )
    states = play(algorithm, ENGINES[engine](ROWS, seed=SEED), ROUNDS, seed=SEED)[1:]
    xs, ys = box(problem.initial()[0].numpy(), inner_step, inner_weight, 0.1 if coda else 0.0)
    agree([algorithm.model(s) for s in states], xs)
    agree([algorithm.dual(s) for s in states], ys)


def problem(**options):
    given = {"inner_step": 0.3, "inner_weight": 0.7, **options}
    return fs.CompositionalAuc(model=seeded(lambda: nn.Linear(4, 1)), positive_share=P, **given)


def point():
    return torch.tensor([0.5, -0.2, 0.3, 0.1, 0.2, 0.4, -0.3])


def inner_point(v, inner_step, rows, labels):
    cw, cc = cross_entropy_gradient(v[:4], v[4], rows, labels)
    return v[:4] - inner_step * cw, v[4] - inner_step * cc, cw, cc


def best_dual(v, inner_step, rows, labels, margin):
    """`mean(p h[-] - (1-p) h[+]) / (p (1-p))` with h at u, row by row."""
    u, c, *_ = inner_point(v, inner_step, rows, labels)
    sides = [(P if label == 0 else -(1 - P)) * (row @ u + c) for row, label in zip(rows, labels, strict=True)]
    return np.mean(sides) / (P * (1 - P)) + margin


@pytest.mark.parametrize("margin", [None, 1.0])
@pytest.mark.parametrize("inner_step", [0.0, 0.3, 2.0])
def test_the_best_dual_is_that_of_the_inner_point(inner_step, margin):
    """Of each client at its own u, and of all clients the mean of theirs."""
    own, v = problem(inner_step=inner_step, margin=margin), point()
    world = World(ROWS, 2, SEED)
    exact = [best_dual(v.numpy(), inner_step, *world.everything(k), margin or 0.0) for k in range(world.N)]
    for k, wanted in enumerate(exact):
        x, y = ROWS.client(k)
        assert float(own.best_dual(v[None], Batch(x[None], y[None]))) == pytest.approx(wanted, abs=1e-10)
        clipped = wanted if margin is None else max(0.0, wanted)
        assert float(own.best_response(v, Batch(x, y))) == pytest.approx(clipped, abs=1e-10)
    everyone = Objective(own, ROWS).best_response(v, torch.zeros(1), SolverLimits())
    assert float(everyone.point) == pytest.approx(max(0.0, np.mean(exact)) if margin else np.mean(exact), abs=1e-10)


def test_rows_that_count_differently_count_so_in_the_best_response():
    (x, y), own, v = ROWS.client(0), problem(), point()
    twice = torch.cat([x, x[:3]]), torch.cat([y, y[:3]])
    weight = torch.ones(len(y))
    weight[:3] = 2
    found = own.best_response(v, Batch(x, y, weight / weight.sum()))
    torch.testing.assert_close(found, own.best_response(v, Batch(*twice)), rtol=0, atol=1e-12)


def test_the_gradient_of_phi_is_the_mean_of_the_clients_each_at_its_own_inner_point():
    own, v, world = problem(), point(), World(ROWS, 2, SEED)
    each = [best_dual(v.numpy(), 0.3, *world.everything(k), 0.0) for k in range(world.N)]
    alpha, g = np.mean(each), np.zeros(7)
    for k in range(world.N):
        rows, labels = world.everything(k)
        u, c, cw, cc = inner_point(v.numpy(), 0.3, rows, labels)
        gw, gc, ga, gb, _ = auc_gradients(u, c, v[5].item(), v[6].item(), alpha, rows, labels)
        g += np.concatenate([gw + 0.7 * cw, [gc + 0.7 * cc, ga, gb]]) / world.N
    found = GradientOfPhi()(Position(own, v, torch.zeros(1), ROWS, ROWS))
    assert found.value == pytest.approx(g @ g, abs=1e-10)
    at_w = problem(inner_step=0.0).best_response(v, Batch(ROWS.x, ROWS.y))
    assert abs(float(at_w) - alpha) > 1e-2, "the two duals are meant to differ"


def test_the_penalty_counts_once_and_the_bound_is_on_the_whole_gradient():
    (x, y), v, l2 = ROWS.client(0), point()[None], 0.4
    batch, α = Batch(x[None], y[None]), torch.tensor([[0.3]])
    plain, penalised, bounded = problem(), problem(l2=l2), problem(l2=l2, clip=0.05)
    more = penalised.gradients(v, α, batch).x - plain.gradients(v, α, batch).x
    torch.testing.assert_close(more, torch.cat([l2 * v[:, :5], torch.zeros(1, 2)], 1), rtol=0, atol=1e-12)
    more = penalised.value(v, α, batch) - plain.value(v, α, batch)
    torch.testing.assert_close(more, l2 / 2 * v[:, :5].square().sum(1), rtol=0, atol=1e-12)
    assert torch.equal(penalised.best_dual(v, batch), plain.best_dual(v, batch))
    g, short = penalised.gradients(v, α, batch).x, bounded.gradients(v, α, batch).x
    torch.testing.assert_close(short[:, :5], g[:, :5] * 0.05 / (g[:, :5].norm() + 1e-6), rtol=0, atol=1e-12)
    assert torch.equal(short[:, 5:], g[:, 5:])


def test_the_value_is_auc_at_the_inner_point_and_cross_entropy_at_w():
    (x, y), v, α = ROWS.client(0), point(), 0.3
    rows, labels = x.numpy(), y.numpy()
    u, c, *_ = inner_point(v.numpy(), 0.3, rows, labels)
    total = 0.0
    for row, label in zip(rows, labels, strict=True):
        h, s = row @ u + c, row @ v[:4].numpy() + v[4].item()
        square = (1 - P) * (h - v[5].item()) ** 2 if label == 1 else P * (h - v[6].item()) ** 2
        total += square + 2 * (1 + α) * (P * h if label == 0 else -(1 - P) * h) - P * (1 - P) * α**2
        total += 0.7 * np.log1p(np.exp(-s if label == 1 else s))
    found = problem().value(v[None], torch.tensor([[α]]), Batch(x[None], y[None]))
    assert float(found) == pytest.approx(total / len(rows), abs=1e-12)
    shown = problem().row_measures(v, x, y, torch.tensor([α]))["loss"]
    plain = problem(inner_step=0.0).value(v[None], torch.tensor([[α]]), Batch(x[None], y[None]))
    assert float(shown.mean()) == pytest.approx(float(plain), abs=1e-12), "what is shown is plain AUC at w"

"""CODA+ and Local SGDA on the compositional AUC objective, with a linear score, row by row in numpy."""

import numpy as np
import pytest
from agreement import ENGINES, ROUNDS, SEED, agree
from draws import World
from torch import nn

import fedsaddle as fs
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

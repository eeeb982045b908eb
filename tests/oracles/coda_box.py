"""Algorithms 1-4 of the CODASCA paper, line by line: CODA+ (DSG+), CODASCA (DSGSCA+), and CODA's dual."""

from __future__ import annotations

import numpy as np
from argmax import free
from game import X0, Y0, gradients
from sgda_box import mean


def best_dual(x, rows):
    """argmax_y of the game on some rows: the mean of (a·x) a."""
    return mean((a @ x) * a for a in rows)


def weighted(world, by_rows, parts):
    """The mean of `parts`, client -> value; by the clients' rows or not."""
    n = {k: len(world.xs[k]) if by_rows else 1 for k in parts}
    return sum(n[k] * v for k, v in parts.items()) / sum(n.values())


class Drawn:
    """The server's draws of one round: the cohort first, then whether a random output is this round's."""

    def __init__(self, world, round, m):
        self.rng = world.server(round)
        self.cohort = self.rng.choice(world.N, m, replace=False) if m < world.N else np.arange(world.N)

    def replaces(self, r):
        return self.rng.random() < 1 / r


def coda_plus(world, T, m, R, I, eta, gamma, batch, output, project=free, dual_batch=None, by_rows=False, warm=None):  # noqa: E741
    """`R(s)`, `I(s)`, `eta(s)` are of stage s = 0, 1, ..., times `warm(round)`; T rounds in all."""
    v, alpha, s, r = X0, Y0, 0, 0
    v_0, returned, path = v, (v, alpha), []
    out = {"x": [], "y": []}
    for round in range(T):
        drawn, exchange, step = Drawn(world, round, m), 0, eta(s) * (warm(round) if warm else 1)
        if dual_batch is not None and r == 0 and s > 0:  # CODA: the dual from the primal, over all clients
            duals = {}
            for k in world.answered(np.arange(world.N), round, 0):
                rows = world.xs[k] if dual_batch == "all" else world.rows(round, 0, k, 0, dual_batch)
                duals[k] = best_dual(v, rows)
            alpha, exchange = project(weighted(world, by_rows, duals)), 1
        vs, alphas, paths = {}, {}, ({}, {})
        for k in world.answered(drawn.cohort, round, exchange):
            v_k, alpha_k, iterates = v, alpha, []
            for t in range(I(s)):
                gv, ga = gradients(v_k, alpha_k, world.rows(round, exchange, k, t, batch))
                v_k, alpha_k = v_k - step * (gv + gamma * (v_k - v_0)), project(alpha_k + step * ga)
                iterates.append((v_k, alpha_k))
            vs[k], alphas[k] = v_k, alpha_k
            paths[0][k], paths[1][k] = mean(i[0] for i in iterates), mean(i[1] for i in iterates)
        v, alpha, r = weighted(world, by_rows, vs), weighted(world, by_rows, alphas), r + 1  # communicate
        path.append(tuple(weighted(world, by_rows, p) for p in paths))
        if output == "average":
            returned = (mean(p[0] for p in path), mean(p[1] for p in path))
        elif output == "last" or drawn.replaces(r):
            returned = (v, alpha)
        if r == R(s):  # the stage returns, and the next one starts from there
            v, alpha = returned
            v_0, path, s, r = v, [], s + 1, 0
        out["x"].append(returned[0])
        out["y"].append(returned[1])
    return out


def codasca(
    world,
    T,
    m,
    R,
    I,  # noqa: E741
    eta,
    eta_g,
    gamma,
    batch,
    output,
    project=free,
    by_rows=False,
    warm=None,
    mu=0.0,
    adam=None,
):
    """With `m < N` clients that are not asked keep their variates, and c is the mean of all.

    `mu` is the momentum: each direction is mixed with d, the mean of all directions of the round before.
    """
    v, alpha, s, r = X0, Y0, 0, 0
    v_0, returned, ends = v, (v, alpha), []
    zeros = lambda: [np.zeros(4) for _ in range(world.N)]  # noqa: E731
    c_v, c_a, ck_v, ck_a = np.zeros(4), np.zeros(4), zeros(), zeros()
    d_v, d_a = np.zeros(4), np.zeros(4)
    out = {"x": [], "y": [], "cx": [], "cy": [], "ck": []}
    for round in range(T):
        drawn, step = Drawn(world, round, m), eta(s) * (warm(round) if warm else 1)
        vs, alphas, went_v, went_a = {}, {}, {}, {}
        for k in world.answered(drawn.cohort, round, 0):
            v_k, alpha_k, used_v, used_a, along_v, along_a = v, alpha, [], [], [], []
            plain = lambda g, w: g  # noqa: E731
            turn_v, turn_a = (adam(), adam()) if adam else (plain, plain)
            for t in range(I(s)):
                gv, ga = gradients(v_k, alpha_k, world.rows(round, 0, k, t, batch))
                gv = gv + gamma * (v_k - v_0)  # of F_k^s
                used_v.append(gv)
                used_a.append(ga)
                along_v.append((1 - mu) * (gv - ck_v[k] + c_v) + mu * d_v)
                along_a.append((1 - mu) * (ga - ck_a[k] + c_a) + mu * d_a)
                v_k = v_k - step * turn_v(along_v[-1], v_k)
                alpha_k = project(alpha_k + step * turn_a(along_a[-1], alpha_k))
            ck_v[k] = mean(used_v)  # eq. (7): the gradients actually used
            ck_a[k] = mean(used_a)
            vs[k], alphas[k] = v_k, alpha_k
            went_v[k], went_a[k] = mean(along_v), mean(along_a)
        d_v, d_a = weighted(world, by_rows, went_v), weighted(world, by_rows, went_a)
        c_v, c_a = (weighted(world, by_rows, dict(enumerate(c))) for c in (ck_v, ck_a))  # communicate
        v = v + eta_g * (weighted(world, by_rows, vs) - v)
        alpha = project(alpha + eta_g * (weighted(world, by_rows, alphas) - alpha))
        r += 1
        ends.append((v, alpha))
        if output == "average":
            returned = (mean(e[0] for e in ends), mean(e[1] for e in ends))
        elif output == "last" or drawn.replaces(r):
            returned = (v, alpha)
        if r == R(s):
            v, alpha = returned
            v_0, ends, s, r = v, [], s + 1, 0
            c_v, c_a, ck_v, ck_a = np.zeros(4), np.zeros(4), zeros(), zeros()
            d_v, d_a = np.zeros(4), np.zeros(4)
        out["x"].append(returned[0])
        out["y"].append(returned[1])
        out["cx"].append(c_v)
        out["cy"].append(c_a)
        out["ck"].append([c.copy() for c in ck_v])
    return out

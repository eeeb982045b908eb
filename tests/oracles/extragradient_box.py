"""Extragradient, Popov's method, local extragradient steps and Anderson mixing, literally."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from argmax import free
from game import X0, Y0, gradients
from later_games_box import cohort
from sgda_box import mean


def mean_gradients(world, s, exchange, S, x, y, batch):
    each = []
    for i in world.answered(S, s, exchange):
        rows = world.xs[i] if batch is None else world.rows(s, exchange, i, 0, batch)
        each.append(gradients(x, y, rows))
    return mean(g[0] for g in each), mean(g[1] for g in each)


def extragradient(world, rounds, m, batch, eta_x, eta_y, project=free, average=False):
    x, y, out, hs = X0, Y0, [], []
    for s in range(rounds):
        rng, S = cohort(world, s, m)
        gx, gy = mean_gradients(world, s, 0, S, x, y, batch)  # line 2
        hx, hy = x - eta_x * gx, project(y + eta_y * gy)  # line 3
        S = rng.choice(world.N, m, replace=False) if m < world.N else range(world.N)
        gx, gy = mean_gradients(world, s, 1, S, hx, hy, batch)  # line 4
        x, y = x - eta_x * gx, project(y + eta_y * gy)  # line 5
        hs.append((hx, hy))
        out.append((mean(h[0] for h in hs), mean(h[1] for h in hs)) if average else (x, y))
    return out


def optimistic(world, rounds, m, batch, eta_x, eta_y, project=free):
    x, y, out = X0, Y0, []
    hx, hy, gx, gy = x, y, None, None
    for s in range(rounds):
        _, S = cohort(world, s, m)
        if s:
            hx, hy = x - eta_x * gx, project(y + eta_y * gy)  # line 2, with the gradients of the round before
        gx, gy = mean_gradients(world, s, 0, S, hx, hy, batch)  # line 3
        x, y = x - eta_x * gx, project(y + eta_y * gy)  # line 4
        out.append((x, y))
    return out


def local_extragradient(world, rounds, m, K, batch, eta_x, eta_y, variates, project=free):
    x, y, out = X0, Y0, []
    c, own = (0 * X0, 0 * Y0), dict.fromkeys(range(world.N), (0 * X0, 0 * Y0))
    for s in range(rounds):
        _, S = cohort(world, s, m)
        there = world.answered(S, s, 0)
        ends, changes = [], []
        for i in there:
            u, v, seen = x, y, []
            ox, oy = (c[0] - own[i][0], c[1] - own[i][1]) if variates else (0, 0)
            for k in range(K):
                gx, gy = gradients(u, v, world.xs[i] if batch is None else world.rows(s, 0, i, k, batch))  # line 3
                hx, hy = u - eta_x * (gx + ox), project(v + eta_y * (gy + oy))  # line 4
                rows = world.xs[i] if batch is None else world.rows(s, 0, i, k, batch, stream=1)
                gx, gy = gradients(hx, hy, rows)  # line 5
                u, v = u - eta_x * (gx + ox), project(v + eta_y * (gy + oy))  # line 6
                seen.append((gx, gy))
            ends.append((u, v))
            new = mean(g[0] for g in seen), mean(g[1] for g in seen)  # line 8
            changes.append((new[0] - own[i][0], new[1] - own[i][1]))
            own[i] = new
        x, y = mean(e[0] for e in ends), mean(e[1] for e in ends)  # line 7
        if variates:
            share = len(there) / world.N
            c = tuple(c[p] + share * mean(d[p] for d in changes) for p in (0, 1))
        out.append((x, y))
    return out


def anderson(g, z, rounds, m, ridge, growth=2.0, project=free):
    """`z <- mix` for a map g, with the normal equations of the differences at unit length."""
    Z, G, jumped, out = [], [], False, []
    for _ in range(rounds):
        Z, G = [*Z, z][-m - 1 :], [*G, g(z)][-m - 1 :]  # line 2
        f = [b - a for a, b in zip(Z, G, strict=True)]  # line 3
        size = [np.linalg.norm(v) for v in f]
        if jumped and len(f) > 1 and size[-1] > growth * min(size[:-1]):  # line 4
            z, Z, G, jumped = G[int(np.argmin(size[:-1]))], [], [], False
        elif len(f) == 1:
            z, jumped = G[-1], False
        else:
            D = np.stack([b - a for a, b in pairwise(f)], 1)
            unit = D / np.linalg.norm(D, axis=0)
            system = np.concatenate([unit, np.sqrt(ridge) * np.eye(unit.shape[1])])
            right = np.concatenate([f[-1], np.zeros(unit.shape[1])])
            gamma = np.linalg.lstsq(system, right, rcond=None)[0] / np.linalg.norm(D, axis=0)  # line 5
            dG = np.stack([b - a for a, b in pairwise(G)], 1)
            z, jumped = project(G[-1] - dG @ gamma), True  # lines 6-7
        out.append(z)
    return out

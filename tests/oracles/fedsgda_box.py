"""Frameworks 1-3 with the MB, STORM and SPIDER estimators."""

from __future__ import annotations

import numpy as np
from argmax import free
from game import X0, Y0, gradients
from sgda_box import mean


def minibatch(t, now, before, last):
    return now


def storm(alpha):
    def estimate(t, now, before, last):
        return now if t == 0 else (1 - alpha(t)) * (last - before) + now

    return estimate


def spider(period):
    def estimate(t, now, before, last):
        return now if t % period == 0 else last + (now - before)

    return estimate


def fedsgda(world, T, S, K, batch, eta, gamma, estimate, size=lambda t, S: S, project=free):
    N = world.N
    x, y, x_before, y_before, u, v = X0, Y0, X0, Y0, None, None
    out = {"x": [], "y": [], "u": [], "v": []}
    for t in range(T):  # line 1
        rng = world.server(t)
        m = min(N, size(t, S))
        collecting = rng.choice(N, m, replace=False) if m < N else np.arange(N)
        collecting = world.answered(collecting, t, 0)
        now = [gradients(x, y, world.xs[i]) for i in collecting]  # Framework 2
        before = [gradients(x_before, y_before, world.xs[i]) for i in collecting]
        u = estimate(t, mean(g[0] for g in now), mean(g[0] for g in before), u)  # line 5
        v = estimate(t, mean(g[1] for g in now), mean(g[1] for g in before), v)
        updating = rng.choice(N, m, replace=False) if m < N else np.arange(N)
        xs, ys = [], []
        for i in world.answered(updating, t, 1):  # Framework 3
            xk, yk = x, y
            for k in range(K):
                B = world.rows(t, 1, i, k, batch)
                (gx, gy), (gx0, gy0) = gradients(xk, yk, B), gradients(x, y, B)
                xk, yk = xk - eta(t) * (gx - gx0 + u), project(yk + gamma(t) * (gy - gy0 + v))
            xs.append(xk)
            ys.append(yk)
        x_before, y_before, x, y = x, y, mean(xs), mean(ys)  # line 9
        for key, value in (("x", x), ("y", y), ("u", u), ("v", v)):
            out[key].append(value)
    return out

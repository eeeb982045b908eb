"""Algorithms 1 (Local SGDA), 2 (Momentum), 4 (SGDA+) and 5 (Momentum SGDA+), over the iterations t of the boxes."""

from __future__ import annotations

import numpy as np
from argmax import free
from fedavg_box import at
from game import X0, Y0, gradients


def mean(vectors):
    vectors = list(vectors)
    return sum(vectors) / len(vectors)


class Clock:
    """Which batch belongs to iteration t: the round, and how often the clients were asked in it."""

    def __init__(self, world, tau, batch):
        self.world, self.tau, self.batch, self.exchange = world, tau, batch, 0

    def rows(self, t, i, stream=0):
        return self.world.rows(t // self.tau, self.exchange, i, t % self.tau, self.batch, stream)

    def averaged(self, t, S):
        """After iteration t: whether models (tau) and snapshot (S) are averaged."""
        sync, snap = (t + 1) % self.tau == 0, S is not None and (t + 1) % S == 0
        self.exchange = 0 if sync else self.exchange + int(snap)
        return sync, snap


def local_sgda(world, T, tau, batch, eta_x, eta_y, S=None, project=free):
    n, clock = range(world.N), Clock(world, tau, batch)
    x, y, tilde = [X0] * world.N, [Y0] * world.N, X0
    out = {"x": [], "y": [], "mean": []}
    path = []
    for t in range(T):  # line 2
        for i in n:
            xi = clock.rows(t, i)  # line 3
            gx, gy = gradients(x[i], y[i], xi)
            if S is not None:
                gy = gradients(tilde, y[i], xi)[1]
            x[i], y[i] = x[i] - eta_x(t // tau) * gx, project(y[i] + eta_y(t // tau) * gy)  # lines 4-5
        path.append(mean(x))
        sync, snap = clock.averaged(t, S)
        if snap:
            tilde = mean(x)
        if sync:  # lines 6-9
            x, y = [mean(x)] * world.N, [mean(y)] * world.N
            out["x"].append(x[0])
            out["y"].append(y[0])
            out["mean"].append(mean(path))
    return out | {"path": path}


def momentum_local_sgda(world, T, tau, batch, eta_x, eta_y, alpha, beta_x, beta_y, at_sync, S=None, project=free):
    n, clock = range(world.N), Clock(world, tau, batch)
    x, y, tilde = [X0] * world.N, [Y0] * world.N, X0
    d = [gradients(X0, Y0, clock.rows(0, i, stream=1)) for i in n]  # line 1
    dx, dy = [g[0] for g in d], [g[1] for g in d]
    out = {"x": [], "y": []}
    for t in range(T):  # line 2
        for i in n:
            x[i] = x[i] + alpha * ((x[i] - at(eta_x, t // tau) * dx[i]) - x[i])  # line 3
            y[i] = project(y[i] + alpha * ((y[i] + at(eta_y, t // tau) * dy[i]) - y[i]))  # line 4
            xi = clock.rows(t, i)  # line 5
            gx, gy = gradients(x[i], y[i], xi)
            if S is not None:
                gy = gradients(tilde, y[i], xi)[1]
            dx[i] = (1 - beta_x * alpha) * dx[i] + beta_x * alpha * gx  # line 6
            dy[i] = (1 - beta_y * alpha) * dy[i] + beta_y * alpha * gy  # line 7
        sync, snap = clock.averaged(t, S)
        if snap:
            tilde = mean(x)
        if sync:  # lines 8-12
            x, y = [mean(x)] * world.N, [mean(y)] * world.N
            if at_sync == "average":
                dx, dy = [mean(dx)] * world.N, [mean(dy)] * world.N
            if at_sync == "reset":
                dx, dy = [np.zeros(4)] * world.N, [np.zeros(4)] * world.N
            out["x"].append(x[0])
            out["y"].append(y[0])
    return out

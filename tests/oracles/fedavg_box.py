"""Local SGD, FedAvg and q-FedAvg, literally."""

from __future__ import annotations

import numpy as np
from argmax import free
from softmax_regression import gradient, loss


def local_sgd(world, round, exchange, i, w, tau, batch, eta, project):
    """w_i^(1) ... w_i^(tau)."""
    path = []
    for t in range(tau):
        x, y = world.batch(round, exchange, i, t, batch)
        w = project(w - eta * gradient(w, x, y, world.k, world.l2))
        path.append(w)
    return path


def at(step, s):
    """A number, or a function of the round."""
    return step(s) if callable(step) else step


def fedavg(world, w, rounds, m, tau, batch, eta, weighting, project=free):
    """The server's model and the mean of all local iterates so far, after each round."""
    models, means, every_round = [], [], []
    for s in range(rounds):
        rng = world.server(s)
        S = rng.choice(world.N, m, replace=False) if m < world.N else range(world.N)
        S = world.answered(S, s, 0)
        paths = {i: local_sgd(world, s, 0, i, w, tau, batch, at(eta, s), project) for i in S}
        n = {i: world.sizes[i] if weighting == "size" else 1 for i in S}
        total = sum(n[i] for i in S)
        every_round.append(sum(n[i] / total * sum(paths[i]) / tau for i in S))
        w = sum(n[i] / total * paths[i][-1] for i in S)
        models.append(w)
        means.append(sum(every_round) / len(every_round))
    return models, means


def fedavgm(world, w, rounds, m, tau, batch, etas, beta, nesterov, weighting="size", project=free):
    """v <- beta v + (w - mean); w <- w - v, or with Nesterov's look ahead w <- w - (beta v + (w - mean))."""
    models, velocities, v = [], [], np.zeros(len(w))
    for s in range(rounds):
        rng = world.server(s)
        S = rng.choice(world.N, m, replace=False) if m < world.N else range(world.N)
        S = world.answered(S, s, 0)
        n = {i: world.sizes[i] if weighting == "size" else 1 for i in S}
        total = sum(n[i] for i in S)
        finals = {i: local_sgd(world, s, 0, i, w, tau, batch, etas[s], project)[-1] for i in S}
        delta = w - sum(n[i] / total * finals[i] for i in S)
        v = beta * v + delta
        w = project(w - (beta * v + delta)) if nesterov else project(w - v)
        models.append(w)
        velocities.append(v)
    return models, velocities


def qfedavg(world, w, rounds, m, tau, batch, eta, q, sampling, project=free):
    """dw_k = (w - w_k) / eta, Delta_k = F_k^q dw_k, h_k = q F_k^(q-1) |dw_k|^2 + F_k^q / eta."""
    models = []
    for s in range(rounds):
        rng = world.server(s)
        if sampling == "size":
            S = rng.choice(world.N, m, p=np.array(world.sizes) / sum(world.sizes))
        else:
            S = rng.choice(world.N, m, replace=False) if m < world.N else range(world.N)
        deltas, hs = np.zeros(len(w)), 0.0
        for k in world.answered(S, s, 0):
            F = loss(w, *world.everything(k), world.k, world.l2)
            w_k = local_sgd(world, s, 0, k, w, tau, batch, at(eta, s), project)[-1]
            dw = (w - w_k) / at(eta, s)
            deltas = deltas + F**q * dw
            hs += q * F ** (q - 1) * sum(v * v for v in dw) + F**q / at(eta, s)
        w = w - deltas / hs
        models.append(w)
    return models

"""Local SGD, FedAvg and q-FedAvg, literally."""

from __future__ import annotations

import numpy as np
from argmax import free
from softmax_regression import gradient, loss


class Sgd:
    """The direction is the gradient."""

    def __call__(self, g, w):
        return g


class HeavyBall:
    """b <- beta b + g; with Nesterov's look ahead g + beta b."""

    def __init__(self, beta, nesterov):
        self.beta, self.nesterov, self.b = beta, nesterov, 0.0

    def __call__(self, g, w):
        self.b = self.beta * self.b + g
        return g + self.beta * self.b if self.nesterov else self.b


class AdamByHand:
    """Kingma and Ba, Algorithm 1; with a decoupled weight decay."""

    def __init__(self, decay=0.0, b1=0.9, b2=0.999, eps=1e-8):
        self.decay, self.b1, self.b2, self.eps, self.m, self.v, self.t = decay, b1, b2, eps, 0.0, 0.0, 0

    def __call__(self, g, w):
        self.t += 1
        self.m = self.b1 * self.m + (1 - self.b1) * g
        self.v = self.b2 * self.v + (1 - self.b2) * g * g
        m, v = self.m / (1 - self.b1**self.t), self.v / (1 - self.b2**self.t)
        return m / (np.sqrt(v) + self.eps) + self.decay * w


def local_sgd(world, round, exchange, i, w, tau, batch, eta, project):
    """w_i^(1) ... w_i^(tau); each exchange has an optimiser of its own."""
    path, direction = [], getattr(world, "optimiser", Sgd)()
    for t in range(tau):
        x, y = world.batch(round, exchange, i, t, batch)
        w = project(w - eta * direction(gradient(w, x, y, world.k, world.l2), w))
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


def fedopt(world, w, rounds, m, tau, batch, eta_l, kind, eta, beta1, beta2, adaptivity, project=free):
    """Reddi et al. 2021, Algorithm 2, with the clients' rows as weights."""
    models, M, V = [], np.zeros(len(w)), np.full(len(w), adaptivity**2)
    for s in range(rounds):
        rng = world.server(s)
        S = world.answered(rng.choice(world.N, m, replace=False) if m < world.N else range(world.N), s, 0)
        total = sum(world.sizes[i] for i in S)
        each = {i: local_sgd(world, s, 0, i, w, tau, batch, at(eta_l, s), project)[-1] - w for i in S}  # lines 4-9
        delta = sum(world.sizes[i] / total * each[i] for i in S)  # line 10
        M = beta1 * M + (1 - beta1) * delta  # line 11
        if kind == "adagrad":
            V = V + delta**2  # line 12
        elif kind == "yogi":
            V = V - (1 - beta2) * delta**2 * np.sign(V - delta**2)  # line 13
        else:
            V = beta2 * V + (1 - beta2) * delta**2  # line 14
        w = project(w + at(eta, s) * M / (np.sqrt(V) + adaptivity))  # line 15
        models.append(w)
    return models, V


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

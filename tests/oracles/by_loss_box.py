"""Delta-FL, TERM, AAggFF, PropFair, FedMGDA+, FedProx, FedNova and exponential DRO, literally."""

from __future__ import annotations

import itertools
import math

import numpy as np
from argmax import free, simplex
from fedavg_box import local_sgd
from softmax_regression import gradient, loss


def cohort(world, s, m):
    rng = world.server(s)
    return [int(i) for i in (rng.choice(world.N, m, replace=False) if m < world.N else range(world.N))]


def losses(world, S, w):
    return {i: loss(w, *world.everything(i), world.k, world.l2) for i in S}


def delta_fl(world, w, rounds, m, tau, batch, eta, theta, boundary, weighting="size", exchange=1, project=free):
    """Sort with multiplicity, take element ceil(N p) - 1, keep who is at or above it."""
    models = []
    for s in range(rounds):
        S = world.answered(cohort(world, s, m), s, 0)
        F = losses(world, S, w)
        n = {k: world.sizes[k] if weighting == "size" else 1 for k in S}
        copies = sorted(F[k] for k in S for _ in range(n[k]))
        p = 1 - theta
        Q = copies[max(math.ceil(len(copies) * p - 1e-9) - 1, 0)]
        q = {}
        for k in S:
            if F[k] > Q:
                q[k] = float(n[k])
            elif F[k] == Q:
                above = sum(n[j] for j in S if F[j] > Q)
                level = sum(n[j] for j in S if F[j] == Q)
                q[k] = n[k] * ((theta * len(copies) - above) / level if boundary == "fractional" else 1.0)
        kept = world.answered([k for k in S if q.get(k, 0) > 1e-12], s, exchange)
        d = {k: local_sgd(world, s, exchange, k, w, tau, batch, eta, project)[-1] - w for k in kept}
        w = w + sum(q[k] * d[k] for k in kept) / sum(q[k] for k in kept)
        models.append(w)
    return models


def term(world, w, rounds, m, tau, batch, eta, t, normaliser, l=0.5, by_size=False):  # noqa: E741
    models, E = [], None
    for s in range(rounds):
        drawn = cohort(world, s, m)
        if by_size:
            n = np.array([world.sizes[i] for i in range(world.N)], dtype=float)
            drawn = [int(i) for i in world.server(s).choice(world.N, m, replace=False, p=n / n.sum())]
        S = world.answered(drawn, s, 0)
        F = losses(world, S, w)
        D = {i: w - local_sgd(world, s, 1, i, w, tau, batch, eta, free)[-1] for i in world.answered(S, s, 1)}
        if normaliser == "batch":
            total = sum(math.exp(t * F[i]) for i in D)
            w = w - sum(math.exp(t * F[i]) / total * D[i] for i in D)
        elif normaliser == "running":
            e = sum(math.exp(t * F[i]) for i in S) / len(S)
            E = e if E is None else (1 - l) * E + l * e
            w = w - sum(math.exp(t * F[i]) / (len(S) * E) * D[i] for i in D)
        else:
            M = max(F.values())
            E = (1 - l) * (E or 0.0) + l * sum(math.exp(t * (F[i] - M)) for i in S) / len(S)
            a = {i: math.exp(t * (F[i] - M)) / (len(S) * E) for i in S}
            w = sum(w - a[i] * D[i] for i in D) / len(S)
        models.append(w)
    return models


RESPONSES = {
    "weibull": lambda u: 1 - math.exp(-(u**2)),
    "exponential": lambda u: 1 - math.exp(-u),
    "frechet": lambda u: math.exp(-1 / u),
    "normal": lambda u: 0.5 * (1 + math.erf((u - 1) / math.sqrt(2))),
    "gumbel": lambda u: math.exp(-math.exp(-(u - 1))),
    "logistic": lambda u: 1 / (1 + math.exp(-(u - 1))),
}


def newton_point(gs, ps, alpha, beta):
    """argmin over the simplex of sum_s <g_s, p> + beta/2 <g_s, p - p_s>^2 + alpha/2 |p|^2, by projected descent."""
    K = len(ps[0])
    H = alpha * np.eye(K) + beta * sum(np.outer(g, g) for g in gs)
    c = sum(gs) - beta * sum((g @ p) * g for g, p in zip(gs, ps, strict=True))
    p, step = np.full(K, 1 / K), 1 / np.linalg.eigvalsh(H)[-1]
    for _ in range(400):
        before, p = p, simplex(p - step * (H @ p + c))
        if np.abs(p - before).max() < 1e-15:
            break
    return p


def aaggff(world, w, rounds, m, tau, batch, eta, update, response, server_step=1.0):
    models, mixtures, K = [], [], world.N
    p, gs, ps = np.full(K, 1 / K), [], []
    for s in range(rounds):
        S = world.answered(cohort(world, s, m), s, 0)
        F = losses(world, S, w)
        mean = sum(F.values()) / len(S)
        rho = {i: RESPONSES[response](F[i] / mean) for i in S}
        if update == "newton":
            r = np.array([rho[i] / K if i in S else 0.0 for i in range(K)])
            gs.append(-r / (1 + p @ r))
            ps.append(p)
            p = newton_point(gs, ps, 4.0, K / 4)
        else:
            C = len(S) / K
            rbar = sum(C * rho[i] for i in S) / len(S)
            q = np.array([rbar + ((C * rho[i] - rbar) / C if i in S else 0.0) for i in range(K)])
            D = 1 + rbar * sum(p)
            gs.append(-q / D + rbar * (p @ (q - rbar)) / D**2 * np.ones(K))
            z = -math.sqrt(math.log(K)) / ((2 + C) * math.sqrt(s + 2)) * sum(gs)
            p = np.exp(z) / np.exp(z).sum()
        here = world.answered(S, s, 1)
        total = sum(p[i] for i in here)
        finals = {i: local_sgd(world, s, 1, i, w, tau, batch, eta, free)[-1] for i in here}
        w = w - server_step * sum(p[i] / total * (w - finals[i]) for i in here)
        models.append(w)
        mixtures.append(p)
    return models, mixtures


def propfair(world, w, rounds, m, tau, batch, eta, M, near, extended=False, project=free):
    models = []
    for s in range(rounds):
        S = world.answered(cohort(world, s, m), s, 0)
        finals = {}
        for i in S:
            v = w
            for t in range(tau):
                x, y = world.batch(s, 0, i, t, batch)
                room = M - loss(v, x, y, world.k, world.l2)
                c = 1 / room if room >= near else 1 / (near if extended else M)
                v = project(v - eta * c * gradient(v, x, y, world.k, world.l2))
            finals[i] = v
        total = sum(world.sizes[i] for i in S)
        w = sum(world.sizes[i] / total * finals[i] for i in S)
        models.append(w)
    return models


def least_norm(g, low, high):
    """The best point at which each weight is at one of its bounds or free: one of these is the minimum."""
    k, products, best, found = len(g), g @ g.T, np.inf, None
    for where in itertools.product((low, high, None), repeat=k):
        lam = np.array([0.0 if at is None else at for at in where])
        free_ones = [i for i, at in enumerate(where) if at is None]
        if free_ones:
            rows = np.block([[products[np.ix_(free_ones, free_ones)], -np.ones((len(free_ones), 1))],
                             [np.ones((1, len(free_ones))), np.zeros((1, 1))]])  # fmt: skip
            right = np.append(-(products @ lam)[free_ones], 1 - lam.sum())
            lam[free_ones] = np.linalg.lstsq(rows, right)[0][:-1]
        inside = abs(lam.sum() - 1) < 1e-12 and lam.min() >= low - 1e-13 and lam.max() <= high + 1e-13
        if inside and (norm := lam @ products @ lam) < best:
            best, found = norm, lam
    return found


def fedmgda(world, w, rounds, m, tau, batch, eta, eps, server_step):
    models = []
    for s in range(rounds):
        S = world.answered(cohort(world, s, m), s, 0)
        D = [w - local_sgd(world, s, 0, i, w, tau, batch, eta, free)[-1] for i in S]
        g = np.array([d / math.sqrt(d @ d) for d in D])
        k = len(S)
        lam = least_norm(g, max(0.0, 1 / k - eps), min(1.0, 1 / k + eps))
        w = w - server_step * lam @ g
        models.append(w)
    return models


def fedprox(world, w, rounds, m, tau, batch, eta, mu):
    models = []
    for s in range(rounds):
        S, finals = cohort(world, s, m), {}
        for i in S:
            v = w
            for t in range(tau):
                x, y = world.batch(s, 0, i, t, batch)
                v = v - eta * (gradient(v, x, y, world.k, world.l2) + mu * (v - w))
            finals[i] = v
        total = sum(world.sizes[i] for i in S)
        w = sum(world.sizes[i] / total * finals[i] for i in S)
        models.append(w)
    return models


def fednova(world, w, rounds, m, epochs, batch, eta):
    models = []
    for s in range(rounds):
        S = world.answered(cohort(world, s, m), s, 0)
        p = {i: world.sizes[i] / sum(world.sizes[j] for j in S) for i in S}
        tau = {i: max(1, round(epochs * world.sizes[i] / batch)) for i in S}
        d = {i: (w - local_sgd(world, s, 0, i, w, tau[i], batch, eta, free)[-1]) / (eta * tau[i]) for i in S}
        w = w - eta * sum(p[i] * tau[i] for i in S) * sum(p[i] * d[i] for i in S)
        models.append(w)
    return models


def exponential_dro(world, w, rounds, m, tau, batch, eta, lam, alpha, beta):
    """With weights exp(u / lam) as they are, and the length of the step divided by exp(c / lam)."""
    models, u, M, c = [], {}, None, None
    for s in range(rounds):
        S, e = cohort(world, s, m), int(s == 0)
        if s == 0:
            S = world.answered(S, s, 0)
            c = sum(loss(w, *world.batch(s, 0, i, 0, batch, stream=1), world.k) for i in S) / len(S)
        ends, S = [], world.answered(S, s, e)
        for i in S:  # a client whose reply is lost keeps the u that it had
            v, first = w, world.batch(s, e, i, 0, batch, stream=1)
            u[i] = u.get(i, loss(v, *first, world.k))
            N = M if M is not None else math.exp(u[i] / lam) * gradient(v, *first, world.k)
            for t in range(tau):
                v = v - eta * math.exp(-c / lam) * N
                x, y = world.batch(s, e, i, t, batch)
                u[i] = alpha * loss(v, x, y, world.k) + (1 - alpha) * u[i]
                N = beta * math.exp(u[i] / lam) * gradient(v, x, y, world.k) + (1 - beta) * N
            ends.append((v, N))
        w, M = sum(v for v, _ in ends) / len(S), sum(N for _, N in ends) / len(S)
        c = sum(u[i] for i in S) / len(S)
        models.append(w)
    return models

"""Algorithms 1 (DRFA), 2 (DRFA-Prox) and 3 (DRFA-GA), line by line."""

from __future__ import annotations

import numpy as np
from argmax import Nothing, free, simplex
from fedavg_box import at, local_sgd
from softmax_regression import loss


def drfa(world, w, rounds, m, tau, batch, eta, gamma, decay=1.0, g=None, weighting="sample", project=free):
    """Models, mixtures and their running means, after each round."""
    N, g = world.N, g or Nothing()
    lam = np.full(N, 1 / N)
    out = {"w": [], "lam": [], "mean": [], "lam_mean": []}
    iterates, mixtures = [], []
    for s in range(rounds):
        rng = world.server(s)
        if weighting == "sample":  # line 2
            D = rng.choice(N, m, p=lam / lam.sum())
        else:
            D = rng.choice(N, m, replace=False) if m < N else range(N)
        snapshot = int(rng.integers(1, tau + 1))  # line 3
        D = world.answered(D, s, 0)
        paths = {i: local_sgd(world, s, 0, i, w, tau, batch, at(eta, s), project) for i in D}  # lines 5-10

        def server_mean(t, w=w, D=D, paths=paths, lam=lam):
            if weighting == "sample":
                return sum(paths[i][t - 1] for i in D) / len(D)
            return w + N / len(D) * sum(lam[i] * (paths[i][t - 1] - w) for i in D)

        w_snapshot = server_mean(snapshot)  # line 13
        U = rng.choice(N, m, replace=False) if m < N else range(N)  # line 14
        U = world.answered(U, s, 1)
        v = np.zeros(N)
        for i in U:  # lines 15-16
            v[i] = N / len(U) * loss(w_snapshot, *world.batch(s, 1, i, 0, batch), world.k, world.l2)
        iterates += [server_mean(t) for t in range(1, tau + 1)]
        mixtures.append(lam)
        w = server_mean(tau)  # line 12
        step = at(gamma, s) * decay**s
        lam = g.prox(lam + tau * step * v, step * tau)  # line 17
        out["w"].append(w)
        out["lam"].append(lam)
        out["mean"].append(sum(iterates) / len(iterates))
        out["lam_mean"].append(sum(mixtures) / len(mixtures))
    return out


def drfa_ga(world, w, rounds, m, tau, batch, eta, gamma, g=None, after=0, project=free):
    """The same for Algorithm 3; the mean takes the iterates of rounds `after`, `after` + 1, ..."""
    N, g = world.N, g or Nothing()
    lam = np.full(N, 1 / N)
    out = {"w": [], "lam": [], "mean": [], "lam_mean": []}
    iterates, mixtures = [], []
    for s in range(rounds):
        rng = world.server(s)
        D = world.answered(rng.choice(N, m, p=lam / lam.sum()), s, 0)  # line 2
        paths = {i: local_sgd(world, s, 0, i, w, tau, batch, at(eta, s), project) for i in D}  # lines 4-9
        f = np.zeros(N)
        answered = world.answered(range(N), s, 1)
        for i in answered:  # lines 11-12
            f[i] = N / len(answered) * loss(w, *world.everything(i), world.k, world.l2)
        mixtures.append(lam)
        if s >= after:
            iterates += [sum(paths[i][t] for i in D) / len(D) for t in range(tau)]
        lam = simplex(lam + at(gamma, s) * (f + g.gradient(lam)))  # line 13
        w = sum(paths[i][-1] for i in D) / len(D)  # line 14
        out["w"].append(w)
        out["lam"].append(lam)
        out["mean"].append(sum(iterates) / len(iterates) if iterates else w)
        out["lam_mean"].append(sum(mixtures) / len(mixtures))
    return out

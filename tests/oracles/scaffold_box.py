"""SCAFFOLD (Karimireddy et al. 2020, Algorithm 1, option II), literally."""

from __future__ import annotations

import numpy as np
from fedavg_box import at
from softmax_regression import gradient


def scaffold(world, x, rounds, m, K, batch, eta_l, eta_g=1.0, weighting="uniform"):
    """The server's model and c after each round, and the clients' c_i at the end."""
    c, own = np.zeros(len(x)), [np.zeros(len(x)) for _ in range(world.N)]
    models, variates = [], []
    for r in range(rounds):
        rng = world.server(r)
        S = list(world.answered(rng.choice(world.N, m, replace=False) if m < world.N else range(world.N), r, 0))
        n = {i: world.sizes[i] if weighting == "size" else 1 for i in S}
        total, every = sum(n.values()), sum(world.sizes) if weighting == "size" else world.N
        dx, dc = np.zeros(len(x)), np.zeros(len(x))
        for i in S:
            y = x.copy()
            for k in range(K):
                rows, labels = world.batch(r, 0, i, k, batch)
                y = y - at(eta_l, r) * (gradient(y, rows, labels, world.k, world.l2) - own[i] + c)
            new = own[i] - c + (x - y) / (K * at(eta_l, r))
            dx = dx + n[i] / total * (y - x)
            dc = dc + n[i] / total * (new - own[i])
            own[i] = new
        x = x + eta_g * dx
        c = c + total / every * dc
        models.append(x)
        variates.append(c)
    return models, variates, own

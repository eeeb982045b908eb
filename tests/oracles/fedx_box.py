"""Algorithms 1-3 of FedX line by line, pair by pair, for a linear score and the squared hinge."""

from __future__ import annotations

import numpy as np
from draws import World
from fedavg_box import at

from fedsaddle.federation.randomness import ClientKeys


def hinge(a, b):
    return max(0.0, 1 - (a - b)) ** 2


def hinge_slope(a, b):
    """With respect to a; with respect to b it is minus that."""
    return -2 * max(0.0, 1 - (a - b))


class PairWorld(World):
    """Rows by label: S1 are the ones, S2 the zeros."""

    def sets(self, client):
        return np.flatnonzero(self.ys[client] == 1), np.flatnonzero(self.ys[client] == 0)

    def keys(self, round, exchange, client):
        return ClientKeys.of(self.seed, round, exchange, np.array([client]))

    def sample(self, round, exchange, client, step, side, size, stream):
        """Row numbers within the client, or none."""
        mine = self.sets(client)[side]
        if not len(mine):
            return []
        places = self.keys(round, exchange, client).rows(np.array([len(mine)]), step, size, stream + side)[0]
        return [int(mine[p]) for p in places]

    def order(self, round, exchange, client, side, count):
        """The client's own order of a heap of that many rows."""
        return np.argsort(self.keys(round, exchange, client).uniforms(0, count, 4 + side)[0], kind="stable")

    def counts(self, side):
        return np.array([len(self.sets(i)[side]) for i in range(self.N)])


def score(w, x):
    return x @ w[:-1] + w[-1]


def score_gradient(x):
    return np.append(x, 1.0)


def spread(K, total):
    return [(k + 1) * total // K - k * total // K for k in range(K)]


def per_client(K, B, m, sharing):
    return K * B if sharing == "all" else int(np.ceil(K * B / m))


def shuffled(rng, rows):
    return [rows[p] for p in rng.permutation(len(rows))]


def first_heaps(world, w, K, B, sharing, rng):
    """Lines 3-4: rows (born, weight, h) of each set, of all clients in a random order."""
    everyone = rng.choice(world.N, world.N, replace=False)
    heaps = []
    for side in (0, 1):
        counts = world.counts(side)
        among = counts.sum() / (counts > 0).sum()
        rows = []
        for i in everyone:
            for z in world.sample(0, 0, i, 0, side, per_client(K, B[side], world.N, sharing), 0):
                rows.append((0, counts[i] / among, score(w, world.xs[i][z])))
        heaps.append(rows)
    return [shuffled(rng, rows) for rows in heaps]


def aged(heap, new, tau):
    both = heap + new
    newest = max(row[0] for row in both)
    return [row for row in both if row[0] > newest - tau]


def turn(world, r, exchange, i, side, heap, k, B):
    """The next B rows of the heap in the client's own order, beginning again at its end."""
    order = world.order(r, exchange, i, side, len(heap))[: world.K * B]
    return [heap[order[p % len(order)]] for p in range(k * B, (k + 1) * B)]


class Guard:
    """What the server makes of the norms of a round's gradients: the next pace s, and the share t of the change."""

    def __init__(self, kappa):
        self.kappa, self.s, self.rho, self.acted = kappa, 1.0, None, 0
        self.lists = []

    def client(self):
        self.lists.append([])
        return self.lists[-1]

    def stops(self, lengths, K, m):
        """Whether the client's own gradients are enough for the round's to be too long."""
        if self.kappa == np.inf or self.rho is None:
            return False
        return np.sum(np.square(lengths)) > K * (m * self.kappa * self.rho) ** 2

    def share(self):
        most = (
            1e6 if self.rho is None else len(self.lists) * self.kappa * self.rho
        )  # a client reports at most twice that
        if self.rho is None:
            self.rho = np.mean([each[0] for each in self.lists])
        rho_r = np.mean([min(2 * most, np.sqrt(np.mean(np.square(each)))) for each in self.lists])
        self.lists = []
        if self.kappa == np.inf:
            return 1.0
        most = self.kappa * self.rho / rho_r
        t = min(1.0, most / self.s) ** 2
        self.acted += t < 1
        self.s = min(1.0, max(self.s / 2, min(2 ** (1 / 8) * self.s, most)))
        return t


def fedx1(world, w, R, m, K, B, eta, tau, sharing, kappa=np.inf):
    N, out, guard = world.N, [], Guard(kappa)
    world.guard = guard
    world.K = K
    mean = [world.counts(side).sum() / N for side in (0, 1)]
    heaps = None
    for r in range(R):
        rng, exchange = world.server(r), 0
        if heaps is None:
            heaps, exchange = first_heaps(world, w, K, B, sharing, rng), 1
        P = rng.choice(N, m, replace=False)
        models, shared = [], ([], [])
        for i in P:
            n = [len(s) for s in world.sets(i)]
            omega = [n[0] / mean[0], n[1] / mean[1]]
            wi, lengths = w.copy(), guard.client()
            for k in range(K):  # line 10
                z1 = world.sample(r, exchange, i, k, 0, B[0], 0)  # line 11
                z2 = world.sample(r, exchange, i, k, 1, B[1], 0)
                zeta = turn(world, r, exchange, i, 0, heaps[0], k, B[0])  # line 12, as in eqs. (4) and (5)
                xi = turn(world, r, exchange, i, 1, heaps[1], k, B[1])
                g = np.zeros_like(w)
                for z in z1:  # eq. (4)
                    x = world.xs[i][z]
                    for _, weight, h in xi:
                        slope = omega[0] * weight * hinge_slope(score(wi, x), h)
                        g += slope * score_gradient(x) / (B[0] * B[1])
                for z in z2:  # eq. (5)
                    x = world.xs[i][z]
                    for _, weight, h in zeta:
                        g -= weight * omega[1] * hinge_slope(h, score(wi, x)) * score_gradient(x) / (B[0] * B[1])
                for side, zs in ((0, z1), (1, z2)):  # line 14
                    among = world.counts(side).sum() / (world.counts(side) > 0).sum()
                    for z in zs[: spread(K, per_client(K, B[side], m, sharing))[k]]:
                        shared[side].append((r + 1, n[side] / among, score(wi, world.xs[i][z])))
                lengths.append(np.linalg.norm(g))
                g = g * (not guard.stops(lengths, K, m))
                wi = wi - guard.s * at(eta, r) * g  # line 16
            models.append(wi)
        t = guard.share()
        if t >= 0.5:
            heaps = [aged(heap, shuffled(rng, new), tau) for heap, new in zip(heaps, shared, strict=True)]
        w = w + t * (np.mean(models, 0) - w)  # line 26
        out.append(w)
    return out


def fedx2(
    world, w, R, m, K, B, eta, tau, sharing, gamma, beta, temperature, cap, normalised=False, power=None, kappa=np.inf
):
    """f = temperature log, l = exp(hinge / temperature), in plain numbers; a pair is at most `cap` times its u.

    With a power p the risk is the log of the mean over S1 of u^p, and the server tracks that mean.
    """
    N, out, partners, guard = world.N, [], 1024, Guard(kappa)
    world.K, world.capped, world.guard = K, False, guard
    mean = [world.counts(side).sum() / N for side in (0, 1)]
    u = [{} for _ in range(N)]  # line 2; u(z) begins at its first observed value
    G, heaps = np.zeros_like(w), None
    largest = [max(world.counts(0)[i] / mean[0], world.counts(1)[i] / mean[1]) for i in range(N)]
    s = [v / np.mean(largest) if normalised else 1.0 for v in largest]

    def ell(a, b):
        return np.exp(hinge(a, b) / temperature)

    def slope(v, a, b):
        """f'(v) times the slope of l in a."""
        ratio = ell(a, b) / v
        world.capped = world.capped or ratio > cap
        sample = 1.0 if power is None else min(v**power / mean_f, cap)
        return min(ratio, cap) * sample * hinge_slope(a, b)

    for r in range(R):
        rng, exchange, growths = world.server(r), 0, []
        if heaps is None:
            heaps, exchange = first_heaps(world, w, K, B, sharing, rng), 2 if normalised else 1
            some = heaps[1][:partners]
            heaps[0] = [(*row, np.mean([weight * ell(row[2], h) for _, weight, h in some])) for row in heaps[0]]
            mean_f = None if power is None else np.mean([weight * v**power for _, weight, _, v in heaps[0]])
        P = rng.choice(N, m, replace=False)
        models, estimates, shared = [], [], ([], [])
        for i in P:
            n = [len(s) for s in world.sets(i)]
            omega = [n[0] / mean[0], n[1] / mean[1]]
            wi, Gi, lengths = w.copy(), G.copy(), guard.client()
            for k in range(K):  # line 10
                z1 = world.sample(r, exchange, i, k, 0, B[0], 0)  # line 11
                z2 = world.sample(r, exchange, i, k, 1, B[1], 0)
                zeta = turn(world, r, exchange, i, 0, heaps[0], k, B[0])  # line 12
                xi = turn(world, r, exchange, i, 1, heaps[1], k, B[1])

                def seen(x):
                    return np.mean([weight * ell(score(wi, x), h) for _, weight, h in xi])  # noqa: B023

                now = {z: seen(world.xs[i][z]) for z in z1}  # eq. (8)
                for z, observed in now.items():
                    u[i][z] = (1 - gamma) * u[i][z] + gamma * observed if z in u[i] else observed
                for side in (0, 1):  # line 14: fresh samples
                    among = world.counts(side).sum() / (world.counts(side) > 0).sum()
                    size = spread(K, per_client(K, B[side], m, sharing))[k]
                    for z in world.sample(r, exchange, i, k, side, max(1, size), 2)[:size]:
                        row = (r + 1, n[side] / among, score(wi, world.xs[i][z]))
                        if side == 0:
                            row = (*row, u[i].setdefault(z, seen(world.xs[i][z])))
                        shared[side].append(row)
                g = np.zeros_like(w)
                for z in z1:  # eq. (9)
                    x = world.xs[i][z]
                    for _, weight, h in xi:
                        g += omega[0] * weight * slope(u[i][z], score(wi, x), h) * score_gradient(x) / (B[0] * B[1])
                for z in z2:
                    x = world.xs[i][z]
                    for _, weight, h, v in zeta:
                        g -= weight * omega[1] * slope(v, h, score(wi, x)) * score_gradient(x) / (B[0] * B[1])
                lengths.append(np.linalg.norm(g / s[i]))
                g = g * (not guard.stops(lengths, K, m))
                Gi = (1 - beta) * Gi + beta * g / s[i]  # line 17
                wi = wi - guard.s * at(eta, r) * Gi  # line 18
                if power is not None:
                    here = [omega[0] * min(u[i][z] ** power / mean_f, cap) for z in z1]
                    growths.append(np.mean(here) if here else 0.0)
            models.append(w + s[i] * (wi - w))
            estimates.append(G + s[i] * (Gi - G))
        t = guard.share()
        if t >= 0.5:
            heaps = [aged(heap, shuffled(rng, new), tau) for heap, new in zip(heaps, shared, strict=True)]
        w, G = w + t * (np.mean(models, 0) - w), G + t * (np.mean(estimates, 0) - G)  # line 27
        if power is not None:
            mean_f *= 1 - gamma + gamma * np.mean(growths)
        out.append((w, G))
    return out


def local_pair(world, w, R, m, K, B, eta, gamma, beta, temperature=None, power=None):
    """FedX2's step on the pairs of a client's own rows, both scores of which are active; with one client SOX.

    f is linear without a temperature, else `temperature log`, or with a power p the log of a mean over S1 of `u^p`,
    whose mean each client tracks. In plain numbers.
    """
    out, u, scale = [], [{} for _ in range(world.N)], {}
    G = np.zeros_like(w)

    def ell(a, b):
        return hinge(a, b) if temperature is None else np.exp(hinge(a, b) / temperature)

    for r in range(R):
        P = world.server(r).choice(world.N, m, replace=False)
        models, estimates = [], []
        for i in P:
            wi, Gi = w.copy(), G.copy()
            for k in range(K):
                z1 = world.sample(r, 0, i, k, 0, B[0], 0)
                z2 = world.sample(r, 0, i, k, 1, B[1], 0)
                g = np.zeros_like(w)
                if len(z1) and len(z2):
                    h1 = [score(wi, world.xs[i][z]) for z in z1]
                    h2 = [score(wi, world.xs[i][z]) for z in z2]
                    if temperature is not None:
                        seen = {z: np.mean([ell(a, b) for b in h2]) for z, a in zip(z1, h1, strict=True)}
                        for z, observed in seen.items():
                            u[i][z] = (1 - gamma) * u[i][z] + gamma * observed if z in u[i] else observed
                    if power is not None:
                        mean = np.mean([u[i][z] ** power for z in z1])
                        scale[i] = (1 - gamma) * scale[i] + gamma * mean if i in scale else mean
                    for z, a in zip(z1, h1, strict=True):
                        for y, b in zip(z2, h2, strict=True):
                            factor = 1.0 if temperature is None else ell(a, b) / u[i][z]
                            if power is not None:
                                factor *= u[i][z] ** power / scale[i]
                            apart = score_gradient(world.xs[i][z]) - score_gradient(world.xs[i][y])
                            g += factor * hinge_slope(a, b) * apart / (B[0] * B[1])
                Gi = (1 - beta) * Gi + beta * g
                wi = wi - at(eta, r) * Gi
            models.append(wi)
            estimates.append(Gi)
        w, G = np.mean(models, 0), np.mean(estimates, 0)
        out.append((w, G))
    return out

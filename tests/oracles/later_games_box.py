"""FESS-GDA, FedSGDA+, FedGDA-GT and ProxSkip-VIP, literally."""

from __future__ import annotations

from argmax import free
from game import X0, Y0, gradients
from sgda_box import mean


def cohort(world, s, m):
    rng = world.server(s)
    return rng, [int(i) for i in (rng.choice(world.N, m, replace=False) if m < world.N else range(world.N))]


def fess_gda(world, rounds, m, K, batch, eta_x, eta_y, g_x, g_y, p, beta, project=free):
    x, y, z, out = X0, Y0, X0, []
    for s in range(rounds):
        _, S = cohort(world, s, m)  # line 1
        ends = []
        for i in world.answered(S, s, 0):  # line 2
            u, v = x, y
            for k in range(K):
                gx, gy = gradients(u, v, world.rows(s, 0, i, k, batch))
                u, v = u - eta_x * gx, project(v + eta_y * gy)
            ends.append((u, v))
        new = x + g_x * (mean(u for u, _ in ends) - x) - eta_x * g_x * K * p * (x - z)  # line 3
        y = project(y + g_y * (mean(v for _, v in ends) - y))  # line 4
        x = new
        z = z + beta * (x - z)  # line 5
        out.append((x, y, z))
    return out


def fedsgda_plus(world, rounds, Q, batch, eta, eta_y, gamma, S, project=free):
    x, y, xt, out = X0, Y0, X0, []
    for s in range(rounds):
        ends = []
        for i in world.answered(range(world.N), s, 0):
            u, v = x, y
            for q in range(Q):
                rows = world.rows(s, 0, i, q, batch)
                u, v = u - eta * gradients(u, v, rows)[0], project(v + eta_y * gradients(xt, v, rows)[1])
            ends.append((u, v))
        x = x + gamma * (mean(u for u, _ in ends) - x)
        y = project(y + gamma * (mean(v for _, v in ends) - y))
        if (s + 1) % S == 0:
            xt = x
        out.append((x, y))
    return out


def fedgda_gt(world, rounds, K, eta_x, eta_y, project=free, start=(X0, Y0)):
    (x, y), out = start, []
    for s in range(rounds):
        there = world.answered(range(world.N), s, 0)
        at = {i: gradients(x, y, world.xs[i]) for i in there}
        Gx, Gy = mean(g[0] for g in at.values()), mean(g[1] for g in at.values())
        ends = []
        for i in world.answered(there, s, 1):
            u, v = x, y
            for _ in range(K):
                gx, gy = gradients(u, v, world.xs[i])
                u, v = u - eta_x * (gx - at[i][0] + Gx), project(v + eta_y * (gy - at[i][1] + Gy))
            ends.append((u, v))
        x, y = mean(u for u, _ in ends), mean(v for _, v in ends)
        out.append((x, y))
    return out


def proxskip(world, rounds, p, gamma_x, gamma_y, batch=None):
    """Iteration by iteration, with the coin; the number of iterations to a communication is drawn once."""
    x, y, out = [X0] * world.N, [Y0] * world.N, []
    hx, hy = [0 * X0] * world.N, [0 * Y0] * world.N
    for s in range(rounds):
        u, K = world.server(s).random(), 1
        while p < 1 and u >= 1 - (1 - p) ** K:  # the chance of heads among K tosses
            K += 1
        for t in range(K):
            coin = t == K - 1
            hat = []
            for i in range(world.N):
                rows = world.xs[i] if batch is None else world.rows(s, 0, i, t, batch)
                gx, gy = gradients(x[i], y[i], rows)
                hat.append((x[i] - gamma_x * (gx - hx[i]), y[i] - gamma_y * (-gy - hy[i])))
            if not coin:
                x, y = [u for u, _ in hat], [v for _, v in hat]
                continue
            zx = mean(hat[i][0] - gamma_x / p * hx[i] for i in range(world.N))
            zy = mean(hat[i][1] - gamma_y / p * hy[i] for i in range(world.N))
            hx = [hx[i] + p / gamma_x * (zx - hat[i][0]) for i in range(world.N)]
            hy = [hy[i] + p / gamma_y * (zy - hat[i][1]) for i in range(world.N)]
            x, y = [zx] * world.N, [zy] * world.N
        out.append((zx, zy))
    return out


def proxskip_with_lost_replies(world, rounds, p, gamma_x, gamma_y, batch=None):
    """A client whose reply is lost forgets its steps: its next line 7 goes from where it last was heard."""
    zx, zy, out = X0, Y0, []
    heard = {}  # h and ẑ of a client when it was heard last
    for s in range(rounds):
        u, K = world.server(s).random(), 1
        while p < 1 and u >= 1 - (1 - p) ** K:  # the chance of heads among K tosses
            K += 1
        hx, hy, x, y = {}, {}, {}, {}
        for i in range(world.N):
            h = heard.get(i, (0 * X0, 0 * Y0, zx, zy))
            hx[i], hy[i] = h[0] + p / gamma_x * (zx - h[2]), h[1] + p / gamma_y * (zy - h[3])
            x[i], y[i] = zx, zy
        for t in range(K):
            for i in range(world.N):
                rows = world.xs[i] if batch is None else world.rows(s, 0, i, t, batch)
                gx, gy = gradients(x[i], y[i], rows)
                x[i], y[i] = x[i] - gamma_x * (gx - hx[i]), y[i] - gamma_y * (-gy - hy[i])
        there = world.answered(range(world.N), s, 0)
        zx = mean(x[i] - gamma_x / p * hx[i] for i in there)
        zy = mean(y[i] - gamma_y / p * hy[i] for i in there)
        heard |= {i: (hx[i], hy[i], x[i], y[i]) for i in there}
        out.append((zx, zy))
    return out

"""Newton's method on pooled sums, literally: the box of docs/algorithms/newton.md, client by client, row by row."""

from __future__ import annotations

import numpy as np


def logistic_row(w, row, y):
    """Value, gradient and Hessian of one row with an intercept behind its columns."""
    z = np.append(row, 1.0)
    s = z @ w
    p = 1 / (1 + np.exp(-s))
    return np.logaddexp(0, s) - y * s, (p - y) * z, p * (1 - p) * np.outer(z, z)


def softmax_row(w, row, y, k):
    """The same for k classes; w has the weights class by class, then the intercepts."""
    d = len(row)
    W, b = w[: k * d].reshape(k, d), w[k * d :]
    s = W @ row + b
    p = np.exp(s - s.max())
    p = p / p.sum()
    jacobian = np.zeros((k, len(w)))
    for a in range(k):
        jacobian[a, a * d : (a + 1) * d] = row
        jacobian[a, k * d + a] = 1.0
    slope = p - np.eye(k)[y]
    return -np.log(p[y]), slope @ jacobian, jacobian.T @ (np.diag(p) - np.outer(p, p)) @ jacobian


def square_row(w, row, y):
    z = np.append(row, 1.0)
    return (z @ w - y) ** 2 / 2, (z @ w - y) * z, np.outer(z, z)


def poisson_row(w, row, y):
    z, (count, exposure) = np.append(row, 1.0), y
    m = exposure * np.exp(z @ w)
    log_factorial = np.log(np.arange(1, int(count) + 1)).sum()
    return m - count * np.log(m) + log_factorial, (m - count) * z, m * np.outer(z, z)


def cox_client(w, rows, times, events):
    """Efron's negative log partial likelihood of one client: sums over event times, ties and risk sets."""
    value, gradient, hessian = 0.0, np.zeros(len(w)), np.zeros((len(w), len(w)))
    for t in np.unique(times[events == 1]):
        risk, dead = np.flatnonzero(times >= t), np.flatnonzero((times == t) & (events == 1))
        for at in range(len(dead)):
            s0, s1, s2 = 0.0, np.zeros(len(w)), np.zeros((len(w), len(w)))
            for j in risk:
                r = np.exp(rows[j] @ w) * (1 - at / len(dead) if j in dead else 1.0)
                s0, s1, s2 = s0 + r, s1 + r * rows[j], s2 + r * np.outer(rows[j], rows[j])
            value += np.log(s0) - rows[dead[at]] @ w
            gradient += s1 / s0 - rows[dead[at]]
            hessian += s2 / s0 - np.outer(s1, s1) / s0**2
    return value, gradient, hessian


def by_rows(of_row, *arguments):
    """Sums over a client's rows."""

    def of_client(w, rows, targets):
        each = [of_row(w, row, y, *arguments) for row, y in zip(rows, targets, strict=True)]
        return tuple(sum(one[i] for one in each) for i in range(3))

    return of_client


def newton(sums_of, clients, w, ridge, rounds, damping=1.0, tolerance=1e-9):
    """The accepted points, one for each round; `clients` are rows and targets, `sums_of` gives their three sums."""
    point, value, step, t, slope, ended, points = w, None, None, 1.0, 0.0, False, []
    n = sum(len(rows) for rows, _ in clients)
    for _ in range(rounds):
        if not ended:
            v, g, H = (sum(part) / n for part in zip(*[sums_of(w, *own) for own in clients], strict=True))
            v, g, H = v + ridge @ w**2 / 2, g + ridge * w, H + np.diag(ridge)
            if value is not None and v > value + 1e-4 * t * slope + 1e-10 * (1 + abs(value)):
                best = -slope * t * t / (2 * (v - value - slope * t))
                t = min(max(best, t / 3), t / 2)
            else:
                value = v
                step = -np.linalg.pinv(H, rcond=1e-12) @ g
                slope, t = g @ step, min(damping, 4 * t)
                ended = -slope <= tolerance**2
                point = w + step if ended else w
            w = point if ended else point + t * step
        points.append(point)
    return points

"""Softmax regression in numpy, one row at a time. w holds the weights, class after class, and then the biases."""

from __future__ import annotations

import math

import numpy as np


def _scores(w, x, k):
    p = len(x)
    z = []
    for c in range(k):
        total = w[k * p + c]
        for j in range(p):
            total += w[c * p + j] * x[j]
        z.append(total)
    return z


def loss(w, xs, ys, k, l2=0.0):
    """Mean of -log softmax over the rows, plus (l2 / 2) |w|^2."""
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        z = _scores(w, x, k)
        top = max(z)
        total += top + math.log(sum(math.exp(s - top) for s in z)) - z[y]
    return total / len(xs) + l2 / 2 * sum(v * v for v in w)


def gradient(w, xs, ys, k, l2=0.0):
    """Its gradient."""
    p = len(xs[0])
    g = np.zeros(len(w))
    for x, y in zip(xs, ys, strict=True):
        z = _scores(w, x, k)
        top = max(z)
        e = [math.exp(s - top) for s in z]
        for c in range(k):
            slope = e[c] / sum(e) - (1.0 if c == y else 0.0)
            for j in range(p):
                g[c * p + j] += slope * x[j] / len(xs)
            g[k * p + c] += slope / len(xs)
    return g + l2 * w

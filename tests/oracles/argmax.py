"""Projections and proximal maps in numpy, each by bisection on its multiplier."""

from __future__ import annotations

import math

import numpy as np


def ball(radius):
    def project(w):
        norm = math.sqrt(sum(v * v for v in w))
        return w * (radius / norm) if norm > radius else w

    return project


def box(low, high):
    def project(w):
        return np.array([min(max(v, low), high) for v in w])

    return project


def free(w):
    return w


def _bisect(function, low, high):
    """The zero of a decreasing function, to the last bit."""
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if function(middle) > 0:
            low = middle
        else:
            high = middle


def simplex(z):
    """argmin over the simplex of |u - z|: u = max(z - t, 0) with t such that the sum is 1."""
    t = _bisect(lambda t: sum(max(v - t, 0.0) for v in z) - 1, min(z) - 2, max(z))
    return np.array([max(v - t, 0.0) for v in z])


def separable_prox(z, c, slope):
    """argmax over the simplex of c sum_i g_i(u_i) - |z - u|^2 / 2, where `slope(i, u)` is g_i'(u).

    For a multiplier nu, u_i solves c g_i'(u) + z_i - u = nu on [0, 1]; nu makes the sum 1.
    """

    def coordinate(i, nu):
        def excess(u):
            return c * slope(i, u) + z[i] - u - nu

        if excess(1e-300) <= 0:
            return 0.0
        return 1.0 if excess(1.0) >= 0 else _bisect(excess, 0.0, 1.0)

    def total(nu):
        return sum(coordinate(i, nu) for i in range(len(z))) - 1

    low, high = -1.0, 1.0
    while total(low) < 0:
        low *= 2
    while total(high) > 0:
        high *= 2
    nu = _bisect(total, low, high)
    return np.array([coordinate(i, nu) for i in range(len(z))])


class Nothing:
    """g = 0."""

    def prox(self, z, c):
        return simplex(z)

    def gradient(self, u):
        return np.zeros(len(u))


class Distance:
    """g(u) = -(mu / 2) |u - pi|^2."""

    def __init__(self, mu, pi):
        self.mu, self.pi = mu, pi

    def slope(self, i, u):
        return -self.mu * (u - self.pi[i])

    def prox(self, z, c):
        return separable_prox(z, c, self.slope)

    def gradient(self, u):
        return np.array([self.slope(i, v) for i, v in enumerate(u)])


class Divergence(Distance):
    """g(u) = -mu sum_i u_i log(u_i / pi_i)."""

    def slope(self, i, u):
        return -self.mu * (math.log(max(u, 2.2250738585072014e-308) / self.pi[i]) + 1)


class Quartic(Distance):
    """g(u) = -mu sum_i (u_i - pi_i)^4, a concave g without a closed form."""

    def slope(self, i, u):
        return -4 * self.mu * (u - self.pi[i]) ** 3

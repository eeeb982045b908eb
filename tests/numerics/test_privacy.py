"""The accounting of Gaussian releases, against the formula minimised by a general solver."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from fedsaddle.algorithms.fedx.scores import epsilon
from fedsaddle.errors import BadInput


@pytest.mark.parametrize(("releases", "noise", "delta"), [(1, 1.0, 1e-5), (10, 4.0, 1e-6), (100, 2.0, 1e-3)])
def test_the_best_order(releases, noise, delta):
    """`min over α > 1 of α ρ + log(1 - 1/α) - log(δ α) / (α - 1)`, with `ρ = releases / (2 noise²)`."""
    rho = releases / (2 * noise * noise)

    def at(t):
        a = 1 + math.exp(t)
        return a * rho + math.log(1 - 1 / a) - math.log(delta * a) / (a - 1)

    least = min(minimize_scalar(at, bounds=(c - 1, c + 1), method="bounded").fun for c in np.arange(-6.0, 7.0))
    assert epsilon(releases, noise, delta) == pytest.approx(least, rel=1e-4)


def test_at_the_limits():
    assert epsilon(0, 1.0) == 0
    assert epsilon(3, 0.0) == math.inf
    assert epsilon(1, 1e9, delta=0.5) == 0, "never below 0"
    for delta in (0.0, 1.0):
        with pytest.raises(BadInput, match=f"delta = {delta}"):
            epsilon(1, 1.0, delta)

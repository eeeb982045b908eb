"""The Gaussian mechanism, composed: how much many noisy releases of one row can tell about it."""

from __future__ import annotations

import math

import numpy as np

from fedsaddle.arguments import number, whole


def epsilon(releases: int, noise: float, delta: float = 1e-5) -> float:
    """ε at δ of that many Gaussian releases, each with noise of `noise` times its sensitivity.

    One release is ρ-zCDP with `ρ = 1 / (2 noise²)`; releases add their ρ (Bun, Steinke 2016). ρ-zCDP is Rényi DP of
    `ε_α = α ρ` for every α > 1, which gives `ε = α ρ + log(1 - 1/α) - log(δ α) / (α - 1)` (Canonne, Kamath, Steinke
    2020, proposition 12); the best α is taken.
    """
    whole("releases", releases, least=0)
    number("noise", noise, least=0)
    number("delta", delta, above=0, below=1)
    if noise**2 == 0:
        return math.inf
    if releases == 0:
        return 0.0
    ρ = releases / (2 * noise**2)
    α = 1 + np.logspace(-4, 6, 4001)
    return float(max(0.0, (α * ρ + np.log1p(-1 / α) - (math.log(delta) + np.log(α)) / (α - 1)).min()))

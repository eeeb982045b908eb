"""The inner solver: the maximum of a smooth concave function over a set."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedsaddle.numerics.projections import Projection

Slope = Callable[[Tensor], Tensor]
MOST_STEPS = 10_000_000  # that may be asked of a solver


class Solved(NamedTuple):
    """Where a solver ended. `residual` is how far a projected step of length 1 (or shorter) still moves, per length."""

    point: Tensor
    residual: float
    steps: int
    reached: bool  # whether the residual is within the tolerance


def tolerance_of(dtype: torch.dtype) -> float:
    """The square root of the rounding: 3e-4 in single and 1e-8 in double precision."""
    return math.sqrt(torch.finfo(dtype).eps)


def ascend(slope_at: Slope, start: Tensor, project: Projection, tolerance: float, most_steps: int) -> Solved:
    """`argmax_{u in set}` of a concave function, by projected ascent with Barzilai-Borwein steps.

    A step is halved until the slope changes along it by no more than the step allows, which makes every step an
    ascent; comparing slopes, not values, keeps the accuracy below the rounding of the values.

    Args:
        slope_at: gradient at a point.
        start: first point.
        project: projection onto the set.
        tolerance: largest norm of the projected gradient at the end.
        most_steps: largest number of steps.
    """
    u, step, residual = start, 1.0, float("inf")
    slope = slope_at(u)
    for k in range(1, most_steps + 1):
        while True:
            v = project(u + step * slope)
            move = v - u
            residual = float(move.abs().max()) / min(step, 1.0)
            if residual <= tolerance:
                return Solved(v, residual, k, True)
            new = slope_at(v)
            bend = float((slope - new) @ move)
            if torch.isfinite(new).all() and bend * step <= float(move @ move) * (1 + 1e-6):
                break
            step /= 2
            if step < 1e-16:
                return Solved(u, residual, k, False)
        step = min(float(move @ move) / bend if bend > 0 else 2 * step, 1e16)
        u, slope = v, new
    return Solved(u, residual, most_steps, False)

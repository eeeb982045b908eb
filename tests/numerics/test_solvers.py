"""Projected ascent, step by step on functions small enough to follow by hand."""

from __future__ import annotations

import torch

from fedsaddle.numerics.projections import Box, Everywhere
from fedsaddle.numerics.solvers import ascend, tolerance_of


def test_steps_double_where_the_slope_does_not_bend():
    """From 0 with slope 1: 1, 3, 7, 15, 31, and a sixth step that does not move."""
    found = ascend(torch.ones_like, torch.zeros(1), Box(0.0, 31.0), 1e-9, 100)
    assert (found.point.tolist(), found.residual, found.steps, found.reached) == ([31.0], 0.0, 6, True)


def test_a_parabola_takes_two_steps():
    """The first, from length 1, is halved twice to the curvature's own 1/4; the second does not move."""
    found = ascend(lambda u: 4 * (3 - u), torch.zeros(1), Everywhere(), 1e-9, 100)
    assert (found.point.tolist(), found.residual, found.steps, found.reached) == ([3.0], 0.0, 2, True)


def test_too_few_steps_are_not_enough():
    found = ascend(torch.ones_like, torch.zeros(1), Box(0.0, 31.0), 1e-9, 2)
    assert (found.point.tolist(), found.residual, found.steps, found.reached) == ([3.0], 2.0, 2, False)


def test_the_tolerance_is_the_root_of_the_rounding():
    assert tolerance_of(torch.float64) == 2.0**-26
    assert tolerance_of(torch.float32) == 2.0**-11.5

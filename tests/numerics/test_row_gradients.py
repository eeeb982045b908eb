"""Clipped rows: no row counts more than the limit, and the quick ways give what the slow one does."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.tensors import clip_factors, clipped_sum
from fedsaddle.privacy.problems import Bound, row_scores, row_sums
from fedsaddle.problems.models.networks import CharacterGru
from small import seeded


class Smooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.b(torch.nn.functional.silu(self.a(x)))


MODELS = {
    "logistic": lambda: nn.Linear(4, 3),
    "no bias": lambda: nn.Linear(4, 3, bias=False),
    "chain": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)
    ),
    "vmap": Smooth,
    "group norm": lambda: nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3)),
}


def by_hand(flat, w, x, slope, limit, weight):
    """One row after the other, by autograd."""
    totals = torch.zeros_like(w)
    for c in range(len(w)):
        for r in range(x.shape[1]):
            at = w[c].clone().requires_grad_()
            z = flat.scores(at[None], x[c, r][None, None])
            g = torch.autograd.grad(z, at, slope[c, r][None, None])[0]
            totals[c] += weight[c, r] * g * min(1.0, limit / float(g.norm()))
    return totals


@pytest.mark.parametrize("limit", [0.3, 1e9])
@pytest.mark.parametrize("name", MODELS)
def test_sums_of_clipped_rows_are_those_of_one_row_after_the_other(name, limit):
    flat, g = FlatModel(seeded(MODELS[name])), torch.Generator().manual_seed(0)
    w = flat.initial()[None] + 0.1 * torch.randn(2, flat.dimension, generator=g, dtype=torch.float64)
    x = torch.randn(2, 6, 4, generator=g, dtype=torch.float64)
    slope = torch.randn(2, 6, 3, generator=g, dtype=torch.float64)
    weight = torch.tensor([[1, 1, 0.5, 0, 1, 0.25]] * 2, dtype=torch.float64)
    outputs = row_scores(flat, w, x)
    torch.testing.assert_close(outputs[-1], flat.scores(w, x), rtol=0, atol=1e-12)
    found = row_sums(flat, w, x, outputs, slope, Bound(limit, weight)).total
    torch.testing.assert_close(found, by_hand(flat, w, x, slope, limit, weight), rtol=0, atol=1e-10)


def test_a_module_with_a_pass_of_its_own_for_cohorts():
    flat, g = FlatModel(seeded(lambda: CharacterGru(6, 3, 4))), torch.Generator().manual_seed(0)
    w, x = flat.initial()[None], torch.randint(6, (1, 3, 4), generator=g)
    z = row_scores(flat, w, x)[-1]
    slope, weight = torch.randn(z.shape, generator=g, dtype=z.dtype), torch.ones(1, 3, dtype=z.dtype)
    found = row_sums(flat, w, x, [z], slope, Bound(0.2, weight)).total
    torch.testing.assert_close(found, by_hand(flat, w, x, slope, 0.2, weight), rtol=0, atol=1e-10)


@given(st.floats(1e-6, 1e6), st.integers(1, 40), st.floats(1e-8, 1e8), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_no_row_counts_more_than_the_limit(limit, size, scale, seed):
    g = torch.Generator().manual_seed(seed)
    for dtype in (torch.float32, torch.float64):
        rows = (torch.randn(5, size, generator=g, dtype=torch.float64) * scale).to(dtype)
        factors = clip_factors(rows.square().sum(-1), limit)
        lengths = (rows * factors[:, None]).double().norm(dim=1)
        assert (lengths <= limit).all()
        short = rows.double().norm(dim=1) < 0.99 * limit
        assert (factors[short] == 1).all()


def test_what_is_left_out_moves_the_sum_by_at_most_the_limit():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [float("inf"), 0.0], [0.0, 0.0]])
    whole = clipped_sum(rows, 1.0)
    torch.testing.assert_close(whole, torch.tensor([0.9, 1.2]), rtol=1e-4, atol=0)
    for r in range(4):
        rest = clipped_sum(rows[[i for i in range(4) if i != r]], 1.0)
        assert float((whole - rest).norm()) <= 1.0

"""Norms of clients' gradients."""

from __future__ import annotations

import pytest
import torch

from fedsaddle.numerics.tensors import norms


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms_are_those_of_double_precision(dtype):
    g = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0)).to(dtype)
    found = norms(g)
    assert found.shape == (3, 1)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, g.double().norm(dim=1, keepdim=True), rtol=1e-5, atol=0)


def test_a_square_that_single_precision_cannot_hold_still_has_a_norm():
    g = torch.tensor([[3e30, 4e30], [3.0, 4.0]])
    torch.testing.assert_close(norms(g), torch.tensor([[5e30], [5.0]], dtype=torch.float64), rtol=1e-6, atol=0)


def test_what_is_not_finite_has_no_finite_norm():
    assert not torch.isfinite(norms(torch.tensor([[1.0, float("nan")], [float("inf"), 0.0]]))).any()

"""The simplex with a ceiling: by hand, by bisection, and what it equals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsaddle.errors import BadInput
from fedsaddle.numerics.projections import CappedSimplex, Simplex


def by_bisection(w, high):
    """The threshold by halving; w minus its maximum first, so that huge entries are no obstacle."""
    w = w - w.max()
    low, top = w.min() - high - 1, w.max()
    for _ in range(300):
        middle = (low + top) / 2
        low, top = (middle, top) if np.clip(w - middle, 0, high).sum() >= 1 else (low, middle)
    return np.clip(w - low, 0, high)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("d", [1, 2, 3, 10, 57])
def test_the_nearest_point(seed, d):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d) * rng.choice([0.01, 1.0, 100.0])
    high = (1 + rng.random() * (d - 1)) / d
    found = CappedSimplex(high)(torch.from_numpy(w))
    np.testing.assert_allclose(found, by_bisection(w, high), atol=1e-10)
    assert float(found.sum()) == pytest.approx(1, abs=1e-10)
    assert float(found.max()) <= high


@pytest.mark.parametrize("seed", range(200))
def test_entries_that_are_equal_or_as_far_apart_as_the_ceiling(seed):
    """Where corners meet: seen to go wrong by a rounding."""
    rng = np.random.default_rng(seed)
    high = float(rng.choice([0.2, 0.25, 0.3, 1 / 3]))
    w = rng.choice([0.0, 0.1, high, 2 * high, high - 0.1], size=6) + rng.choice([0.0, 1e-16, 0.03], size=6)
    found = CappedSimplex(high)(torch.from_numpy(w))
    np.testing.assert_allclose(found, by_bisection(w, high), atol=1e-10)
    assert float(found.sum()) == pytest.approx(1, abs=1e-10)


def test_special_values():
    w = torch.tensor([[0.3, 5.0, -2.0, 0.1], [0.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(CappedSimplex(1.0)(w), Simplex()(w), rtol=0, atol=1e-14)
    assert CappedSimplex(0.25)(w).tolist() == [[0.25] * 4] * 2
    torch.testing.assert_close(CappedSimplex(0.5)(w[0]), torch.tensor([0.35, 0.5, 0.0, 0.15]), rtol=0, atol=1e-14)
    huge = torch.tensor([1e30, 1e30, 0.0, -1e30])
    assert CappedSimplex(0.6)(huge).tolist() == [0.5, 0.5, 0.0, 0.0]


def test_a_ceiling_that_is_too_low():
    with pytest.raises(BadInput, match=r"high = 0.2: must be at least 1 / 4"):
        CappedSimplex(0.2)(torch.zeros(4))


def test_the_smallest_ceiling_of_every_dimension():
    """Of which some are less than 1 / d by rounding."""
    for d in range(1, 120):
        u = CappedSimplex(1.0 / d)(torch.randn(d))
        torch.testing.assert_close(u, torch.full((d,), 1 / d), rtol=0, atol=1e-12)

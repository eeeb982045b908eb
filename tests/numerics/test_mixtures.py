"""Mixtures that list few clients: the same draws, sums and projections as with every entry written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsaddle.numerics import mixtures
from fedsaddle.numerics.mixtures import Mixture
from fedsaddle.numerics.projections import CappedSimplex, Simplex

N = 5_000


def ascend(seed: int, size: float, ceiling: float | None = None, rounds: int = 6):
    """A few rounds of `Π(λ + change of a few)`, by the table and with every entry."""
    rng = np.random.default_rng(seed)
    few, every = Mixture.uniform(N), torch.full((N,), 1 / N)
    project = Simplex() if ceiling is None else CappedSimplex(ceiling / N)
    for _ in range(rounds):
        clients = rng.choice(N, 7, replace=False)
        change = torch.from_numpy(size * rng.normal(0.5, 1, 7) * rng.choice([1, 1, 0], 7))
        few, every = few.plus(clients, change), every.index_add(0, torch.from_numpy(clients), change)
        torch.testing.assert_close(few.dense(), every, rtol=0, atol=1e-13 * (1 + size))
        few, every = few.onto_simplex(ceiling), project(every)
        yield few, every


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    size=st.sampled_from([1e-9, 1e-5, 1e-3, 0.3, 1.0, 50.0, 1e9]),
    ceiling=st.sampled_from([None, None, 1.0, 1.5, 700.0, N]),
)
def test_the_same_mixtures_as_with_every_entry(seed, size, ceiling):
    """Changes of both signs and of every size, so that the others rise, fall, vanish and come back."""
    for few, every in ascend(seed, size, ceiling):
        assert few.lists_few
        torch.testing.assert_close(few.dense(), every, rtol=0, atol=1e-12)
        assert float(few.dense().sum()) == pytest.approx(1, abs=1e-11)
        some = np.random.default_rng(seed).integers(0, N, 50)
        assert torch.equal(few.at(some), few.dense()[some])


@pytest.mark.parametrize("size", [1e-5, 1e-3, 0.02, 1.0])
def test_the_same_draws(size):
    for seed in range(4):
        for few, _ in ascend(seed, size):
            p = few.dense().numpy()
            mine = few.draw(np.random.default_rng(seed), 200)
            theirs = np.random.default_rng(seed).choice(N, 200, p=p / p.sum())
            np.testing.assert_array_equal(mine, theirs)
            assert p[mine].min() > 0


def test_draws_follow_the_weights_at_both_ends_and_beside_the_listed():
    """At every corner of the cumulative weights, the client is the one of the sorted search."""
    λ = Mixture(torch.tensor([[0.0, 1.0, 4.0, 7.0, 8.0], [0.1, 0.2, 0.3, 0.2, 0.05]]))
    corners = np.cumsum(λ.dense().numpy())
    for shift in (-1e-9, 1e-9):
        u = np.concatenate([[0.0], corners + shift])
        u = u[(u >= 0) & (u < 1)]
        np.testing.assert_array_equal(λ._draw_by_gaps(u), corners.searchsorted(u, side="right"))


def test_who_comes_to_the_weight_of_the_others_is_listed_no_more():
    λ = Mixture.uniform(N).plus(np.arange(10), torch.full((10,), 5.0)).onto_simplex()
    λ = λ.plus(np.array([N - 1]), torch.tensor([9.0])).onto_simplex()
    assert λ.listed.tolist() == [N - 1, N]
    assert λ.at(np.array([N - 1, 3])).tolist() == [1, 0]
    assert set(λ.draw(np.random.default_rng(0), 20).tolist()) == {N - 1}


def test_huge_losses_are_exact():
    λ = Mixture.uniform(N).plus(np.array([4, 2]), torch.tensor([1e18, 1e18])).onto_simplex()
    assert (λ.listed.tolist(), λ.at(np.array([2, 4, 5])).tolist()) == ([2, 4, N], [0.5, 0.5, 0])


def test_many_that_differ_are_written_out():
    clients = np.random.default_rng(0).choice(N, N // 2, replace=False)
    change = torch.linspace(0, 1, N // 2)
    λ = Mixture.uniform(N).plus(clients, change)
    assert not λ.lists_few
    expected = torch.full((N,), 1 / N)
    expected[clients] += change
    assert torch.equal(λ.dense(), expected)
    assert torch.equal(λ.onto_simplex().dense(), Simplex()(expected))


def test_few_clients_are_written_out():
    assert Mixture.uniform(mixtures.LARGE).table.shape == (mixtures.LARGE,)
    assert Mixture.uniform(mixtures.LARGE + 1).table.shape == (2, 1)
    assert Mixture.uniform(mixtures.LARGE + 1, few=False).table.shape == (mixtures.LARGE + 1,)
    assert Mixture.uniform(10**9).count == 10**9

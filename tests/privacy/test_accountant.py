"""The accountant says what dp-accounting says, and what one expects of it."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("dp_accounting")

import dp_accounting as dp
from dp_accounting import pld, rdp

from fedsaddle.algorithms.fedx.scores import epsilon as zcdp
from fedsaddle.privacy import accountant
from fedsaddle.privacy.accountant import INTERVAL, Event, epsilon_of, noise_for

STEPS = (Event(0.05, 1, 40),)


def own(event, delta=1e-5, accountant=None):
    accountant = accountant or pld.PLDAccountant()
    accountant.compose(event)
    return accountant.get_epsilon(delta)


def test_epsilon_is_that_of_dp_accounting():
    steps = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.1)), 40)
    same = own(steps, accountant=pld.PLDAccountant(value_discretization_interval=INTERVAL))
    assert epsilon_of(STEPS, 1.1, 1e-5) == pytest.approx(same, rel=1e-12)
    finer = own(steps)
    assert finer <= epsilon_of(STEPS, 1.1, 1e-5) <= 1.005 * finer, "never below the finer one"


def test_fields_of_one_sample_and_sums_over_all_rows_compose():
    both = dp.ComposedDpEvent(
        [
            dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0)), 10),  # 4 / √4
            dp.SelfComposedDpEvent(dp.GaussianDpEvent(4.0), 3),
        ]
    )
    found = epsilon_of((Event(0.1, 4, 10), Event(1.0, 1, 3)), 4.0, 1e-5)
    assert own(both) <= found <= 1.005 * own(both)


def test_samples_of_a_fixed_size_are_those_of_the_renyi_accountant():
    relation = dp.NeighboringRelation.REPLACE_ONE
    event = dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(1000, 50, dp.GaussianDpEvent(1.5)), 20)
    same = own(event, accountant=rdp.RdpAccountant(neighboring_relation=relation))
    assert epsilon_of((Event(0.05, 1, 20, population=1000),), 3.0, 1e-5) == pytest.approx(same)


def test_beside_samples_of_a_fixed_size_another_client_counts_twice_everywhere():
    relation = dp.NeighboringRelation.REPLACE_ONE
    sampled = dp.SelfComposedDpEvent(dp.SampledWithoutReplacementDpEvent(1000, 50, dp.GaussianDpEvent(3.0)), 20)
    both = dp.ComposedDpEvent([sampled, dp.SelfComposedDpEvent(dp.GaussianDpEvent(3.0), 4)])
    same = own(both, accountant=rdp.RdpAccountant(neighboring_relation=relation))
    assert epsilon_of((Event(0.05, 1, 20, population=1000), Event(1.0, 1, 4)), 6.0, 1e-5) == pytest.approx(same)


def test_more_noise_fewer_rounds_and_smaller_samples_cost_less():
    base = epsilon_of(STEPS, 1.0, 1e-5)
    assert epsilon_of(STEPS, 2.0, 1e-5) < base
    assert epsilon_of((Event(0.05, 1, 20),), 1.0, 1e-5) < base
    assert epsilon_of((Event(0.02, 1, 40),), 1.0, 1e-5) < base
    assert epsilon_of((Event(0.05, 2, 40),), 1.0, 1e-5) > base
    assert epsilon_of(STEPS, 1.0, 1e-3) < base
    assert epsilon_of(STEPS, 0.0, 1e-5) == math.inf
    assert epsilon_of((Event(1.0, 1, 9),), 5.0, 1e-5) < zcdp(9, 5.0), "tighter than the formula"


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_the_noise_is_the_least_that_suffices(epsilon):
    noise = noise_for(STEPS, epsilon, 1e-5)
    assert epsilon_of(STEPS, noise, 1e-5) <= epsilon
    assert epsilon_of(STEPS, noise / 1.01, 1e-5) > epsilon


def test_the_next_noise_that_is_tried():
    """Where a line through the logarithms meets 1, slightly higher; the middle where the line is not known."""
    from fedsaddle.privacy.accountant import _between

    slightly = math.exp(0.0005)
    assert _between(1.0, 2.0, math.inf, 0.5) == pytest.approx(math.sqrt(2) * slightly)
    assert _between(1.0, 2.0, 3.0, 0.0) == pytest.approx(math.sqrt(2) * slightly)
    assert _between(1.0, 4.0, 2.0, 0.5) == pytest.approx(2 * slightly)
    assert _between(1.0, 4.0, 1.0, 0.5) == pytest.approx(slightly)
    assert _between(1.0, 2.0, 4.0, 0.999999) == pytest.approx(2**0.95), "the bracket closes from above, too"


@pytest.fixture
def thrice(monkeypatch):
    """An accountant whose ε is 3 / noise, and which answers a hundred times at most."""
    left = iter(range(100))

    def epsilon(events, noise, delta):
        next(left)
        return 3.0 / noise

    monkeypatch.setattr(accountant, "epsilon_of", epsilon)


@pytest.mark.parametrize("least", [7.3, 1.5, 0.1])
def test_the_search_for_the_noise_ends_and_is_as_precise_as_stated(thrice, least):
    found = accountant.noise_for.__wrapped__(STEPS, 3.0 / least, 1e-5)
    assert least <= found <= accountant.PRECISE * least


@pytest.mark.parametrize(("least", "low"), [(7.3, 4.0), (1.0, 0.5), (0.1, 0.0625), (1e-9, 1 / 64)])
def test_the_search_starts_from_a_factor_of_two_around_the_least_noise(thrice, least, low):
    """Below `LEAST` nothing is searched."""
    assert accountant._bracket(STEPS, 3.0 / least, 1e-5) == (low, 2 * low)

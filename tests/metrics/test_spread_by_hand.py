"""The spread over clients, against figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsaddle.metrics.selection import STATISTICS, spread


def test_by_hand():
    said = spread([0.5, 1.0, 0.0], [10, 30, 60], higher_is_better=True)
    assert said == pytest.approx(
        {"global": 0.35, "mean": 0.5, "worst": 0.0, "best": 1.0, "std": np.sqrt(1 / 6), "bottom10": 0.0}
    )
    assert tuple(said) == STATISTICS


def test_low_is_good_for_a_loss():
    said = spread([0.5, 1.0, 0.0], [1, 1, 1], higher_is_better=False)
    assert (said["worst"], said["best"], said["bottom10"]) == (1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("clients", "tenth"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (21, 3), (100, 10), (101, 11)]
)
def test_the_worst_tenth_is_rounded_up(clients, tenth):
    values = np.arange(clients, dtype=float)[::-1]
    sizes = np.ones(clients)
    assert spread(values, sizes, higher_is_better=True)["bottom10"] == pytest.approx((tenth - 1) / 2)
    high = spread(values, sizes, higher_is_better=False)["bottom10"]
    assert high == pytest.approx(clients - 1 - (tenth - 1) / 2)


def test_clients_without_rows_are_left_out():
    said = spread([0.25, np.nan, 0.75, 0.0], [1, 0, 3, 0], higher_is_better=True)
    assert said == spread([0.25, 0.75], [1, 3], higher_is_better=True)
    assert said["worst"] == 0.25
    assert said["global"] == 0.625


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 1000)), min_size=1, max_size=60), st.booleans())
def test_the_figures_fit_each_other(clients, higher):
    values, sizes = zip(*clients, strict=True)
    said = spread(values, sizes, higher_is_better=higher)
    assert {said["worst"], said["best"]} == {min(values), max(values)}
    low, high = min(values) - 1e-12, max(values) + 1e-12
    assert all(low <= said[s] <= high for s in ("global", "mean", "bottom10"))
    assert 0 <= said["std"] <= (high - low) / 2 + 1e-9
    sign = 1 if higher else -1
    assert sign * said["worst"] <= sign * said["bottom10"] + 1e-12
    assert sign * said["bottom10"] <= sign * said["mean"] + 1e-12
    again = spread(values[::-1], sizes[::-1], higher_is_better=higher)
    assert again == pytest.approx(said, abs=1e-12)


def test_what_is_better_is_given_by_name():
    with pytest.raises(TypeError, match="positional"):
        spread([0.5], [1], True)

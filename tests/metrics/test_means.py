"""Shares and means with intervals: Wilson's for rows, wider for patients with several, and they cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit

from fedsaddle.metrics.intervals import (
    GroupedRows,
    Interval,
    Intervals,
    bonferroni_level,
    difference_of_independent,
    gap_of_extremes,
    means,
    share,
    shares,
)


def covered(draw, true, times=600):
    found = [draw(k) for k in range(times)]
    return np.mean([i.low <= true <= i.high for i in found])


@pytest.mark.parametrize(("hits", "rows"), [(3, 20), (50, 100), (199, 200)])
def test_the_share_of_rows_is_about_wilsons_with_students_quantile(hits, rows):
    found = share(np.arange(rows) < hits, np.ones(rows, bool))
    v, t = hits / rows, stdtrit(rows - 1, 0.975)
    middle = (v + t**2 / (2 * rows)) / (1 + t**2 / rows)
    half = t * np.sqrt(v * (1 - v) / rows + t**2 / (4 * rows**2)) / (1 + t**2 / rows)
    assert found.value == v
    assert found.low == pytest.approx(middle - half, abs=0.01)
    assert found.high == pytest.approx(middle + half, abs=0.01)


def test_only_some_rows_count_and_none_have_no_share():
    hits = np.array([True, False, True, True])
    assert share(hits, np.array([True, True, False, False])).value == 0.5
    assert share(hits, np.zeros(4, bool)) is None


def test_a_share_of_one_has_an_interval_and_one_row_says_nothing():
    every = np.ones(10, bool)
    assert 0.5 < share(every, every).low < 0.95
    assert share(every[:1], every[:1]).low < 0.1


def test_the_shares_of_groups_are_those_of_their_rows_alone():
    rng = np.random.default_rng(0)
    hits, group, units = rng.random(90) < 0.3, rng.integers(0, 3, 90), rng.integers(0, 40, 90)
    found = shares(hits, np.ones(90, bool), GroupedRows(group, 3, units))
    for k in range(3):
        own = group == k
        alone = share(hits[own], np.ones(own.sum(), bool), units[own])
        assert found.of(k).value == pytest.approx(alone.value)
        assert found.of(k).low == pytest.approx(alone.low)


def test_rows_of_the_same_patient_count_once():
    hits = np.repeat(np.arange(30) % 3 == 0, 5)
    alone, together = share(hits, np.ones(150, bool)), share(hits, np.ones(150, bool), np.repeat(np.arange(30), 5))
    one_row = share(hits[::5], np.ones(30, bool))
    assert together.high - together.low > 1.8 * (alone.high - alone.low)
    assert together.low == pytest.approx(one_row.low, abs=0.01)


@pytest.mark.parametrize(("p", "rows", "each"), [(0.05, 60, 1), (0.5, 30, 1), (0.2, 200, 4)])
def test_shares_cover(p, rows, each):
    rng, every, units = np.random.default_rng(1), np.ones(rows, bool), np.repeat(np.arange(rows // each), each)

    def draw(_):
        own = rng.beta(3 * p, 3 * (1 - p), rows // each) if each > 1 else np.full(rows, p)
        return share(rng.random(rows) < np.repeat(own, each), every, units)

    assert covered(draw, p) > 0.92


def test_means_cover_and_are_those_of_groups():
    rng = np.random.default_rng(2)
    found = means(np.array([1.0, 3.0, 10.0, 14.0]), GroupedRows(np.array([0, 0, 1, 1]), 2))
    assert found.values.tolist() == [2.0, 12.0]
    assert covered(lambda _: means(rng.exponential(size=60), GroupedRows.one_group(60)).of(0), 1.0) > 0.9


def test_the_gap_of_extremes_covers_though_they_are_picked_after_looking():
    rng, k, rows = np.random.default_rng(3), 6, 60
    group, every = np.repeat(np.arange(k), rows), np.ones(k * rows, bool)
    true, plain, picked = np.full(k, 0.3), 0, 0
    for _ in range(300):
        hits = rng.random(k * rows) < true[group]
        found = shares(hits, every, GroupedRows(group, k), bonferroni_level(0.95, k))
        gap = gap_of_extremes(found)
        assert gap.value == pytest.approx(np.ptp(found.values))
        picked += gap.low > 0
        own = [
            share(hits[group == j], every[:rows]) for j in (int(np.argmax(found.values)), int(np.argmin(found.values)))
        ]
        plain += difference_of_independent(own[0], own[1]).low > 0
    assert picked / 300 < 0.05
    assert plain / 300 > 0.15  # the interval of two groups given beforehand would pretend


def test_the_gap_of_a_single_group_is_none():
    nan = float("nan")
    assert gap_of_extremes(Intervals(np.array([0.5, nan]), np.array([0.4, nan]), np.array([0.6, nan]))) is None


def test_a_difference_of_two_figures_is_wider_than_each():
    gap = difference_of_independent(Interval(0.6, 0.5, 0.7), Interval(0.8, 0.75, 0.84))
    assert gap.value == pytest.approx(-0.2)
    assert gap.low == pytest.approx(-0.2 - np.hypot(0.1, 0.04))
    assert gap.high == pytest.approx(-0.2 + np.hypot(0.1, 0.05))

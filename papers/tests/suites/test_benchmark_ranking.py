from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.suites.pictures import mean_and_band, on_exchanges
from fedsaddle_papers.suites.ranking import bootstrap, critical_difference, friedman, near_best, ranks_of


def test_who_is_near_the_best() -> None:
    rng = np.random.default_rng(0)
    seeds = rng.normal(0, 5, 8)  # shared by all methods: pairing takes it out
    scores = np.stack([seeds + 1.0, seeds + 0.9 + 0.5 * np.tile([1, -1], 4), seeds + rng.normal(-1.0, 0.1, 8)])
    assert near_best(scores) == [True, True, False]
    assert near_best(scores[:, :2]) == [False, False, False]  # two seeds tell nothing


def test_what_has_no_figure_is_not_near_the_best() -> None:
    assert near_best(np.array([[1.0, 1.0, 1.0], [np.nan, 5.0, 5.0]])) == [True, False]
    assert near_best(np.full((2, 3), np.nan)) == [False, False]


def test_equal_methods_are_equally_good() -> None:
    assert near_best(np.ones((3, 4))) == [True, True, True]
    assert near_best(np.array([[1.0, 1.0, 1.0], [0.5, 0.5, 0.5]])) == [True, False]


def test_ranks_are_within_each_seed() -> None:
    ranks = ranks_of(np.array([[0.9, 0.1], [0.5, 0.5], [-np.inf, -np.inf]]))
    assert ranks.tolist() == [[1, 2], [2, 1], [3, 3]]


def test_the_bootstrap_draws_seeds_and_keeps_tasks() -> None:
    same = np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    means, low, high = bootstrap([same, same[::-1]])
    assert means.tolist() == low.tolist() == high.tolist() == [1.5, 1.5]  # tasks differ, seeds do not
    mixed = np.array([[1.0, 2.0, 1.0, 2.0], [2.0, 1.0, 2.0, 1.0]])
    means, low, high = bootstrap([mixed])
    assert (low < means).all()
    assert (means < high).all()
    assert np.isnan(bootstrap([mixed[:, :2]])[1]).all()


def test_the_critical_difference_is_that_of_the_tables() -> None:
    """q of Demšar (2006), table 5a: 2.343 for 3, 3.164 for 10 methods."""
    for methods, q in ((3, 2.343), (10, 3.164)):
        wanted = q * (methods * (methods + 1) / (6 * 14)) ** 0.5
        assert critical_difference(methods, 14) == pytest.approx(wanted, rel=1e-3)
    assert np.isnan(critical_difference(3, 1))


def test_friedman_is_that_of_scipy() -> None:
    table = np.random.default_rng(1).normal(size=(6, 4)) + np.arange(4)
    assert friedman(table) == pytest.approx(stats.friedmanchisquare(*table.T).pvalue)
    assert np.isnan(friedman(table[:1]))


def test_curves_are_drawn_where_they_were_measured() -> None:
    """Common places only; in between, the last that was measured stands."""
    runs = tuple(
        RunCurves("a", seed, {"exchanges": places, "x": values})
        for seed, (places, values) in enumerate(
            [([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]), ([2.0, 5.0, 6.0], [7.0, 8.0, 9.0])]
        )
    )
    places, values = on_exchanges(runs, "x") or pytest.fail("no curve")
    assert places.tolist() == [2, 4, 5, 6]
    assert values.tolist() == [[1, 2, 2, 3], [7, 7, 8, 9]]
    assert on_exchanges(runs[:1], "y") is None


def test_bands_of_ratios_are_those_of_logarithms() -> None:
    values = np.array([[1.0], [2.0], [4.0]])
    mean, low, high = mean_and_band(values, "squared_distance_to_saddle")
    wanted = stats.t.interval(0.95, 2, np.log(2.0), stats.sem(np.log([1.0, 2.0, 4.0])))
    assert [mean[0], low[0], high[0]] == pytest.approx([2.0, *np.exp(wanted)])
    assert mean_and_band(values, "auroc")[0][0] == pytest.approx(7 / 3)
    assert mean_and_band(np.array([[1e-9], [1.0], [1e9]]), "duality_gap")[2][0] == pytest.approx(10.0)

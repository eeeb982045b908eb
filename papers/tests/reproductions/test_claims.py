from __future__ import annotations

import numpy as np

from fedsaddle_papers.reproductions.claims import (
    SeedValues,
    final_level,
    final_percent,
    higher,
    lower,
    mean_percent,
    never_reached,
    non_inferior,
    percent_at,
    time_to_common_level,
    time_to_target,
)
from fedsaddle_papers.reproductions.curves import RunCurves, Runs


def figures(*values: float, name: str = "one") -> SeedValues:
    return SeedValues(name, np.array(values), digits=1)


def runs(**worst: list[list[float]]) -> Runs:
    return Runs.of(
        [
            RunCurves(label, seed, {"round": [1.0 + i for i in range(len(w))], "test worst": w})
            for label, seeds in worst.items()
            for seed, w in enumerate(seeds)
        ]
    )


def test_a_clear_difference_holds_one_way_only() -> None:
    low, high = figures(1, 2, 3), figures(4.1, 5.0, 5.9)
    assert lower("", "", low, high).holds
    assert not lower("", "", high, low).holds
    assert higher("", "", high, low).holds
    assert not higher("", "", low, high).holds


def test_pairs_decide_not_the_two_spreads() -> None:
    """Seeds differ by 100, the two lines by 1 in every seed."""
    assert lower("", "", figures(0, 100, 200), figures(1.0, 101.1, 200.9)).holds


def test_an_unclear_difference_does_not_hold() -> None:
    claim = lower("", "", figures(1, 9, 2), figures(4, 5, 6))
    assert not claim.holds
    assert claim.measured == "one 4.0, one 5.0: -1.0 [-11.8, +9.8]"


def test_equal_figures_hold_nothing() -> None:
    same = figures(3, 3, 3)
    assert not lower("", "", same, same).holds
    assert not higher("", "", same, same).holds
    assert non_inferior("", "", same, same, 2.0).holds


def test_one_seed_decides_nothing() -> None:
    assert not lower("", "", figures(1), figures(9)).holds
    assert not higher("", "", figures(9), figures(1)).holds
    assert not non_inferior("", "", figures(9), figures(1), 2.0).holds


def test_no_less_keeps_the_margin() -> None:
    assert non_inferior("", "", figures(1, 2, 3), figures(2.0, 3.1, 3.9), 2.0).holds
    assert not non_inferior("", "", figures(1, 2, 3), figures(4.0, 5.1, 5.9), 2.0).holds


def test_runs_that_never_get_there_count_with_their_length() -> None:
    both = runs(a=[[0.0, 0.6, 0.7], [0.0, 0.1, 0.2]], b=[[0.0, 0.0, 0.1], [0.1, 0.1, 0.1]])
    a, b = (time_to_target(both, label, 0.5) for label in "ab")
    assert a.values.tolist() == [2, 3]
    assert a.lower_bounds.tolist() == [False, True]
    assert b.lower_bounds.all()
    assert str(a) == "a over 2 (1 of 2 seeds)"
    assert str(b) == "b never in 3"
    assert never_reached("", "", b).holds
    assert not never_reached("", "", a).holds


def test_every_seed_may_have_its_own_level_to_fall_to() -> None:
    both = runs(a=[[0.9, 0.5, 0.3], [0.9, 0.8, 0.7]], b=[[0.9, 0.7, 0.5], [0.9, 0.9, 0.6]])
    level = final_level(both, "b", "test worst", 2)
    assert level.tolist() == [0.6, 0.75]
    assert time_to_target(both, "a", level, falling=True).values.tolist() == [2, 3]
    assert time_to_target(both, "a", level).values.tolist() == [1, 1]
    never_there = time_to_target(both, "a", final_level(both, "a", "test worst", 1) - 0.1, falling=True)
    assert never_there.lower_bounds.tolist() == [True, True]


def test_bounds_leave_open_what_they_do_not_tell() -> None:
    def cut(*pairs: tuple[float, bool]) -> SeedValues:
        return SeedValues("a", np.array([v for v, _ in pairs]), np.array([c for _, c in pairs]))

    short = cut((200, True), (200, True), (200, True), (90, False), (90, False))
    long = cut((400, True), (150, False), (300, False), (400, True), (80, True))
    assert short.difference(long).tolist() == [0, 50, 0, -310, 0]
    assert long.difference(short).tolist() == [0, -50, 0, 310, 0]


def test_two_lines_that_never_get_there_do_not_differ_by_their_lengths() -> None:
    runs = {"a": [0.0] * 3, "b": [0.0] * 6}
    both = Runs.of(
        [
            RunCurves(k, s, {"round": [1.0 + i for i in range(len(w))], "test worst": w})
            for k, w in runs.items()
            for s in (0, 1)
        ]
    )
    assert not lower("", "", time_to_target(both, "a", 0.5), time_to_target(both, "b", 0.5)).holds


def test_the_same_level_is_the_poorer_one_of_each_seed() -> None:
    fast, slow = [0.5, 0.8, 0.8, 0.8], [0.1, 0.2, 0.6, 0.9]
    pair = time_to_common_level(runs(a=[fast, fast], b=[slow, slow]), "a", "b", "test worst", window=1)
    assert pair[0].values.tolist() == [1, 1]  # the level is 0.45, the mean of the slow run
    assert pair[1].values.tolist() == [3, 3]


def test_the_same_level_can_be_one_to_fall_to() -> None:
    fast, slow = [0.5, 0.1, 0.1, 0.1], [0.5, 0.5, 0.3, 0.1]
    pair = time_to_common_level(runs(a=[fast], b=[slow]), "a", "b", "test worst", window=1, falling=True)
    assert [p.values.tolist() for p in pair] == [[2], [3]]


def test_levels_are_per_cent() -> None:
    one = runs(a=[[0.0, 0.2, 0.4]])
    assert final_percent(one, "a", "test worst", 2).values.round(9).tolist() == [30]
    assert mean_percent(one, "a", "test worst", 3).values.round(9).tolist() == [20]
    assert mean_percent(one, "a", "test worst", 2).values.round(9).tolist() == [10]
    assert percent_at(one, "a", "test worst", 2).values.round(9).tolist() == [10]

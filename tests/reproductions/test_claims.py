from __future__ import annotations

import numpy as np

from fedsaddle.reproductions.claims import (
    Figures,
    ends,
    less,
    levels,
    more,
    never,
    no_less,
    overall,
    time_to,
    time_to_same_level,
    values_at,
)
from fedsaddle.reproductions.tracks import Track, Tracks


def figures(*values: float, name: str = "one") -> Figures:
    return Figures(name, np.array(values), digits=1)


def tracks(**worst: list[list[float]]) -> Tracks:
    return Tracks.of(
        [
            Track(label, seed, {"round": [1.0 + i for i in range(len(w))], "test worst": w})
            for label, seeds in worst.items()
            for seed, w in enumerate(seeds)
        ]
    )


def test_a_clear_difference_holds_one_way_only() -> None:
    low, high = figures(1, 2, 3), figures(4.1, 5.0, 5.9)
    assert less("", "", low, high).holds
    assert not less("", "", high, low).holds
    assert more("", "", high, low).holds
    assert not more("", "", low, high).holds


def test_pairs_decide_not_the_two_spreads() -> None:
    """Seeds differ by 100, the two lines by 1 in every seed."""
    assert less("", "", figures(0, 100, 200), figures(1.0, 101.1, 200.9)).holds


def test_an_unclear_difference_does_not_hold() -> None:
    claim = less("", "", figures(1, 9, 2), figures(4, 5, 6))
    assert not claim.holds
    assert claim.measured == "one 4.0, one 5.0: -1.0 [-11.8, +9.8]"


def test_equal_figures_hold_nothing() -> None:
    same = figures(3, 3, 3)
    assert not less("", "", same, same).holds
    assert not more("", "", same, same).holds
    assert no_less("", "", same, same, 2.0).holds


def test_one_seed_decides_nothing() -> None:
    assert not less("", "", figures(1), figures(9)).holds
    assert not more("", "", figures(9), figures(1)).holds
    assert not no_less("", "", figures(9), figures(1), 2.0).holds


def test_no_less_keeps_the_margin() -> None:
    assert no_less("", "", figures(1, 2, 3), figures(2.0, 3.1, 3.9), 2.0).holds
    assert not no_less("", "", figures(1, 2, 3), figures(4.0, 5.1, 5.9), 2.0).holds


def test_runs_that_never_get_there_count_with_their_length() -> None:
    both = tracks(a=[[0.0, 0.6, 0.7], [0.0, 0.1, 0.2]], b=[[0.0, 0.0, 0.1], [0.1, 0.1, 0.1]])
    a, b = (time_to(both, label, 0.5) for label in "ab")
    assert a.values.tolist() == [2, 3]
    assert a.bounds.tolist() == [False, True]
    assert b.bounds.all()
    assert str(a) == "a over 2 (1 of 2 seeds)"
    assert str(b) == "b never in 3"
    assert never("", "", b).holds
    assert not never("", "", a).holds


def test_every_seed_may_have_its_own_level_to_fall_to() -> None:
    both = tracks(a=[[0.9, 0.5, 0.3], [0.9, 0.8, 0.7]], b=[[0.9, 0.7, 0.5], [0.9, 0.9, 0.6]])
    level = ends(both, "b", "test worst", 2)
    assert level.tolist() == [0.6, 0.75]
    assert time_to(both, "a", level, falling=True).values.tolist() == [2, 3]
    assert time_to(both, "a", level).values.tolist() == [1, 1]
    never_there = time_to(both, "a", ends(both, "a", "test worst", 1) - 0.1, falling=True)
    assert never_there.bounds.tolist() == [True, True]


def test_bounds_leave_open_what_they_do_not_tell() -> None:
    def cut(*pairs: tuple[float, bool]) -> Figures:
        return Figures("a", np.array([v for v, _ in pairs]), np.array([c for _, c in pairs]))

    short = cut((200, True), (200, True), (200, True), (90, False), (90, False))
    long = cut((400, True), (150, False), (300, False), (400, True), (80, True))
    assert short.minus(long).tolist() == [0, 50, 0, -310, 0]
    assert long.minus(short).tolist() == [0, -50, 0, 310, 0]


def test_two_lines_that_never_get_there_do_not_differ_by_their_lengths() -> None:
    runs = {"a": [0.0] * 3, "b": [0.0] * 6}
    both = Tracks.of(
        [
            Track(k, s, {"round": [1.0 + i for i in range(len(w))], "test worst": w})
            for k, w in runs.items()
            for s in (0, 1)
        ]
    )
    assert not less("", "", time_to(both, "a", 0.5), time_to(both, "b", 0.5)).holds


def test_the_same_level_is_the_poorer_one_of_each_seed() -> None:
    fast, slow = [0.5, 0.8, 0.8, 0.8], [0.1, 0.2, 0.6, 0.9]
    pair = time_to_same_level(tracks(a=[fast, fast], b=[slow, slow]), "a", "b", "test worst", window=1)
    assert pair[0].values.tolist() == [1, 1]  # the level is 0.45, the mean of the slow run
    assert pair[1].values.tolist() == [3, 3]


def test_the_same_level_can_be_one_to_fall_to() -> None:
    fast, slow = [0.5, 0.1, 0.1, 0.1], [0.5, 0.5, 0.3, 0.1]
    pair = time_to_same_level(tracks(a=[fast], b=[slow]), "a", "b", "test worst", window=1, falling=True)
    assert [p.values.tolist() for p in pair] == [[2], [3]]


def test_levels_are_per_cent() -> None:
    one = tracks(a=[[0.0, 0.2, 0.4]])
    assert levels(one, "a", "test worst", 2).values.round(9).tolist() == [30]
    assert overall(one, "a", "test worst", 3).values.round(9).tolist() == [20]
    assert overall(one, "a", "test worst", 2).values.round(9).tolist() == [10]
    assert values_at(one, "a", "test worst", 2).values.round(9).tolist() == [10]

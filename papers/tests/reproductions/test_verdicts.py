"""The statistics of verdicts: intervals, looks, Holm, and how often they err."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from fedsaddle_papers.reproductions.verdicts import (
    HOLDS,
    NO_DATA,
    REFUTED,
    UNDECIDED,
    Effects,
    Finding,
    holm,
    interval,
    joint_p_values,
    judge,
    p_values,
)


def better(*values: float, matters: float = 1.0, resolution: float = 0.0) -> Effects:
    return Effects(np.array(values), 0.0, matters, resolution)


def one(effects: Effects, looks: tuple[int, ...] = (5,)) -> Finding:
    return judge([[effects]], looks)[0]


def test_the_interval_and_the_p_values_are_those_of_the_t_test() -> None:
    effects = better(0.5, 1.1, -0.2, 0.9, 1.4, matters=2.0)
    test = ttest_1samp(effects.values, 0.0)
    ends = test.confidence_interval(0.975)
    assert interval(effects, 0.025)[1:] == pytest.approx((ends.low, ends.high))
    above = ttest_1samp(effects.values, 0.0, alternative="greater").pvalue
    below = ttest_1samp(effects.values, 2.0, alternative="less").pvalue
    assert p_values(effects) == pytest.approx((above, below))


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((2.0, 2.1, 1.9, 2.0, 2.2), HOLDS),
        ((-2.0, -2.1, -1.9, -2.0, -2.2), REFUTED),
        ((0.09, 0.10, 0.08, 0.09, 0.10), REFUTED),  # the paper's sign, but too small to matter
        ((1.2, 0.9, 1.1, 0.8, 1.0), HOLDS),
        ((2.0, -3.0, 4.0, 0.0, 1.0), UNDECIDED),
        ((np.nan,) * 5, NO_DATA),
        ((np.nan, np.nan, np.nan, 2.0, 2.1), NO_DATA),
        ((np.nan, 2.0, 2.1, 2.0, 1.9), HOLDS),
    ],
)
def test_verdicts(values: tuple[float, ...], verdict: str) -> None:
    assert one(better(*values)).verdict == verdict


def test_not_worse_keeps_a_margin_and_may_straddle_it() -> None:
    def not_worse(*values: float) -> str:
        return one(Effects(np.array(values), -1.0, -1.0)).verdict

    assert not_worse(-0.2, -0.1, 0.1, 0.0, -0.3) == HOLDS
    assert not_worse(-2.2, -2.1, -2.0, -1.9, -2.3) == REFUTED
    assert not_worse(-1.2, -0.8, -1.1, -0.9, -1.0) == UNDECIDED


def test_fewer_seeds_than_the_first_look_decide_nothing() -> None:
    found = one(better(2.0, 2.1, 1.9))
    assert (found.verdict, found.decided_at, found.seeds) == (UNDECIDED, None, 3)
    assert found.low > 0


def test_a_verdict_stands_from_the_look_that_took_it() -> None:
    early = better(2.0, 2.1, 1.9, 2.0, 2.2, *([-9.0] * 5))
    found = one(early, (5, 10))
    assert (found.verdict, found.decided_at) == (HOLDS, 5)
    assert found.effect < 0
    late = better(3.0, -1.0, 2.0, 0.0, 3.0, 2.0, 2.5, 3.0, 2.0, 2.2)
    assert one(late, (5, 10)).decided_at == 10


def test_values_that_are_all_the_same_are_no_certainty_when_they_are_rounded() -> None:
    assert one(better(*[5.0] * 5, matters=5.0)).verdict == HOLDS
    assert interval(better(*[5.0] * 5, resolution=5.0))[1] < 5.0
    assert one(better(*[1.0] * 5, matters=1.0, resolution=5.0)).verdict == UNDECIDED


def test_all_comparisons_of_a_sentence_must_hold_and_one_refutes_it() -> None:
    up, down, flat = better(2.0, 2.1, 1.9, 2.0, 2.2), better(*[-2.0, -2.1, -1.9, -2.0, -2.2]), better(9, -9, 5, -5, 0)
    assert judge([[up, up]], (5,))[0].verdict == HOLDS
    assert judge([[up, flat]], (5,))[0].verdict == UNDECIDED
    found = judge([[up, down]], (5,))[0]
    assert found.verdict == REFUTED
    assert found.effect == pytest.approx(-2.04)
    assert joint_p_values([up, flat])[0] == p_values(flat)[0]
    assert joint_p_values([up, flat])[1] == pytest.approx(2 * min(p_values(up)[1], p_values(flat)[1]))


def test_holm_stops_at_the_first_that_fails() -> None:
    assert holm([0.01, 0.02, 0.03], 0.06) == [0.02, 0.03, 0.06]
    assert holm([0.02, 0.02, 0.03], 0.05) == [None, None, None]
    assert holm([], 0.05) == []


def wrong_verdicts(effect: float, matters: float, wrong: str, rng: np.random.Generator) -> float:
    """The share of figures of three sentences, with looks at 5 and 10 seeds, in which any verdict is wrong."""
    trials = 1500
    draws = effect + rng.standard_normal((trials, 3, 10))
    found = (judge([[Effects(d, 0.0, matters)] for d in figure], (5, 10)) for figure in draws)
    return sum(any(f.verdict == wrong for f in findings) for findings in found) / trials


def test_a_figure_errs_in_at_most_a_twentieth_of_the_cases() -> None:
    """Simulated at the two borders: no effect, which must not hold, and one of δ, which must not be refuted."""
    rng = np.random.default_rng(0)
    most = 0.05 + 3 * (0.05 * 0.95 / 1500) ** 0.5
    assert 0.002 < wrong_verdicts(0.0, 1.0, HOLDS, rng) < most
    assert 0.002 < wrong_verdicts(1.0, 1.0, REFUTED, rng) < most


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng, trials = np.random.default_rng(1), 4000
    inside = 0
    for draws in rng.standard_normal((trials, 5)):
        _, low, high = interval(Effects(draws, 0.0, 1.0), 0.05)
        inside += low <= 0 <= high
    assert abs(inside / trials - 0.95) < 3 * (0.05 * 0.95 / trials) ** 0.5


def test_a_second_sentence_asks_more_of_an_effect_that_is_too_small_to_matter() -> None:
    """Twice the p-value of "it is δ or more" is below α, but not below α / 2: beside another sentence, it holds."""
    values = np.random.default_rng(3).normal(size=10)
    values = (values - values.mean()) / values.std(ddof=1)
    small = Effects(0.5 + 0.42 * values, 0.0, 0.826)
    above, below = p_values(small)
    assert 2 * above < 0.025 < 2 * below < 0.05
    assert judge([[small]], (10,))[0].verdict == REFUTED
    assert judge([[small], [Effects(values, 0.0, 1.0)]], (10,))[0].verdict == HOLDS

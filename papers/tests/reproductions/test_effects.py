"""The effects of hypotheses, from curves made by hand."""

from __future__ import annotations

from math import inf, log, nan

import numpy as np
import pytest

from fedsaddle_papers.reproductions.curves import RunCurves, Runs
from fedsaddle_papers.reproductions.effects import effects_of, judged
from fedsaddle_papers.reproductions.hypotheses import (
    BELOW_LEVEL,
    BETTER,
    NOT_WORSE,
    Decline,
    Final,
    Hypothesis,
    Mean,
    Measure,
    Peak,
    Selected,
    Times,
)

ONE = ("one", "other")


def curves(label: str, values: list[float], *, seed: int = 0, every: int = 10, steps: int = 1) -> RunCurves:
    rounds = [float(every * (i + 1)) for i in range(len(values))]
    columns = {"round": rounds, "local_steps": [steps * r for r in rounds], "f": values}
    return RunCurves(label, seed, columns, selected={"f": values[0]})


def hypothesis(measure: Measure, pair: tuple[str, str] = ONE, kind: str = BETTER, level: float = 0.0) -> Hypothesis:
    return Hypothesis("key", "figure", "sentence", "place", (pair,), measure, 1.0, kind, level)


def effect(measure: Measure, one: list[float], other: list[float], **options: object) -> float:
    runs = Runs.of([curves("one", one), curves("other", other)])
    (found,) = effects_of(hypothesis(measure, **options), runs)  # type: ignore[arg-type]
    return float(found.values[0])


RISING, FLAT = [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.25, 0.25]


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        (Final("f", rounds=20), 35 - 25),
        (Final("f", rounds=10, scale=1.0), 0.40 - 0.25),
        (Final("f", rounds=20, falling=True), 25 - 35),
        (Final("f", rounds=20, log=True), log(0.35 / 0.25)),
        (Mean("f", 20), 15 - 25),
        (Mean("f", 20, falling=True), 25 - 15),
        (Peak("f", window=20), 35 - 25),
        (Selected("f"), 10 - 25),
        (Decline("f"), log(0.3 / 0.4) - log(1)),
        (Times("f", 0.25, window=10), log(10 / 30)),
        (Times("f", None, window=10), log(10 / 30)),  # 0.25 is what both end with at least
        (Times("f", 0.35, window=10), log(40 / 40)),  # the other never gets there: it counts with its budget
        (Times("f", 0.9, window=10), nan),
    ],
    ids=str,
)
def test_by_hand(measure: Measure, expected: float) -> None:
    assert effect(measure, RISING, FLAT) == pytest.approx(expected, nan_ok=True)
    back = effect(measure, FLAT, RISING)
    assert back == pytest.approx(-expected, nan_ok=True), "the other way round"


def test_lines_of_unlike_length_are_read_at_the_same_cost() -> None:
    measure = Final("f", same="local_steps")
    runs = Runs.of([curves("one", RISING), curves("other", FLAT, steps=10)])
    (found,) = effects_of(hypothesis(measure), runs)
    assert found.values.tolist() == pytest.approx([40 - 25])
    runs = Runs.of([curves("one", RISING, steps=10), curves("other", FLAT)])
    (found,) = effects_of(hypothesis(measure), runs)
    assert found.values.tolist() == pytest.approx([10 - 25]), "after 40 local steps the first is no further than at 100"


def test_a_run_is_not_credited_for_what_it_does_after_the_other_ended() -> None:
    """The first gets to the level in round 40, when the other, with 20 rounds, has ended: nobody got there."""
    runs = Runs.of([curves("one", RISING), curves("other", FLAT[:2])])
    (found,) = effects_of(hypothesis(Times("f", 0.35, window=10)), runs)
    assert np.isnan(found.values).all()


def test_a_level_and_a_margin() -> None:
    final = Final("f", rounds=20)
    assert effect(final, RISING, FLAT, kind=BELOW_LEVEL, level=30.0) == pytest.approx(30 - 35)
    margin = hypothesis(final, kind=NOT_WORSE)
    assert (margin.bound, margin.matters) == (-1.0, -1.0)


def test_the_distance_of_two_lines() -> None:
    runs = Runs.of([curves("a", RISING), curves("b", FLAT), curves("c", FLAT)])
    (found,) = effects_of(hypothesis(Final("f", rounds=20), pair=("a | b", "b | c")), runs)
    assert found.values.tolist() == pytest.approx([10 - 0])


def test_times_know_how_far_apart_evaluations_are() -> None:
    runs = Runs.of([curves("one", RISING), curves("other", FLAT)])
    (found,) = effects_of(hypothesis(Times("f", 0.25, window=10)), runs)
    assert found.resolution == pytest.approx(10 / 10), "ten rounds apart, and the faster took ten"


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (Final("f", rounds=20), "one 35.00, other 25.00: +10.00 points"),
        (Final("f", rounds=20, falling=True, log=True), "one 0.35, other 0.25: is 1.40 times as large"),
        (Decline("f"), "one 1.33, other 1: is 1.33 times as large"),
        (Times("f", 0.25, window=10), "one / other ×3.00 (2 of 2 seeds): takes 3.00 times as many"),
        (Times("f", 0.9, window=10), "one / other never (0 of 2 seeds): neither gets there"),
    ],
    ids=str,
)
def test_in_words(measure: Measure, words: str) -> None:
    runs = Runs.of([curves(name, v, seed=s) for name, v in (("one", RISING), ("other", FLAT)) for s in (0, 1)])
    (found,) = judged([hypothesis(measure)], runs, (2,))
    assert found.measured.startswith(words)
    assert found.finding.low <= found.finding.effect <= found.finding.high or not -inf < found.finding.effect < inf

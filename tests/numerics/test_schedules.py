from dataclasses import FrozenInstanceError

import pytest

from fedsaddle.errors import BadInput
from fedsaddle.numerics.schedules import Cosine, Geometric, Power, Staged, Warmup, at, check_step, staged_at


def test_a_plain_number_stays():
    assert [at(0.3, t) for t in (0, 1, 100)] == [0.3, 0.3, 0.3]


def test_a_power_of_the_round():
    step = Power(2.0, 0.5, at_most=1.2)
    assert at(step, 0) == 1.2
    assert at(step, 3) == pytest.approx(1.0)
    assert at(step, 15) == pytest.approx(0.5)
    assert [Power(0.7, 0.0).at(t) for t in (0, 9)] == [0.7, 0.7]


def test_stages_one_after_the_other():
    step = Staged([(2, 0.2), (1, 0.1), (3, 0.05)])
    assert [at(step, t) for t in range(8)] == [0.2, 0.2, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05]


def test_a_geometric_row():
    assert [at(Geometric(0.5, 0.5), t) for t in range(3)] == [0.5, 0.25, 0.125]
    assert [at(Geometric(3, 2), t) for t in range(3)] == [3, 6, 12]


def test_half_a_cosine():
    step = Cosine(0.4, 10, last=0.1)
    assert at(step, 0) == pytest.approx(0.4)
    assert at(step, 5) == pytest.approx(0.25), "half way down in the middle"
    assert at(step, 2) + at(step, 8) == pytest.approx(0.5), "turned about its middle it is itself"
    values = [at(step, t) for t in range(11)]
    assert values == sorted(values, reverse=True)
    assert values[0] - values[1] < values[4] - values[5], "it begins and ends flat"
    assert [at(step, t) for t in (10, 11, 1000)] == [0.1] * 3
    assert at(Cosine(0.4, 10), 10) == 0
    assert at(Cosine(1, 3), 1) == pytest.approx(0.75)


def test_a_warm_up_shortens_the_first_rounds_and_nothing_else():
    inside = Cosine(0.4, 10, last=0.1)
    step = Warmup(3, of=inside)
    assert [at(step, t) / at(inside, t) for t in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1, 1])
    assert [at(step, t) for t in range(3, 20)] == [at(inside, t) for t in range(3, 20)]
    assert [at(Warmup(0, of=0.3), t) for t in range(3)] == [0.3] * 3
    assert at(Warmup(1, of=Warmup(1, of=0.4)), 0) == pytest.approx(0.1)


def test_stages_count_the_warm_up_in_rounds():
    step = Warmup(3, of=Geometric(0.8, 0.5))
    assert [staged_at(step, s, r) for s, r in ((0, 0), (1, 2), (2, 5))] == pytest.approx([0.2, 0.3, 0.2])
    assert staged_at(Geometric(0.8, 0.5), 1, 7) == 0.4


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Warmup(-1, of=0.1), "rounds = -1"),
        (lambda: Warmup(2, of=0.0), "of = 0.0"),
        (lambda: Warmup(2, of=Power), "of = "),
        (lambda: Cosine(0.0, 3), "first = 0.0"),
        (lambda: Cosine(0.1, 0), "rounds = 0"),
        (lambda: Cosine(0.1, 2.5), "rounds = 2.5"),
        (lambda: Cosine(0.1, 3, last=-0.1), "last = -0.1"),
        (lambda: Cosine(0.1, 3, last=0.2), "last = 0.2"),
        (lambda: Power(0.0, 0.5), "c = 0.0"),
        (lambda: Power(1.0, -0.1), "rho = -0.1"),
        (lambda: Power(1.0, 0.5, at_most=0.0), "at_most = 0.0"),
        (lambda: Geometric(0.0, 0.5), "first = 0.0"),
        (lambda: Geometric(0.5, 0.0), "factor = 0.0"),
        (lambda: Staged([]), "stages = "),
        (lambda: Staged(7), "stages = 7"),
        (lambda: Staged([3, 0.1]), "stages = 3: each stage is a pair"),
        (lambda: Staged([(3,)]), "each stage is a pair"),
        (lambda: Staged([(3, 0.1, 0.2)]), "each stage is a pair"),
        (lambda: Staged([(0.5, 3)]), "stages.rounds = 0.5"),
        (lambda: Staged([(3, 0.0)]), "stages.value = 0.0"),
        (lambda: check_step("step", 0.0), "step = 0.0"),
        (lambda: check_step("step", Power), "step = "),
    ],
)
def test_what_is_no_schedule(make, named):
    with pytest.raises(BadInput, match=named):
        make()


def test_what_is_a_step():
    for step in (1e-3, 0.5, 2, Power(0.1, 0.0), Geometric(0.5, 0.9), Staged([(1, 0.5)]), Cosine(0.1, 5)):
        check_step("step", step)


@pytest.mark.parametrize(
    "value",
    [Power(1.0, 0.5), Staged([(1, 0.5)]), Geometric(1.0, 0.5), Cosine(1.0, 5), Warmup(2, 0.1)],
    ids=lambda v: type(v).__name__,
)
def test_a_schedule_is_a_value(value):
    with pytest.raises(FrozenInstanceError):
        value.first = 2.0

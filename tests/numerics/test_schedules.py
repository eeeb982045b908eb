from dataclasses import FrozenInstanceError

import pytest

from fedsaddle.errors import BadInput
from fedsaddle.numerics.schedules import Geometric, Power, Staged, at, check_step


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


@pytest.mark.parametrize(
    ("make", "named"),
    [
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
    for step in (1e-3, 0.5, 2, Power(0.1, 0.0), Geometric(0.5, 0.9), Staged([(1, 0.5)])):
        check_step("step", step)


@pytest.mark.parametrize(
    "value", [Power(1.0, 0.5), Staged([(1, 0.5)]), Geometric(1.0, 0.5)], ids=lambda v: type(v).__name__
)
def test_a_schedule_is_a_value(value):
    with pytest.raises(FrozenInstanceError):
        value.first = 2.0

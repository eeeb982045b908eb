import pytest

from fedsaddle.numerics.schedules import Power, Staged, at


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

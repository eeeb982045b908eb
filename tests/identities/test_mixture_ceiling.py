"""A ceiling of DRFA's mixture: what it equals at special values, and what is refused."""

from __future__ import annotations

import pytest
import torch

from fedsaddle.algorithms.drfa import Drfa, DrfaGa
from fedsaddle.errors import BadInput
from fedsaddle.numerics.regularisers import KullbackLeibler
from fedsaddle.problems.models.networks import logistic_regression
from fedsaddle.problems.supervised import Supervised
from small import classes, play, seeded, serial


def problem() -> Supervised:
    return Supervised(seeded(lambda: logistic_regression(4, 3)))


@pytest.mark.parametrize("kind", [Drfa, DrfaGa])
def test_a_ceiling_of_n_is_none_and_of_one_is_uniform(kind):
    options = {"problem": problem(), "local_steps": 2, "batch_size": 3, "dual_step": 0.3}
    free, wide, narrow = (kind(**options, mixture_ceiling=c) for c in (None, 6.0, 1.0))
    a, b = play(free, serial(classes()), 4)[-1], play(wide, serial(classes()), 4)[-1]
    torch.testing.assert_close(a.lam, b.lam, rtol=0, atol=1e-12)
    assert float(a.lam.max()) > 0.3
    torch.testing.assert_close(play(narrow, serial(classes()), 4)[-1].lam, torch.full((6,), 1 / 6))
    some = play(kind(**options, mixture_ceiling=1.5), serial(classes()), 4)[-1].lam
    assert float(some.max()) <= 1.5 / 6
    assert float(some.sum()) == pytest.approx(1, abs=1e-12)


def test_what_is_refused():
    with pytest.raises(BadInput, match=r"mixture_ceiling = 0.5"):
        Drfa(problem=problem(), mixture_ceiling=0.5)
    with pytest.raises(BadInput, match=r"mixture_ceiling = 1.5: cannot be combined with a regulariser"):
        Drfa(problem=problem(), mixture_ceiling=1.5, regulariser=KullbackLeibler(0.1))

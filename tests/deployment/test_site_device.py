"""A site's evaluation on the device of its own policy: the figures of the CPU."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedsaddle.data.store import Stacked
from fedsaddle.deployment.site import AgreedRun
from fedsaddle.deployment.site_measures import measure_site
from fedsaddle.problems import risks
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.models.networks import mlp
from fedsaddle.problems.supervised import Supervised
from pretend import PRETEND, TRANSFERS
from small import classes, seeded

PROBLEMS = {
    "supervised": lambda: Supervised(seeded(lambda: mlp(4, [5], 2))),
    "auc": lambda: MinimaxAuc(model=seeded(lambda: mlp(4, [5], 1)), positive_share=0.4),
    "pairwise": lambda: risks.partial_auc(seeded(lambda: mlp(4, [5], 1)), temperature=2.0),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_site_measures_on_its_device(name):
    x, y = classes(sizes=(40,), classes=2).client(0)
    own, problem = Stacked(x, y, np.array([0, len(x)])), PROBLEMS[name]()
    start = problem.initial()
    w, dual = start if isinstance(start, tuple) else (start, None)
    run = AgreedRun(SimpleNamespace(device=PRETEND), {"test": own}, None, None)
    here = measure_site(problem, w, dual, own, 5).reply
    assert measure_site(problem, w, dual, run.part("test"), 5).reply == here
    assert here["rows"] > 0
    TRANSFERS.reset()
    assert run.part("test").x.device == PRETEND
    assert TRANSFERS.down == 0, "rows are sent once"
    assert run.part("train") is None

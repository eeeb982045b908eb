"""FedSGDA's simulation from a config: data, problem, and no model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedsaddle.config.build import build
from fedsaddle.config.schema import validate_config
from fedsaddle.data.sets.synthetic import nonconvex_pl
from fedsaddle.errors import BadInput
from fedsaddle.problems.games import NonconvexPl
from fedsaddle.runs.run import run

CONFIG: dict[str, Any] = {
    "data": {"name": "nonconvex-pl", "clients": 4, "rows": 5, "dimension": 3, "test_share": 0.0},
    "split": {"name": "natural"},
    "model": {"name": "none"},
    "problem": {"name": "nonconvex-pl", "mu": 2.0},
    "algorithm": {"name": "FedSGDA-MB", "local_steps": 2, "primal_step": 0.01, "dual_step": 0.01},
}


def test_the_config_is_the_simulation() -> None:
    built = build(validate_config(CONFIG))
    assert built.algorithm.problem == NonconvexPl(3, mu=2.0)
    rows = nonconvex_pl(4, 5, 3)
    assert built.data.test is None
    assert torch.equal(built.data.train.x, rows.x.float())
    assert np.array_equal(built.data.train.offsets, rows.offsets)
    result = run(built.algorithm, built.data, 2)
    assert result.history[-1]["pooled"]["squared_gradient_of_phi"] > 0


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model": {"name": "logistic"}}, "model.name"),
        ({"problem": {"name": "nonconvex-pl", "mu": -1.0}}, "problem.mu"),
        ({"problem": {"name": "nonconvex-pl", "mue": 1.0}}, "problem.mue"),
        ({"data": {"name": "diabetes"}, "split": {"name": "iid", "clients": 3}}, "data.name"),
        ({"data": {"name": "nonconvex-pl", "rows": 0}}, "data.rows"),
        ({"problem": {"name": "auc"}}, "problem.name"),
    ],
)
def test_what_does_not_fit(change: dict[str, Any], key: str) -> None:
    with pytest.raises(BadInput) as caught:
        build(validate_config({**CONFIG, **change}))
    assert caught.value.key == key

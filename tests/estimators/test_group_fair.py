"""The classifier for the worst group of rows."""

from __future__ import annotations

import numpy as np
import pytest

import fedsaddle as fs


def patients(rows: int = 800) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    x, weak = rng.normal(size=(rows, 3)), rng.random(rows) < 0.15
    s = np.where(weak, -0.6 * x[:, 0] + x[:, 1], x[:, 0]) + 0.3 * rng.normal(size=rows)
    return x, (s > 0.2).astype(int), np.where(weak, "weak", "others")


def worst(model: fs.FederatedClassifier, x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> float:
    p = np.clip(model.predict_proba(x)[np.arange(len(y)), y], 1e-6, 1)
    return max(-np.log(p[groups == name]).mean() for name in np.unique(groups))


def test_the_worst_group_is_served_better_than_by_fedavg() -> None:
    x, y, groups = patients()
    options = {"weighting": "size", "ascent": "server", "dual_step": 0.1}
    common = {"clients": 4, "random_state": 0, "rounds": 60, "model": "logistic", "calibrate": False}
    fair = fs.FederatedClassifier("Local SGDA", problem="group-fair", options=options, primal_step=0.1, **common)
    plain = fs.FederatedClassifier("FedAvg", primal_step=0.1, **common)
    ours = worst(fair.fit(x, y, subgroups=groups), x, y, groups)
    assert ours < worst(plain.fit(x, y), x, y, groups) - 0.1


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("sex", "subgroups = 'sex': must have one entry"),
        (np.array(["a", "b"]), "give one group for each"),
        (None, "groups = "),
    ],
)
def test_bad_groups_are_one_line(groups: object, message: str) -> None:
    x, y, _ = patients(60)
    model = fs.FederatedClassifier("Local SGDA", problem="group-fair", options={"ascent": "server"})
    with pytest.raises(ValueError, match=message) as caught:
        model.fit(x, y, subgroups=groups)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)

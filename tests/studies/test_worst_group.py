"""A study for the worst group: groups that cross sites are trained for, measured and reported; errors are one line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedsaddle as fs
from fedsaddle.metrics.subgroups import worst_loss
from fedsaddle.studies.aims import AIMS, Rows


def table(rows: int = 600) -> Any:
    """A group of a seventh of the rows, at all sites, for which the first feature points the other way."""
    import pandas as pd

    rng = np.random.default_rng(3)
    x, sex = rng.normal(size=(rows, 2)), rng.choice(["F", "M"], rows, p=[0.15, 0.85])
    s = np.where(sex == "M", x[:, 0], -0.6 * x[:, 0]) + 0.5 * x[:, 1] + 0.3 * rng.normal(size=rows)
    columns = {
        "site": rng.choice(["a", "b"], rows),
        "x0": x[:, 0],
        "x1": x[:, 1],
        "sex": sex,
        "y": (s > 0.2).astype(int),
    }
    return pd.DataFrame(columns)


def test_the_worst_group_is_the_one_with_the_largest_log_loss() -> None:
    labels = np.array([1, 0] * 15)
    scores = np.where(labels > 0, 1.0, -1.0)
    scores[20:] *= -1
    group = {"ward": np.array(["A"] * 20 + ["B"] * 10)}
    rows = Rows.of(labels, np.array([0, 15, 30]), groups=group)
    assert AIMS["worst-group"].value(scores, rows) == pytest.approx(-np.log1p(np.exp(1)))
    few = Rows.of(labels[:25], np.array([0, 15, 25]), groups={"ward": group["ward"][:25]})
    assert AIMS["worst-group"].value(scores[:25], few) == pytest.approx(-np.log1p(np.exp(-1)))  # five rows of B


def test_the_interval_of_the_worst_of_many_groups_covers_the_worst() -> None:
    """Groups that are alike: the largest of twelve means is too large, and the lower end allows for it."""
    rng, covered, naive = np.random.default_rng(0), 0, 0
    for _ in range(200):
        losses, group = rng.exponential(size=480), np.repeat(np.arange(12), 40)
        found = worst_loss(losses, group, [str(i) for i in range(12)], 10)
        one = worst_loss(losses[group == int(found.name)], np.zeros(40, dtype=np.int64), ["it"], 10)
        covered += found.loss.low <= 1.0 <= found.loss.high
        naive += one.loss.low <= 1.0 <= one.loss.high
    assert covered / 200 > 0.93
    assert naive < covered


def test_a_study_for_the_worst_group(tmp_path: Any) -> None:
    """Of a linear model the training for the worst mixture is chosen where a group is planted."""
    path = tmp_path / "patients.csv"
    table(900).to_csv(path, index=False)
    found = fs.study(
        path, site="site", label="y", groups=["sex"], aim="worst-group", budget=None, out=tmp_path / "run", workers=1
    )
    trials = (tmp_path / "run" / "trials.csv").read_text()
    assert "then Local SGDA" in trials
    groups = json.loads((tmp_path / "run" / "summary.json").read_text())["groups"]
    assert groups["columns"] == ["sex"]
    assert groups["worst_by_fedavg"] == "F"
    assert {"F", "M"} == set(groups["losses"])
    worst = {who: max(own[who] for own in groups["losses"].values()) for who in ("choice", "FedAvg")}
    assert worst["choice"] < worst["FedAvg"]
    pooled = found.summary.pooled
    assert pooled.choice.worst_group_loss is not None
    assert pooled.choice.worst_group_loss.value == pytest.approx(worst["choice"])
    if "Local SGDA" in found.choice.name:
        assert sum(groups["mixture"].values()) == pytest.approx(1, abs=1e-5)
    assert (tmp_path / "run" / "report.html").exists()


def test_without_groups_it_is_refused_in_one_line() -> None:
    with pytest.raises(fs.errors.BadInput, match=r"groups = .*: name columns whose values are groups"):
        fs.study(table(200), site="site", label="y", aim="worst-group")

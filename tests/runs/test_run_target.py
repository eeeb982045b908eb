"""Targets: how they are written, and when a run stops for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from run_cases import drfa, iris

from fedsaddle.errors import BadInput
from fedsaddle.metrics.selection import Target
from fedsaddle.problems.models.networks import logistic_regression
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.run import run


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("worst accuracy >= 0.5", Target("worst", "accuracy", ">=", 0.5)),
        ("  std   accuracy<.1 ", Target("std", "accuracy", "<", 0.1)),
        ("bottom10 loss <= 1e-2", Target("bottom10", "loss", "<=", 0.01)),
        ("global loss > -3", Target("global", "loss", ">", -3.0)),
        ("best accuracy >= 1", Target("best", "accuracy", ">=", 1.0)),
        ("mean accuracy >= +0.25", Target("mean", "accuracy", ">=", 0.25)),
        ("auroc >= 0.9", Target(None, "auroc", ">=", 0.9)),
    ],
)
def test_written(text, target):
    assert Target.parse(text) == target
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "write it like"),
        ("accuracy >= 0.5", "say which client: global, mean, worst"),
        ("worst >= 0.5", "say which client: global, mean, worst"),
        ("worst accuracy", "write it like"),
        ("worst accuracy == 0.5", "write it like"),
        ("worst accuracy >= half", "write it like"),
        ("worst accuracy >= 0.5 please", "write it like"),
        ("worst accuracy >= 0.5.5", "'0.5.5' is not a number"),
        ("least accuracy >= 0.5", "the statistic is one of global, mean, worst, best, std, bottom10"),
        ("worst auc >= 0.5", "the measure is accuracy or loss"),
        ("Worst Accuracy >= 0.5", "the statistic is one of"),
    ],
)
def test_refused(text, remedy):
    with pytest.raises(BadInput) as caught:
        Target.parse(text)
    assert caught.value.key == "target"
    assert caught.value.value == text
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("sign", "below", "at", "above"),
    [(">=", False, True, True), (">", False, False, True), ("<=", True, True, False), ("<", True, False, False)],
)
def test_met(sign, below, at, above):
    target = Target("worst", "accuracy", sign, 0.5)
    for value, expected in ((0.4, below), (0.5, at), (0.6, above)):
        assert target.met({"test": {"accuracy": {"worst": value, "mean": 0.0}}}) is expected
        assert target.met({"train": {"accuracy": {"worst": value, "mean": 0.0}}}) is expected
        assert Target(None, "auroc", sign, 0.5).met({"pooled": {"auroc": value}}) is expected


def test_a_run_stops_where_it_is_first_met():
    free = run(drfa(primal_step=0.02), iris(), 30)
    for target, value in (
        ("worst loss <= 0.8", lambda r: r["test"]["loss"]["worst"] <= 0.8),
        ("std loss < 0.09", lambda r: r["test"]["loss"]["std"] < 0.09),
        ("bottom10 accuracy >= 0.75", lambda r: r["test"]["accuracy"]["bottom10"] >= 0.75),
    ):
        first = next(r["round"] for r in free.history if value(r))
        stopped = run(drfa(primal_step=0.02), iris(), 30, target=target)
        assert stopped.summary["stopped"] == "target"
        assert stopped.summary["target_round"] == stopped.summary["rounds"] == first
        assert stopped.summary["target"] == target


def test_only_evaluated_rounds_count():
    result = run(drfa(), iris(), 10, target="worst accuracy >= 0", evaluate_every=4)
    assert result.summary["target_round"] == 4


def test_the_training_rows_count_where_there_are_no_others():
    result = run(drfa(), iris().train, 10, target="mean loss < 99")
    assert result.summary["target_round"] == 1
    assert "test" not in result.summary


class Pooling(Supervised):
    """Measures one figure of all rows together: how many there are."""

    def pooled_measures(self, w, dual, rows):
        return {"rows": float(len(rows.x))}


def test_a_measure_of_all_rows_together(tmp_path):
    pooling = replace(drfa(), problem=Pooling(logistic_regression(4, 3)))
    result = run(pooling, iris(), 5, target="rows >= 30", out=tmp_path)
    assert result.summary["target_round"] == 1
    assert result.history[0]["pooled"] == result.summary["pooled"] == {"rows": 30.0}
    for algorithm, there in ((pooling, "has the metrics rows only"), (drfa(), "has no pooled metrics")):
        with pytest.raises(BadInput, match=f"this problem {there}"):
            run(algorithm, iris(), 5, target="auroc >= 0.9", out=tmp_path / "new")
    assert not (tmp_path / "new").exists()

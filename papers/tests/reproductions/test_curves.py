from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fedsaddle.metrics.intervals import t_interval
from fedsaddle_papers.reproductions.curves import RunCurves, Runs, first_crossing, running_mean


def curves(worst: list[float], *, seed: int = 0, label: str = "one", every: int = 1, steps: int = 10) -> RunCurves:
    rounds = [float(every * (i + 1)) for i in range(len(worst))]
    return RunCurves(label, seed, {"round": rounds, "local_steps": [steps * r for r in rounds], "test worst": worst})


def test_running_mean_by_hand() -> None:
    values = np.array([1.0, 2.0, 3.0, 6.0])
    assert running_mean(values, 1).tolist() == [1, 2, 3, 6]
    assert running_mean(values, 2).tolist() == [1, 1.5, 2.5, 4.5]
    assert running_mean(values, 9).tolist() == [1, 1.5, 2, 3]


def test_first_crossing() -> None:
    values = np.array([0.1, 0.6, 0.4, 0.7])
    assert first_crossing(values, 0.5) == 1
    assert first_crossing(values, 0.6) == 1
    assert first_crossing(values, 0.65) == 3
    assert first_crossing(values, 0.8) is None
    assert first_crossing(values[1:], 0.4, falling=True) == 1
    assert first_crossing(values, 0.05, falling=True) is None


def test_a_hit_forgives_rounding() -> None:
    assert first_crossing(running_mean(np.full(30, 0.1), 10), 0.1) == 0


def test_a_run_that_diverged_stands_as_it_was_measured_last() -> None:
    whole = curves([0.2, 0.6], every=10).carried_forward(45, 10, 27)
    assert whole.columns["round"] == [10, 20, 30, 40, 45]
    assert whole.columns["local_steps"] == [100, 200, 300, 400, 450]
    assert whole.columns["test worst"] == [0.2, 0.6, 0.6, 0.6, 0.6]
    notes = Runs.of([whole, curves([0.1] * 5, seed=1)]).divergence_notes()
    assert notes == ["one, seed 0: diverged in round 27; its last metrics stand"]


def test_reached_counts_rounds_and_local_steps() -> None:
    spiky = curves([0.0, 0.9, 0.0, 0.6, 0.6, 0.6])
    assert spiky.first_reached("test worst", 0.5) == 2
    assert spiky.first_reached("test worst", 0.5, unit="local_steps") == 20
    assert spiky.first_reached("test worst", 0.5, window=3) == 4
    assert spiky.first_reached("test worst", 0.5, window=2) == 5
    assert spiky.first_reached("test worst", 0.95) is None


def test_windows_that_are_not_full_do_not_count() -> None:
    assert curves([0.9, 0.0, 0.0, 0.0]).first_reached("test worst", 0.5, window=2) is None


def test_windows_are_rounds_not_evaluations() -> None:
    sparse = curves([0.0, 0.2, 0.4, 0.6], every=5)
    assert sparse.evaluations_in(10) == 2
    assert sparse.running_mean("test worst", 10).tolist() == pytest.approx([0, 0.1, 0.3, 0.5])
    assert sparse.final_level("test worst", 10) == pytest.approx(0.5)
    assert sparse.first_reached("test worst", 0.3, window=10) == 15


def test_a_window_longer_than_the_run_is_the_whole_run() -> None:
    assert curves([0.2, 0.4]).final_level("test worst", 50) == pytest.approx(0.3)
    assert curves([0.2]).final_level("test worst", 50) == pytest.approx(0.2)


def test_value_at_a_round_or_step() -> None:
    run = curves([0.1, 0.2, 0.3, 0.4])
    assert run.value_at("test worst", 3, window=1) == pytest.approx(0.3)
    assert run.value_at("test worst", 25, window=1, unit="local_steps") == pytest.approx(0.2)
    assert run.value_at("test worst", 3, window=2) == pytest.approx(0.25)
    assert run.value_at("test worst", 99, window=1) == pytest.approx(0.4)


def test_interval_is_students() -> None:
    values = np.random.default_rng(0).normal(size=(5, 3))
    mean, low, high = t_interval(values)
    expected = stats.t.interval(0.95, 4, loc=values.mean(0), scale=stats.sem(values))
    np.testing.assert_allclose([low, high], expected)
    np.testing.assert_allclose(mean, values.mean(0))


def test_one_value_has_no_interval() -> None:
    mean, low, high = t_interval(np.array([3.0]))
    assert mean == 3
    assert np.isnan([low, high]).all()


def test_runs_are_sorted_by_label_and_seed() -> None:
    given = [curves([0.1], seed=1), curves([0.2], seed=0, label="two"), curves([0.3], seed=0)]
    runs = Runs.of(given)
    assert list(runs.by_label) == ["one", "two"]
    assert [c.seed for c in runs["one"]] == [0, 1]


def test_history_becomes_columns() -> None:
    figures = {"worst": 0.1, "mean": 0.2, "std": 0.3, "global": 0.4, "best": 1.0}
    record = {
        "round": 3,
        "exchanges": 6,
        "bytes_down": 40,
        "bytes_up": 2,
        "local_steps": 30,
        "seconds": 0.5,
        "test": {"accuracy": figures, "loss": {**figures, "mean": 1.5}},
        "pooled": {"auroc": 0.75},
    }
    columns = RunCurves.from_history("one", 0, [record]).columns
    assert columns["round"] == [3]
    assert columns["exchanges"] == [6]
    assert columns["bytes"] == [42]
    assert columns["test std"] == [0.3]
    assert columns["test loss mean"] == [1.5]
    assert columns["auroc"] == [0.75]
    assert not any(name.startswith("train") for name in columns)

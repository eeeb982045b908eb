"""Thresholds and net benefit, by hand, against scikit-learn's counts, and with intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from fedsaddle.metrics.calibration import ROUND, Threshold, at_threshold, decision_curve, thresholds_to_show


def made(rng, rows):
    y = rng.random(rows) < 0.2
    return np.clip(0.15 + 0.15 * y + 0.1 * rng.normal(size=rows), 0.001, 0.999), y.astype(int)


def test_figures_of_a_threshold_are_those_of_the_counts():
    p, y = made(np.random.default_rng(0), 200)
    found = at_threshold(p, y, 0.3)
    (tn, fp), (fn, tp) = confusion_matrix(y, p >= 0.3)
    assert (found.true_positives, found.false_positives) == (tp, fp)
    named = Threshold(0.3, "").figures(p, y)
    for key in ("sensitivity", "specificity", "positive_predictive_value", "negative_predictive_value"):
        assert getattr(found, key).value == pytest.approx(named[key])
        assert getattr(found, key).low < named[key] < getattr(found, key).high
    assert 100 * found.alarms.value == pytest.approx(named["alarms_per_100"])
    assert tn + fn == round(200 * (1 - found.alarms.value))


def test_a_threshold_without_alarms_has_no_predictive_value():
    found = at_threshold([0.1, 0.2], [0, 1], 0.9)
    assert found.positive_predictive_value is None
    assert found.sensitivity.value == 0
    p, y = np.linspace(0, 1, 100), np.arange(100) % 2
    few, enough = at_threshold(p, y, p[91]), at_threshold(p, y, p[90])
    assert (few.raised, few.positive_predictive_value) == (9, None)
    assert (enough.raised, enough.positive_predictive_value.value) == (10, 0.5)
    assert at_threshold(p, y, p[9]).negative_predictive_value is None


def test_the_net_benefit_by_hand():
    p, y, t = np.array([0.9, 0.6, 0.4, 0.1]), np.array([1, 0, 1, 0]), 0.5
    found = decision_curve(p, y, [t, 0.25])
    assert found.model.values == pytest.approx([1 / 4 - 1 / 4, 2 / 4 - 1 / 4 / 3])
    assert found.everybody == pytest.approx([1 / 2 - 1 / 2, 1 / 2 - 1 / 2 / 3])
    assert found.over_all.values == pytest.approx(found.model.values - found.everybody)


def test_the_same_model_twice_differs_by_nothing_and_calling_all_is_calling_everybody():
    p, y = made(np.random.default_rng(1), 300)
    found = decision_curve(p, y, [0.0005, 0.2], other=p)
    assert found.over_other.values == pytest.approx([0, 0])
    assert found.model.values[0] == pytest.approx(found.everybody[0])
    assert (found.model.high > found.model.low).all()


def test_a_good_model_beats_both_simple_ways_and_noise_does_not():
    rng = np.random.default_rng(2)
    y = (rng.random(600) < 0.2).astype(int)
    good, noise = np.where(y > 0, 0.6, 0.1), rng.random(600)
    assert decision_curve(good, y, [0.15, 0.2, 0.4]).over_both.all()
    assert not decision_curve(noise, y, [0.2, 0.4]).over_both.any()


@pytest.mark.parametrize("each", [1, 3])
def test_the_bounds_cover(each):
    rng, ts, times = np.random.default_rng(3), np.array([0.1, 0.25]), 300
    p, y = made(np.random.default_rng(4), 300_000)
    true = decision_curve(p, y, ts, other=p[::-1])
    inside, over = np.zeros(2), np.zeros(2)
    for _ in range(times):
        q, z = made(rng, 120 // each)
        q, z, units = np.repeat(q, each), np.repeat(z, each), np.repeat(np.arange(120 // each), each)
        found = decision_curve(q, z, ts, units)
        inside += (found.model.low <= true.model.values) & (true.model.values <= found.model.high)
        over += (found.over_all.low <= true.over_all.values) & (true.over_all.values <= found.over_all.high)
    assert (inside / times > 0.89).all(), inside / times
    assert (over / times > 0.89).all(), over / times


def test_thresholds_end_where_nobody_is_called():
    rare = thresholds_to_show(np.full(100, 0.02), np.arange(100) < 2)
    assert rare[0] > 0
    assert rare[-1] == pytest.approx(0.1)
    wide = thresholds_to_show(np.linspace(0, 1, 100), np.arange(100) < 50)
    assert wide[-1] == pytest.approx(0.95)
    assert len(wide) <= 100
    assert thresholds_to_show(np.full(100, 0.02), np.arange(100) < 2, 0.4)[-1] >= 0.4


def test_the_thresholds_of_the_table_ascend_and_none_comes_twice():
    assert list(ROUND) == sorted(set(ROUND))
    assert 0 < ROUND[0] < ROUND[-1] < 1
    assert np.diff([0, *ROUND, 1]).max() == pytest.approx(0.1), "steps of ten per cent at most"

"""The precision-recall curve: its points are scikit-learn's, and its band covers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import average_precision_score, precision_recall_curve

from fedsaddle.metrics.ranking import RECALLS, precision_recall, rank


def made(rng, rows, base, each=1):
    y = np.repeat(rng.random(rows // each) < base, each)
    s = 0.8 * rng.normal(size=rows) + 0.6 * np.repeat(rng.normal(size=rows // each), each) + 1.5 * y
    return s, y.astype(int), np.repeat(np.arange(rows // each), each)


@pytest.mark.parametrize("digits", [1, 8])
def test_the_precision_is_that_of_the_highest_threshold_with_that_recall(digits):
    s, y, _ = made(np.random.default_rng(0), 300, 0.3)
    s = np.round(s, digits)
    found = precision_recall(rank(s, y, [0, 100, 300], "ab"))
    precision, recall, _ = precision_recall_curve(y, s)
    for r, p in zip(found.recall, found.precision, strict=True):
        at = np.flatnonzero(recall[:-1] >= r - 1e-9)[-1]  # falling: the last is the highest threshold
        assert p == pytest.approx(precision[at])
    assert found.precision.mean() == pytest.approx(average_precision_score(y, s), abs=0.03)
    assert found.base_rate == pytest.approx(y.mean())
    assert (found.low <= found.precision).all()
    assert (found.precision <= found.high).all()


def test_one_class_has_no_curve_and_a_client_has_its_own():
    s, y, _ = made(np.random.default_rng(1), 100, 0.4)
    ranking = rank(s, np.r_[np.zeros(50, int), y[50:]], [0, 50, 100], "ab")
    assert precision_recall(ranking, 0) is None
    alone = precision_recall(rank(s[50:], y[50:], [0, 50], "b"), draws=0)
    np.testing.assert_allclose(precision_recall(ranking, 1, draws=0).precision, alone.precision)


@pytest.mark.parametrize(("rows", "base", "each"), [(100, 0.2, 1), (400, 0.1, 4)])
def test_the_band_covers_at_each_recall(rows, base, each):
    rng, at = np.random.default_rng(2), [24, 49, 79]
    cut = 1.5 + norm.ppf(1 - RECALLS[at])
    true = base * RECALLS[at] / (base * RECALLS[at] + (1 - base) * norm.sf(cut))
    inside, times = np.zeros(3), 150
    for _ in range(times):
        s, y, units = made(rng, rows, base, each)
        found = precision_recall(rank(s, y, [0, rows], "a", units=units), draws=60)
        inside += (found.low[at] <= true) & (true <= found.high[at])
    assert (inside / times > 0.88).all(), inside / times

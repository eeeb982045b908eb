"""The figures that a search aims for: scikit-learn's, and a standard error near DeLong's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from fedsaddle.errors import BadInput
from fedsaddle.studies.aims import AIMS, Rows, aim_of


def drawn(n: int = 300, seed: int = 0, ties: bool = False):
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < 0.3).astype(np.int64)
    scores = rng.normal(size=n) + labels
    offsets = np.array([0, n // 5, n // 5 + 7, n])  # the second site is too small to be the worst
    return (np.round(2 * scores) / 2 if ties else scores), Rows.of(labels, offsets)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_ranked_figures_are_scikit_learns(ties, weighted):
    scores, rows = drawn(ties=ties)
    w = rows.weights(np.random.default_rng(1)) if weighted else np.ones(len(scores))
    y = rows.labels
    expected = {
        "auroc": metrics.roc_auc_score(y, scores, sample_weight=w),
        "partial-auroc": metrics.roc_auc_score(y, scores, max_fpr=0.3, sample_weight=w),
        "average-precision": metrics.average_precision_score(y, scores, sample_weight=w),
        "accuracy": metrics.accuracy_score(y, scores > 0, sample_weight=w),
    }
    found = {name: AIMS[name].figure(scores, rows, w) for name in expected}
    assert found == pytest.approx(expected, abs=1e-12)


def test_the_worst_site_is_the_one_with_the_largest_log_loss():
    scores, rows = drawn()
    p = 1 / (1 + np.exp(-scores))
    losses = [metrics.log_loss(rows.labels[rows.site == i], p[rows.site == i], labels=[0, 1]) for i in range(3)]
    assert AIMS["worst-site"].value(scores, rows) == pytest.approx(-max(losses[0], losses[2]))
    few = Rows.of(rows.labels[:12], np.array([0, 6, 12]))  # all sites are small: then all count
    assert AIMS["worst-site"].value(scores[:12], few) < 0


def test_one_class_has_no_ranked_figure():
    rows = Rows.of(np.zeros(4, dtype=np.int64), np.array([0, 4]))
    for name in ("auroc", "partial-auroc", "average-precision"):
        assert np.isnan(AIMS[name].value(np.arange(4.0), rows))
    gap, error = AIMS["auroc"].gain(np.arange(4.0), np.ones(4), rows)
    assert np.isnan(gap)
    assert error == np.inf


def delong(ours, theirs, labels) -> float:
    """The standard error of the difference of two AUROCs of the same rows, by DeLong's placements."""
    up, down = labels > 0, labels == 0
    placements = []
    for s in (ours, theirs):
        wins = (s[up][:, None] > s[down]) + 0.5 * (s[up][:, None] == s[down])
        placements.append((wins.mean(1), wins.mean(0)))
    a, b = (placements[0][k] - placements[1][k] for k in (0, 1))
    return float(np.sqrt(a.var(ddof=1) / up.sum() + b.var(ddof=1) / down.sum()))


def test_the_error_of_a_gain_is_near_delongs():
    scores, rows = drawn(800, 3)
    other = scores + np.random.default_rng(5).normal(size=800)
    gap, error = AIMS["auroc"].gain(scores, other, rows)
    y = rows.labels
    assert gap == pytest.approx(metrics.roc_auc_score(y, scores) - metrics.roc_auc_score(y, other))
    assert error == pytest.approx(delong(scores, other, y), rel=0.2)  # 200 draws: 5 % and a little bias


def test_rows_of_one_patient_are_drawn_together():
    scores, rows = drawn(100)
    twice = Rows(np.repeat(rows.labels, 4), np.repeat(rows.site, 4), np.repeat(rows.unit, 4))
    other = scores + np.random.default_rng(5).normal(size=100)
    once = AIMS["auroc"].gain(scores, other, rows)
    assert AIMS["auroc"].gain(np.repeat(scores, 4), np.repeat(other, 4), twice) == pytest.approx(once)
    apart = Rows.of(twice.labels, np.array([0, 400]))
    assert AIMS["auroc"].gain(np.repeat(scores, 4), np.repeat(other, 4), apart)[1] < 0.7 * once[1]


@pytest.mark.parametrize("wrong", ["AUROC", "", None, 3, ["auroc"]])
def test_an_unknown_aim(wrong):
    with pytest.raises(BadInput, match=r"aim = .*choose one of auroc, average-precision"):
        aim_of(wrong)

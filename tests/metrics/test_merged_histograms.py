"""Histograms without small cells: the exact figures stay within value ± error, however sites merge their bins."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

from fedsaddle.metrics.histograms import (
    MergedHistogram,
    PooledHistogram,
    ScoreHistogram,
    merge_histograms,
    sigmoid_edges,
)
from fedsaddle.numerics.roc import ranking_measures

EDGES = sigmoid_edges(1000)


def site(chance: np.random.Generator, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    n = int(chance.integers(20, 150))
    y = (chance.random(n) < chance.uniform(0.05, 0.6)).astype(int)
    scores = chance.normal(size=n) * 3 + y * chance.uniform(0, 4)
    return np.round(scores) if ties else scores, y


@pytest.mark.parametrize("ties", [False, True], ids=["all different", "ties"])
@pytest.mark.parametrize("least", [2, 5, 20])
def test_exact_figures_are_within_the_bounds(least, ties):
    chance, seen = np.random.default_rng(least), 0
    for _ in range(40):
        drawn = [site(chance, ties) for _ in range(3)]
        counted = [(MergedHistogram.of(ScoreHistogram.of(*own, EDGES), least), own) for own in drawn]
        told = [(merged, own) for merged, own in counted if merged is not None]
        if not told:
            continue
        for merged, (_, y) in told:
            for counts in (merged.positives, merged.negatives):
                assert ((counts == 0) | (counts >= least)).all()
            assert merged.sides == (y.sum(), len(y) - y.sum())
            assert merged.ends[-1] == 1000
            assert (np.diff(merged.ends) > 0).all()
        scores, labels = (np.concatenate([own[k] for _, own in told]) for k in (0, 1))
        if len(set(labels.tolist())) < 2:
            continue
        seen += 1
        pooled = PooledHistogram(tuple(merged for merged, _ in told))
        exact = ranking_measures(torch.from_numpy(scores), torch.from_numpy(labels))
        found = {
            "auroc": (pooled.auroc(), roc_auc_score(labels, scores)),
            "partial": (pooled.partial_auroc(0.3), roc_auc_score(labels, scores, max_fpr=0.3)),
            "two-way": (pooled.two_way_partial_auroc(0.5, 0.5), exact["two_way_partial_auroc"]),
            "precision": (pooled.average_precision(), average_precision_score(labels, scores)),
        }
        for name, (estimate, value) in found.items():
            assert abs(estimate.value - value) <= estimate.error + 1e-12, name
        for merged, (own, y) in told:
            if (area := merged.auroc()) is not None:
                assert abs(area.value - roc_auc_score(y, own)) <= area.error + 1e-12
    assert seen > 20


def test_bins_that_are_not_merged_give_the_figures_of_the_sum():
    chance = np.random.default_rng(0)
    counted = [ScoreHistogram.of(*site(chance, False), EDGES) for _ in range(3)]
    pooled = PooledHistogram(tuple(MergedHistogram.of(one, 1) for one in counted))
    together = merge_histograms(counted)
    for name in ("auroc", "average_precision"):
        ours, theirs = getattr(pooled, name)(), getattr(together, name)()
        assert ours.value == pytest.approx(theirs.value, abs=1e-12)
        assert ours.error == pytest.approx(theirs.error, abs=1e-12)


def test_too_few_rows_of_a_class_tell_nothing():
    scores = np.linspace(-3, 3, 30)
    assert MergedHistogram.of(ScoreHistogram.of(scores, [1] * 4 + [0] * 26, EDGES), 5) is None
    alone = MergedHistogram.of(ScoreHistogram.of(scores, [0] * 30, EDGES), 5)
    assert alone.auroc() is None
    assert alone.sides == (0, 30)


def test_many_rows_cost_little():
    """With 2,000 rows of each class at a site, merging to cells of 5 leaves the AUROC within 0.01."""
    chance = np.random.default_rng(1)
    made = []
    for _ in range(3):
        y = np.repeat([0, 1], 2000)
        made.append(MergedHistogram.of(ScoreHistogram.of(chance.normal(size=4000) + y, y, EDGES), 5))
    assert PooledHistogram(tuple(made)).auroc().error < 0.01


def test_a_group_ends_at_a_round_number_where_it_may():
    counts = ScoreHistogram(EDGES, np.zeros(1000, dtype=np.int64), np.zeros(1000, dtype=np.int64))
    counts.positives[[3, 700]] = 6
    assert MergedHistogram.of(counts, 5).ends.tolist() == [512, 1000]

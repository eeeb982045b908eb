"""Histograms of scores: the bounds hold whatever the order inside a bin, and merging is pooling."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from fedsaddle.errors import BadInput
from fedsaddle.metrics.histograms import BoundedFigure, ScoreHistogram, merge_histograms, sigmoid_edges, uniform_edges
from fedsaddle.numerics.roc import two_way_partial_auroc

ROWS = st.lists(
    st.tuples(st.one_of(st.integers(-4, 4).map(float), st.floats(-5, 5)), st.booleans()), min_size=2, max_size=60
).filter(lambda rows: len({label for _, label in rows}) == 2)
EDGES = st.one_of(
    st.integers(2, 12).map(sigmoid_edges),
    st.integers(2, 40).map(lambda bins: uniform_edges(-4, 3, bins)),
    st.lists(st.floats(-5, 5), min_size=1, max_size=8, unique=True).map(sorted),
)


def split(rows):
    return np.array([s for s, _ in rows]), np.array([y for _, y in rows], dtype=int)


def holds(estimate, exact):
    assert estimate is not None
    assert abs(exact - estimate.value) <= estimate.error + 1e-12


@given(ROWS, EDGES, st.floats(0.01, 1), st.floats(0, 0.99))
def test_the_exact_figures_are_within_the_bounds(rows, edges, max_fpr, min_tpr):
    s, y = split(rows)
    histogram = ScoreHistogram.of(s, y, edges)
    holds(histogram.auroc(), roc_auc_score(y, s))
    holds(histogram.partial_auroc(max_fpr), roc_auc_score(y, s, max_fpr=max_fpr))
    holds(histogram.two_way_partial_auroc(max_fpr, min_tpr), two_way_partial_auroc(s, y, max_fpr, min_tpr))
    holds(histogram.average_precision(), average_precision_score(y, s))


@given(ROWS, EDGES)
def test_the_error_of_the_auroc_is_half_the_share_of_pairs_in_one_bin(rows, edges):
    s, y = split(rows)
    at = np.searchsorted(edges, s, side="right")
    together = np.mean([a == b for a in at[y == 1] for b in at[y == 0]])
    ties_in_half = roc_auc_score(y, at)
    estimate = ScoreHistogram.of(s, y, edges).auroc()
    assert estimate.error == pytest.approx(together / 2)
    assert estimate.value == pytest.approx(ties_in_half)


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=2, max_size=30, unique_by=lambda row: row[0]))
def test_exact_with_a_bin_for_each_row(rows):
    s, y = split(sorted(rows))
    edges = s[1:]  # bin k begins at the k-th score
    histogram = ScoreHistogram.of(s, y, edges)
    if len(set(y)) == 2:
        assert (histogram.auroc().value, histogram.auroc().error) == pytest.approx((roc_auc_score(y, s), 0))
        partial = histogram.partial_auroc(0.4)
        assert (partial.value, partial.error) == pytest.approx((roc_auc_score(y, s, max_fpr=0.4), 0))
    if y.any():
        found = histogram.average_precision()
        assert (found.value, found.error) == pytest.approx((average_precision_score(y, s), 0))


def test_the_bounds_are_reached():
    """Two orders inside one bin: the best and the worst give the two ends."""
    scores, edges = np.arange(6.0), [10.0]
    for labels, end in (([0, 0, 0, 1, 1, 1], 1), ([1, 1, 1, 0, 0, 0], -1)):
        histogram = ScoreHistogram.of(scores, labels, edges)
        for estimate, exact in (
            (histogram.auroc(), roc_auc_score(labels, scores)),
            (histogram.partial_auroc(0.3), roc_auc_score(labels, scores, max_fpr=0.3)),
            (histogram.two_way_partial_auroc(0.5, 0.5), two_way_partial_auroc(scores, labels, 0.5, 0.5)),
            (histogram.average_precision(), average_precision_score(labels, scores)),
        ):
            assert exact == pytest.approx(estimate.value + end * estimate.error)


@given(st.lists(ROWS, min_size=1, max_size=5), EDGES)
def test_merging_is_pooling(sites, edges):
    each = [ScoreHistogram.of(*split(rows), edges) for rows in sites]
    pooled = ScoreHistogram.of(*split([row for rows in sites for row in rows]), edges)
    both = merge_histograms(ScoreHistogram.from_dict(json.loads(json.dumps(h.to_dict()))) for h in each)
    for name in ("edges", "positives", "negatives"):
        np.testing.assert_array_equal(getattr(both, name), getattr(pooled, name))


def test_a_thousand_bins_are_close():
    rng = np.random.default_rng(0)
    y = (rng.random(20_000) < 0.05).astype(int)
    s = rng.normal(size=20_000) + 1.5 * y
    histogram = ScoreHistogram.of(s, y, sigmoid_edges(1000))
    assert histogram.auroc().error < 1e-3
    assert histogram.partial_auroc(0.3).error < 2e-3
    assert histogram.two_way_partial_auroc(0.3, 0.5).error < 5e-3
    assert histogram.average_precision().error < 0.02


def test_a_missing_class_has_no_figure():
    alone = ScoreHistogram.of([1.0, 2.0], [0, 0], [0.0])
    assert alone.sides == (0, 2)
    assert alone.auroc() is None
    assert alone.partial_auroc(0.5) is None
    assert alone.average_precision() is None
    positives = ScoreHistogram.of([1.0, 2.0], [1, 1], [0.0])
    assert positives.auroc() is None
    assert positives.average_precision() == BoundedFigure(1.0, 0.0)
    assert (alone + positives).auroc() is not None


def test_scores_on_an_edge_and_beyond_the_range():
    histogram = ScoreHistogram.of([-np.inf, 0.0, 1.0, np.inf], [0, 1, 1, 1], uniform_edges(0, 1, 2))
    assert histogram.edges.tolist() == [0.5]
    edge = ScoreHistogram.of([0.5], [1], [0.5])
    assert edge.positives.tolist() == [0, 1]
    assert (histogram.positives.tolist(), histogram.negatives.tolist()) == ([1, 2], [1, 0])


def test_equal_bins_of_the_sigmoid():
    shares = 1 / (1 + np.exp(-sigmoid_edges(4)))
    assert shares == pytest.approx([0.25, 0.5, 0.75])


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: ScoreHistogram.of([np.nan], [1], [0.0]), "scores"),
        (lambda: ScoreHistogram.of([1.0, 2.0], [1], [0.0]), "labels"),
        (lambda: ScoreHistogram.of([1.0], [1], [1.0, 1.0]), "edges"),
        (lambda: ScoreHistogram.of([1.0], [1], []), "edges"),
        (lambda: ScoreHistogram.of([1.0], [1], [0.0]) + ScoreHistogram.of([1.0], [1], [0.5]), "edges"),
        (lambda: ScoreHistogram.from_dict({"edges": [0.0], "positives": [1, 2], "negatives": [1]}), "negatives"),
        (lambda: ScoreHistogram.from_dict({"edges": [0.0], "positives": [1, -2], "negatives": [1, 1]}), "positives"),
        (lambda: ScoreHistogram.from_dict({"edges": [0.0], "positives": [1, 2.5], "negatives": [1, 1]}), "histogram"),
        (lambda: ScoreHistogram.from_dict({"edges": [0.0]}), "histogram"),
        (lambda: uniform_edges(1, 0), "low, high"),
        (lambda: sigmoid_edges(1), "bins"),
        (lambda: ScoreHistogram.of([1.0], [1], [0.0]).roc(), "positives, negatives"),
    ],
)
def test_what_cannot_be_is_named(make, key):
    with pytest.raises(BadInput, match=key):
        make()


def test_bad_edges_are_shown_by_their_first_five():
    with pytest.raises(BadInput, match=r"edges = \[6\.0, 5\.0, 4\.0, 3\.0, 2\.0\]:"):
        ScoreHistogram.of([1.0], [1], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0])


def test_labels_of_minus_one_are_negative():
    found = ScoreHistogram.of([0.2, 0.8, 0.9], [-1, 1, 0], [0.5])
    assert (found.positives.tolist(), found.negatives.tolist()) == ([0, 1], [1, 1])


def test_figures_are_values():
    with pytest.raises(FrozenInstanceError):
        BoundedFigure(0.5, 0.1).value = 1.0
    with pytest.raises(FrozenInstanceError):
        ScoreHistogram.of([0.2], [1], [0.5]).edges = np.array([0.7])

"""Exact areas under the ROC curve, against scikit-learn and against pairs counted one by one."""

from __future__ import annotations

import doctest
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.metrics import roc_curve as sklearn_curve

from fedsaddle.errors import BadInput
from fedsaddle.numerics import roc
from fedsaddle.numerics.roc import (
    auroc,
    average_precision,
    partial_auroc,
    ranking_measures,
    roc_curve,
    two_way_partial_auroc,
    under_line,
)

ROWS = st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


def split(rows):
    return np.array([s for s, _ in rows], dtype=float), np.array([y for _, y in rows], dtype=int)


@given(ROWS, st.sampled_from([0.05, 0.3, 0.5, 0.77, 1.0]))
def test_as_scikit_learn_says(rows, max_fpr):
    s, y = split(rows)
    assert partial_auroc(s, y, max_fpr) == pytest.approx(roc_auc_score(y, s, max_fpr=max_fpr), abs=1e-12)
    assert average_precision(s, y) == pytest.approx(average_precision_score(y, s), abs=1e-12)
    assert auroc(s, y) == pytest.approx(roc_auc_score(y, s), abs=1e-12)
    fpr, tpr, _ = sklearn_curve(y, s, drop_intermediate=False)
    ours = roc_curve(s, y)
    assert ours is not None
    np.testing.assert_allclose(ours, (fpr, tpr))


@given(ROWS, st.floats(0.01, 1), st.floats(0, 0.99))
def test_the_two_way_area_by_a_fine_grid(rows, max_fpr, min_tpr):
    fpr, tpr = roc_curve(*split(rows))
    middle = (np.arange(20_000) + 0.5) / 20_000 * max_fpr
    # np.interp takes the last of several points with one fpr, as the curve does from the right.
    height = np.interp(middle, fpr, tpr)
    assert under_line(fpr, tpr, max_fpr, min_tpr) == pytest.approx(
        max_fpr * np.maximum(height - min_tpr, 0).mean(), abs=3e-3
    )


def test_the_two_way_area_is_the_auroc_of_the_hardest_rows():
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(1, 1, 40), rng.normal(0, 1, 60)
    s, y = np.concatenate([positive, negative]), np.repeat([1, 0], [40, 60])
    hard = np.concatenate([np.sort(positive)[:20], np.sort(negative)[-18:]])
    by_hand = roc_auc_score(np.repeat([1, 0], [20, 18]), hard)
    assert two_way_partial_auroc(s, y, 0.3, 0.5) == pytest.approx(by_hand)


def test_a_missing_class_is_no_number():
    assert roc_curve([0.1, 0.2], [1, 1]) is None
    assert partial_auroc([0.1, 0.2], [0, 0], 0.5) is None
    assert two_way_partial_auroc([0.1, 0.2], [0, 0], 0.5, 0.5) is None
    assert average_precision([0.1, 0.2], [0, 0]) is None
    assert average_precision([], []) is None


@pytest.mark.parametrize(("max_fpr", "min_tpr", "key"), [(0, 0, "max_fpr"), (1.1, 0, "max_fpr"), (0.5, 1, "min_tpr")])
def test_rates_out_of_range_are_named(max_fpr, min_tpr, key):
    with pytest.raises(BadInput, match=key):
        under_line(np.array([0, 1.0]), np.array([0, 1.0]), max_fpr, min_tpr)


@given(ROWS)
def test_the_figures_of_a_run_are_those_of_scikit_learn_and_of_pairs(rows):
    s, y = split(rows)
    found = ranking_measures(torch.from_numpy(s), torch.from_numpy(y))
    assert found["auroc"] == pytest.approx(roc_auc_score(y, s), abs=1e-12)
    assert found["partial_auroc_30"] == pytest.approx(roc_auc_score(y, s, max_fpr=0.3), abs=1e-12)
    assert found["partial_auroc_50"] == pytest.approx(roc_auc_score(y, s, max_fpr=0.5), abs=1e-12)
    assert found["two_way_partial_auroc"] == pytest.approx(two_way_partial_auroc(s, y, 0.5, 0.5), abs=1e-12)
    assert found["average_precision"] == pytest.approx(average_precision_score(y, s), abs=1e-12)
    pairs = s[y == 1][:, None] - s[y == 0]
    assert found["auroc"] == pytest.approx(((pairs > 0) + (pairs == 0) / 2).mean(), abs=1e-12)


def test_a_missing_class_gives_no_figures():
    assert ranking_measures(torch.tensor([0.1, 0.2]), torch.tensor([1, 1])) == {}
    assert auroc([0.1, 0.2], [0, 0]) is None


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_scores_that_are_not_finite_have_no_figures(wrong):
    with pytest.raises(BadInput, match="scores = 'not finite'"):
        ranking_measures(torch.tensor([0.1, wrong, 0.2]), torch.tensor([0, 1, 1]))
    for measure in (roc_curve, auroc, average_precision):
        with pytest.raises(BadInput, match="scores = 'not finite'"):
            measure([0.1, wrong, 0.2], [0, 1, 1])


def test_scores_and_labels_must_be_as_many():
    with pytest.raises(BadInput, match=r"labels\.shape = \(3,\): give one label for each of the 2 scores"):
        auroc([0.1, 0.2], [0, 1, 1])


def test_importing_the_curves_does_not_import_scikit_learn():
    code = "import sys, fedsaddle.numerics.roc; print('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_examples_in_the_docstrings():
    assert doctest.testmod(roc).failed == 0


def test_every_score_is_a_point_of_the_curve():
    """Also those on a straight stretch."""
    fpr, tpr = roc_curve([0.9, 0.8, 0.7, 0.6, 0.5], [1, 1, 0, 0, 0])
    assert fpr.tolist() == pytest.approx([0, 0, 0, 1 / 3, 2 / 3, 1])
    assert tpr.tolist() == [0, 0.5, 1, 1, 1, 1]

"""Curves from counts hold the exact ones, and counts at thresholds are exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from stored_by_hand import stored as stored_run

from fedsaddle.metrics.histograms import ScoreHistogram, sigmoid_edges
from fedsaddle.numerics.roc import roc_curve
from fedsaddle.report.page.parts import PageTable, ThresholdSlider
from fedsaddle.report.sections import score_counts as section
from fedsaddle.report.stored_run import StoredRun

BINS = 20  # few, so that bands are wide


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    labels = (rng.random(300) < 0.3).astype(int)
    return rng.normal(labels, 1.0), labels


def stored(rows: Any, **more: Any) -> StoredRun:
    found = ScoreHistogram.of(*rows, sigmoid_edges(BINS))
    scores = {
        "part": "test",
        "edges": "sigmoid",
        "bins": BINS,
        "sides": list(found.sides),
        "pooled": {"auroc_bounds": list(found.auroc().bounds)},
        "positives": found.positives.tolist(),
        "negatives": found.negatives.tolist(),
        "sites": {"<i>a</i>": {"positives": 3, "negatives": 0}},
    }
    return stored_run(summary={"scores": scores, **more})


def test_the_band_of_the_roc_holds_the_exact_curve(rows, monkeypatch):
    drawn = []
    monkeypatch.setattr(section, "line_chart", lambda lines, x, y, **how: drawn.append(lines[0]) or "")
    assert section.score_counts(stored(rows)) is not None
    line = drawn[0]
    fpr, tpr = roc_curve(*rows)
    x, low, high = (np.asarray(v) for v in (line.x, line.low, line.high))
    for f, t in zip(fpr, tpr, strict=True):
        at = np.flatnonzero((x[:-1] <= f) & (f <= x[1:]))
        assert low[at].min() - 1e-12 <= t <= high[at + 1].max() + 1e-12
    assert (high - low).max() > 0.01


def test_counts_at_the_chosen_threshold_are_exact(rows):
    scores, labels = rows
    p = 1 / (1 + np.exp(-(2.0 * sigmoid_edges(BINS)[12] - 0.5)))
    run = stored(rows, probabilities={"slope": 2.0, "intercept": -0.5}, threshold={"probability": p, "reason": ""})
    slider = next(b for b in section.score_counts(run).blocks if isinstance(b, ThresholdSlider))
    at = list(slider.thresholds).index(slider.chosen)
    called = scores >= sigmoid_edges(BINS)[12]
    assert slider.true_positives[at] == (called & (labels == 1)).sum()
    assert slider.false_positives[at] == (called & (labels == 0)).sum()
    assert slider.true_positives[0] == slider.positives == labels.sum()
    assert list(slider.thresholds) == sorted(slider.thresholds)


def test_without_a_threshold_there_is_a_table(rows):
    blocks = section.score_counts(stored(rows)).blocks
    assert not any(isinstance(b, ThresholdSlider) for b in blocks)
    assert any(isinstance(b, PageTable) and b.heads[0] == "threshold" for b in blocks)


@pytest.mark.parametrize(
    "change", [{"bins": 3}, {"bins": "x"}, {"positives": [1]}, {"edges": 1}, {"negatives": [0] * 20}]
)
def test_counts_that_do_not_agree_are_refused(rows, change):
    scores = stored(rows).summary.scores.to_dict()
    with pytest.raises(ValidationError, match="scores"):
        stored_run(summary={"scores": {**scores, **change}})

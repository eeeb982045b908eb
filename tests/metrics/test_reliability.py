"""Calibration: slope and intercept of logistic regression, bins and Brier score of scikit-learn, and they cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logit, stdtrit
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss

from fedsaddle.errors import BadInput
from fedsaddle.metrics.calibration import FEWEST, reliability


def made(rng, rows, each=1, narrow=0.7, shift=-0.3):
    """Labels and probabilities whose log odds are `narrow` times the true ones, plus a shift."""
    odds = np.repeat(rng.normal(-1.5, 1.2, rows // each), each)
    y = np.repeat(rng.random(rows // each), each) < expit(odds)
    return expit(narrow * odds + shift), y.astype(int), np.repeat(np.arange(rows // each), each)


def test_figures_are_those_of_scikit_learn():
    p, y, _ = made(np.random.default_rng(0), 500)
    found = reliability(p, y)
    fitted = LogisticRegression(C=np.inf, tol=1e-10).fit(logit(p)[:, None], y)
    assert found.slope.value == pytest.approx(fitted.coef_[0, 0], rel=1e-4)
    large = brentq(lambda a: (expit(logit(p) + a) - y).mean(), -5, 5)
    assert found.intercept.value == pytest.approx(large, abs=1e-6)
    assert found.brier.value == pytest.approx(brier_score_loss(y, p))
    share = y.mean()
    assert found.scaled.value == pytest.approx(1 - brier_score_loss(y, p) / (share * (1 - share)))
    observed, predicted = calibration_curve(y, p, n_bins=10, strategy="quantile")
    np.testing.assert_allclose([b.observed.value for b in found.bins], observed, atol=0.03)
    np.testing.assert_allclose([b.predicted for b in found.bins], predicted, atol=0.01)
    assert found.expected == pytest.approx(p.sum())
    assert found.positives == y.sum()


@pytest.mark.parametrize("rows", [10, 25, 59, 130, 1000])
def test_bins_have_about_equal_counts_and_enough_rows(rows):
    p, y, _ = made(np.random.default_rng(rows), rows)
    bins = reliability(p, y).bins
    assert len(bins) == min(10, rows // FEWEST)
    assert sum(b.rows for b in bins) == (rows if bins else 0)
    assert all(abs(b.rows - rows / len(bins)) <= 1 for b in bins)


def test_equal_probabilities_stay_in_one_bin():
    p = np.repeat([0.1, 0.2, 0.8], [150, 40, 10])
    bins = reliability(p, np.arange(200) % 5 == 0).bins
    assert [round(b.predicted, 6) for b in bins] == [0.1, 0.2, 0.8] or len(bins) == 2
    assert sum(b.rows for b in bins) == 200


def test_what_the_rows_cannot_tell_is_none():
    one = reliability([0.2, 0.3, 0.4], [0, 0, 0])
    assert (one.slope, one.intercept, one.scaled) == (None, None, None)
    assert one.brier is not None
    apart = reliability(np.r_[np.full(20, 0.1), np.full(20, 0.9)], np.repeat([0, 1], 20))
    assert apart.slope is None  # no finite slope fits best
    alike = reliability(np.full(40, 0.3), np.arange(40) % 3 == 0)
    assert alike.slope is None
    assert alike.intercept is not None
    certain = reliability(np.r_[np.zeros(30), np.ones(30)], np.r_[np.ones(5), np.zeros(25), np.ones(30)])
    assert np.isfinite(certain.brier.value)


@pytest.mark.parametrize("p", [[0.5, 1.2], [0.5, float("nan")], [0.5]])
def test_no_probabilities_are_refused(p):
    with pytest.raises(BadInput, match="probabilities"):
        reliability(p, [0, 1])


@pytest.mark.parametrize("each", [1, 4])
def test_intervals_cover(each):
    rng, rows, times = np.random.default_rng(5), 240, 250
    p, y, _ = made(np.random.default_rng(6), 400_000)
    brier, share = brier_score_loss(y, p), y.mean()
    large = brentq(lambda a: (expit(logit(p) + a) - y).mean(), -5, 5)
    true = {"slope": 1 / 0.7, "intercept": large, "brier": brier, "scaled": 1 - brier / (share * (1 - share))}
    inside = dict.fromkeys(true, 0)
    for _ in range(times):
        found = reliability(*made(rng, rows, each))
        for name, value in true.items():
            figure = getattr(found, name)
            inside[name] += figure is not None and figure.low <= value <= figure.high
    assert all(count / times > 0.9 for count in inside.values()), inside


def test_the_scaled_score_is_as_wide_as_its_rows_move_it():
    """Each row's influence by a small change of its weight; 60 rows, of which 12 are positive."""
    p, y = np.linspace(0.02, 0.8, 60), (np.arange(60) % 5 == 0).astype(float)

    def scaled(weight):
        share = np.average(y, weights=weight)
        return 1 - np.average((p - y) ** 2, weights=weight) / (share * (1 - share))

    moves = [(scaled(1 + 1e-6 * (np.arange(60) == k)) - scaled(np.ones(60))) / 1e-6 for k in range(60)]
    half = stdtrit(11, 0.975) * np.sqrt(np.square(moves).sum() * 60 / 59)
    found = reliability(p, y).scaled
    assert found.value - found.low == pytest.approx(half, rel=1e-4)


@pytest.mark.parametrize("narrow", [1e-3, 1e-7])
def test_the_slope_of_log_odds_that_are_all_close_to_zero(narrow):
    """Log odds of a part of the width have a slope of so many times as much."""
    p, y, _ = made(np.random.default_rng(2), 400, narrow=1.0, shift=0.0)
    wide, close = reliability(p, y).slope, reliability(expit(narrow * logit(p)), y).slope
    for side in ("value", "low", "high"):
        assert narrow * getattr(close, side) == pytest.approx(getattr(wide, side), rel=1e-5)

"""Probabilities and thresholds: against a numeric minimiser, scikit-learn, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from fedsaddle.errors import BadInput
from fedsaddle.metrics.calibration import SPREAD, Platt, Threshold, calibration_figures


def drawn(n: int, share: float, seed: int = 0, scale: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = (rng.random(n) < share).astype(int)
    labels[:2] = 0, 1
    return scale * (rng.normal(size=n) + 1.3 * labels), labels


@pytest.mark.parametrize(("n", "share", "scale"), [(40, 0.5, 1.0), (400, 0.05, 30.0), (2000, 0.3, 1e-3), (60, 0.9, 1)])
def test_platt_is_the_minimum(n, share, scale):
    scores, labels = drawn(n, share, scale=scale)
    up, down = labels.sum(), (1 - labels).sum()
    target = np.where(labels > 0, (up + 1) / (up + 2), 1 / (down + 2))
    z = scores / scores.std()

    def loss(at):
        odds = at[0] * z + at[1]
        return (np.logaddexp(0, odds) - target * odds).mean()

    best = minimize(loss, [1.0, 0.0], method="BFGS", options={"gtol": 1e-10}).x
    found = Platt.fit(scores, labels)
    assert [found.slope * scores.std(), found.intercept] == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize(("n", "share", "scale"), [(40, 0.5, 1.0), (400, 0.05, 30.0), (60, 0.9, 0.1)])
def test_log_odds_are_corrected_by_the_largest_posterior_density(n, share, scale):
    scores, labels = drawn(n, share, scale=scale)
    up, down = labels.sum(), (1 - labels).sum()
    target = np.where(labels > 0, (up + 1) / (up + 2), 1 / (down + 2))
    centre = scores.mean()

    def loss(at):  # the slope, and the log odds at the mean score
        odds = at[0] * (scores - centre) + at[1]
        fit = (np.logaddexp(0, odds) - target * odds).sum()
        return fit + ((at[0] - 1) ** 2 + (at[1] - centre) ** 2) / (2 * SPREAD**2)

    best = minimize(loss, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 9999}).x
    found = Platt.fit(scores, labels, log_odds=True)
    assert [found.slope, found.slope * centre + found.intercept] == pytest.approx(best, abs=1e-4)


def test_few_positives_correct_little_and_many_correct_as_platt_does():
    def slopes(n):
        found = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            odds = rng.normal(-2, 1, n)
            labels = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
            found.append([Platt.fit(odds, labels, log_odds=known).slope for known in (True, False)])
        return np.array(found)

    few, many = slopes(80), slopes(4000)
    assert few[:, 0].std() < 0.7 * few[:, 1].std()
    assert np.abs(few[:, 0].mean() - 1) < 0.2
    assert np.abs(many[:, 0] - many[:, 1]).max() < 0.02


def test_platt_is_scikit_learns_fit_of_weighted_copies():
    """A soft target t is a row of class 1 with weight t and one of class 0 with weight 1 - t."""
    scores, labels = drawn(300, 0.2)
    up, down = labels.sum(), (1 - labels).sum()
    target = np.where(labels > 0, (up + 1) / (up + 2), 1 / (down + 2))
    both = np.concatenate([scores, scores])[:, None]
    weights = np.concatenate([target, 1 - target])
    classes = np.repeat([1, 0], len(scores))
    theirs = LogisticRegression(C=1e10, tol=1e-10, max_iter=1000).fit(both, classes, weights)
    ours = Platt.fit(scores, labels)
    assert ours.slope == pytest.approx(theirs.coef_[0, 0], rel=1e-4)
    assert ours.probability(scores) == pytest.approx(theirs.predict_proba(scores[:, None])[:, 1], abs=1e-5)
    assert np.array_equal(np.argsort(ours.probability(scores), kind="stable"), np.argsort(scores, kind="stable"))


def test_scores_that_separate_the_classes_keep_finite_odds():
    found = Platt.fit([-1e6, -5.0, 5.0, 1e6], [0, 0, 1, 1])
    assert np.isfinite([found.slope, found.intercept]).all()
    assert 0 < found.probability([-1e6])[0] < 0.5 < found.probability([1e6])[0] <= 1


@pytest.mark.parametrize("scores", [[0.1] * 10, [0.0] * 10, [1e9 + 0.1] * 10, [*[3.0] * 5, *[-3.0] * 5]])
def test_scores_that_say_nothing_or_the_contrary_give_the_base_rate(scores):
    labels = [0] * 6 + [1] * 4  # the last scores are those of the contrary
    p = Platt.fit(scores, labels).probability([*scores, 1e12])
    assert p == pytest.approx(np.full(11, np.mean([1 / 8] * 6 + [5 / 6] * 4)))


def test_one_class_and_bad_scores():
    assert Platt.fit([1.0, 2.0], [0, 0]) == Platt(1.0, 0.0)
    with pytest.raises(BadInput, match="diverged"):
        Platt.fit([1.0, np.nan], [0, 1])
    with pytest.raises(BadInput, match="one score for each of the 3"):
        Platt.fit([1.0, 2.0], [0, 1, 1])


P = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
Y = np.array([1, 0, 1, 0, 1, 0])


@pytest.mark.parametrize(
    ("wanted", "cut"), [(0.3, 0.9), (1 / 3, 0.9), (0.34, 0.7), (2 / 3, 0.7), (0.9, 0.5), (1.0, 0.5)]
)
def test_the_threshold_for_a_sensitivity(wanted, cut):
    found = Threshold.for_sensitivity(P, Y, wanted)
    assert found.probability == cut
    assert found.figures(P, Y)["sensitivity"] >= wanted
    higher = Threshold(np.nextafter(cut, 1), "")
    assert higher.figures(P, Y)["sensitivity"] < wanted


def test_what_a_threshold_says_of_itself():
    assert Threshold.for_sensitivity(P, Y, 0.925).reason == "finds 92.5% of the positives among the validation rows"
    for wrong in (0, 1.1, float("nan"), -1):
        with pytest.raises(BadInput):
            Threshold.for_sensitivity(P, Y, wrong)
    with pytest.raises(BadInput, match="no positive"):
        Threshold.for_sensitivity(P, 0 * Y, 0.5)


def test_the_best_f1_by_hand_and_by_trying_all():
    # called 1..6 of them: F1 = 2/4, 2/5, 4/6, 4/7, 6/8, 6/9
    assert Threshold.for_best_f1(P, Y).probability == 0.5
    rng = np.random.default_rng(4)
    p, y = rng.integers(0, 8, 60) / 8, rng.integers(0, 2, 60)
    found = Threshold.for_best_f1(p, y)
    assert found.figures(p, y)["f1"] == max(Threshold(cut, "").figures(p, y)["f1"] for cut in np.unique(p))
    assert Threshold.for_best_f1(p, 0 * y).probability == 0.5


def test_few_positives_get_a_stated_sensitivity():
    rng = np.random.default_rng(5)
    p, y = rng.random(200), np.arange(200) < 20
    assert Threshold.default(p, y) == Threshold.for_best_f1(p, y)
    five = np.arange(200) < 5
    found = Threshold.default(p, five)
    assert found.probability == Threshold.for_sensitivity(p, five, 0.8).probability
    assert found.reason == (
        "finds 80% of the positives among the validation rows, as 5 of them are too few to choose by the best F1"
    )
    of_patients = Threshold.default(p, y, np.arange(200) // 2)  # 20 rows of 10 patients
    assert "as 10 of them are too few" in of_patients.reason
    assert Threshold.default(p, 0 * y) == Threshold.for_best_f1(p, 0 * y)


def test_the_figures_of_a_threshold_by_hand():
    found = {
        "sensitivity": 2 / 3,
        "specificity": 2 / 3,
        "positive_predictive_value": 2 / 3,
        "negative_predictive_value": 2 / 3,
        "f1": 2 / 3,
        "alarms_per_100": 50.0,
    }
    assert Threshold(0.7, "").figures(np.tile(P, 4), np.tile(Y, 4)) == found
    few = found | {"positive_predictive_value": None, "negative_predictive_value": None}  # of 3 rows each
    assert Threshold(0.7, "").figures(P, Y) == few
    nobody = Threshold(2.0, "").figures(P, Y)
    assert nobody["positive_predictive_value"] is None
    assert (nobody["sensitivity"], nobody["specificity"], nobody["alarms_per_100"]) == (0, 1, 0)


def test_brier_score_and_log_loss():
    found = calibration_figures([0.25, 1.0], [1, 1])
    assert found == pytest.approx({"brier_score": 0.75**2 / 2, "log_loss": -np.log(0.25) / 2})
    assert np.isfinite(calibration_figures([0.0], [1])["log_loss"])


@pytest.mark.parametrize(("apart", "alike"), [(0.7e-12, True), (1.5e-12, False)])
def test_scores_that_differ_by_more_than_rounding_are_told_apart(apart, alike):
    scores = 1 + apart * np.array([-1, -1, 1, 1, -1, 1])
    found = Platt.fit(scores, [0, 0, 1, 1, 1, 0])
    assert (found.slope == 0) == alike
    low, high = found.probability([scores.min(), scores.max()])
    assert low == pytest.approx(high) if alike else high - low > 0.1

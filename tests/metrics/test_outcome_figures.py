"""Figures of outcomes other than two classes, against scikit-learn, statsmodels and literal loops."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from fedsaddle.metrics.outcomes import area_under, mean_of, of_classes, of_counts, of_numbers
from fedsaddle.metrics.survival import BaselineHazard, concordance, kaplan_meier

N = 80


def drawn(seed=0, n=N):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, 3)).round(1)  # with ties
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return rng, p, (rng.random((n, 1)) > p.cumsum(1)).sum(1).clip(0, 2)


def times(seed=0, n=N):
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=n).round(1)
    time = np.ceil(5 * rng.exponential(np.exp(-risk)))
    return rng, risk, time, (rng.random(n) < 0.7).astype(float)


def test_classes():
    _, p, y = drawn()
    found = of_classes(p, y, ("a", "b", "c"))
    assert found["macro_auroc"].value == pytest.approx(metrics.roc_auc_score(y, p, multi_class="ovr"), abs=1e-12)
    assert found["log_loss"].value == pytest.approx(metrics.log_loss(y, p), abs=1e-12)
    assert found["accuracy"].value == pytest.approx(metrics.accuracy_score(y, p.argmax(1)))
    for k, name in enumerate("abc"):
        assert found[f"auroc of {name}"].value == pytest.approx(metrics.roc_auc_score(y == k, p[:, k]), abs=1e-12)
    without = of_classes(p[y < 2], y[y < 2], ("a", "b", "c"))
    assert "macro_auroc" not in without
    assert "auroc of c" not in without


def test_numbers_and_counts():
    rng, p, _ = drawn()
    true, predicted = rng.normal(size=N), rng.normal(size=N)
    found = of_numbers(predicted, true)
    assert found["r2"].value == pytest.approx(metrics.r2_score(true, predicted), abs=1e-12)
    assert found["rmse"].value == pytest.approx(metrics.root_mean_squared_error(true, predicted), abs=1e-12)
    assert found["mae"].value == pytest.approx(metrics.mean_absolute_error(true, predicted), abs=1e-12)
    exposure = rng.uniform(0.5, 3, N)
    mean, count = exposure * p[:, 0] * 3, rng.poisson(exposure)
    own = of_counts(mean, count.astype(float), exposure)
    assert own["deviance"].value == pytest.approx(metrics.mean_poisson_deviance(count, mean), abs=1e-12)
    null = metrics.mean_poisson_deviance(count, exposure * count.sum() / exposure.sum())
    assert own["explained"].value == pytest.approx(1 - own["deviance"].value / null, abs=1e-12)
    assert own["observed_over_expected"].value == pytest.approx(count.sum() / mean.sum())


def literal_concordance(risk, time, event, stratum):
    good = known = 0.0
    for i in range(len(risk)):
        for j in range(len(risk)):
            if stratum[i] != stratum[j] or not event[i] or i == j:
                continue
            if time[i] < time[j] or (time[i] == time[j] and not event[j]):
                known += 1
                good += (risk[i] > risk[j]) + 0.5 * (risk[i] == risk[j])
    return good / known


@pytest.mark.parametrize("strata", [1, 3])
def test_concordance(strata, monkeypatch):
    rng, risk, time, event = times()
    stratum = rng.integers(0, strata, N)
    found = concordance(risk, time, event, stratum)
    assert found.value == pytest.approx(literal_concordance(risk, time, event, stratum), abs=1e-12)
    monkeypatch.setattr("fedsaddle.metrics.survival.BLOCK", 100)
    again = concordance(risk, time, event, stratum)
    assert again.value == pytest.approx(found.value, abs=1e-14)
    np.testing.assert_allclose(again.influence, found.influence, atol=1e-14)
    assert concordance(risk, time, 0 * event) is None


def test_influences_are_what_a_row_more_changes():
    """The derivative of each figure in the weight of a row, by adding copies of the row to many copies of all."""
    rng, p, y = drawn()
    _, risk, time, event = times()
    count, exposure = rng.poisson(2.0, N).astype(float), rng.uniform(1, 2, N)
    figures = {
        "classes": lambda rows: of_classes(p[rows], y[rows], ("a", "b", "c")),
        "numbers": lambda rows: of_numbers(p[rows, 0], p[rows, 1]),
        "counts": lambda rows: of_counts(p[rows, 0] * 3 * exposure[rows], count[rows], exposure[rows]),
        "times": lambda rows: {"c": concordance(risk[rows], time[rows], event[rows])},
    }
    many = np.tile(np.arange(N), 6)
    for name, of in figures.items():
        base = of(many)
        for row in (0, 7, 30):
            more = of(np.append(many, row))
            for key, figure in base.items():
                change = (more[key].value - figure.value) * (len(many) + 1) / len(many)
                assert change == pytest.approx(figure.influence[row], abs=2e-4), (name, key)


def test_kaplan_meier_is_that_of_statsmodels():
    duration = pytest.importorskip("statsmodels.duration.survfunc")
    _, _, time, event = times()
    own, theirs = kaplan_meier(time, event), duration.SurvfuncRight(time, event)
    np.testing.assert_allclose(own.time, theirs.surv_times)
    np.testing.assert_allclose(own.survival, theirs.surv_prob, atol=1e-12)
    np.testing.assert_allclose(own.at_risk, theirs.n_risk)
    k = len(own.time) // 2
    half = 1.959963984540054 * theirs.surv_prob_se[k] / (own.survival[k] * abs(np.log(own.survival[k])))
    ends = [own.survival[k] ** np.exp(side * half) for side in (1, -1)]
    np.testing.assert_allclose([own.low[k], own.high[k]], ends, atol=1e-12)
    assert own.at(-1.0) == 1.0
    assert own.at(own.time[k]) == own.survival[k]
    assert (own.until(10).at_risk >= 10).all()
    assert len(kaplan_meier(time, 0 * event).time) == 0


def test_the_baseline_is_events_over_weighted_time():
    _, risk, time, event = times(1)
    found = BaselineHazard.fit(risk, time, event, intervals=4)
    ends = [*found.times, np.inf]
    for low, high, rate in zip(ends, ends[1:], found.rates, strict=False):
        deaths = sum(e for t, e in zip(time, event, strict=True) if e and (low < t <= high or (t == low == 0)))
        spent = sum(np.exp(r) * max(min(t, high) - low, 0) for r, t in zip(risk, time, strict=True))
        assert rate == pytest.approx(deaths / spent)
    assert found.survival(np.array([0.0]), 3.0)[0] == pytest.approx(np.exp(-found.cumulative(np.array([3.0]))[0]))
    law = np.random.default_rng(0).exponential(2.0, 200_000)
    known = BaselineHazard.fit(np.zeros(len(law)), law, np.ones(len(law)))
    assert known.survival(np.zeros(1), 3.0)[0] == pytest.approx(np.exp(-1.5), abs=0.005)


def test_intervals_of_units_and_of_few():
    rng = np.random.default_rng(0)
    values = rng.exponential(size=40)
    own = mean_of(values).interval()
    kurtosis = np.mean((values - values.mean()) ** 4) / values.var() ** 2
    half = stats.t.ppf(0.975, min(39, 80 / (kurtosis - 1))) * values.std(ddof=1) / np.sqrt(40)
    assert (own.low, own.high) == pytest.approx((values.mean() - half, values.mean() + half))
    twice = mean_of(np.repeat(values, 2)).interval(np.repeat(np.arange(40), 2))
    assert (twice.low, twice.high) == pytest.approx((own.low, own.high))
    even = mean_of(np.tile([0.0, 1.0], 20)).interval()
    assert even.high - even.value == pytest.approx(stats.t.ppf(0.975, 39) * np.sqrt(0.25 / 39))
    positive = mean_of(values, "positive").interval()
    assert 0 < positive.low < positive.value < positive.high
    assert mean_of(values[:4]).interval() is None
    assert area_under(np.arange(6.0), np.arange(6) > 2).interval() is None  # 3 on a side
    right = area_under(rng.normal(size=60) + np.repeat([0, 1], 30), np.repeat([False, True], 30)).interval()
    assert 0 < right.low < right.value < right.high < 1

"""Intervals of ranking figures: the values are scikit-learn's, the variances DeLong's by hand, and they cover."""

from __future__ import annotations

import doctest
import importlib.util
import sys
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from fedsaddle import text as csv_cells
from fedsaddle.metrics import histograms, intervals, ranking
from fedsaddle.metrics.intervals import (
    FIGURES,
    area,
    bounds,
    differences,
    gap_excess,
    order,
    sample,
    variance,
    within_site_area,
)

COVERAGE = Path(__file__).parents[2] / "benchmarks" / "coverage.py"


def benchmark():
    """benchmarks/coverage.py, under a name that no installed package has."""
    spec = importlib.util.spec_from_file_location("coverage_of_intervals", COVERAGE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def made(n=200, groups=3, seed=0, digits=1):
    rng = np.random.default_rng(seed)
    y = rng.random(n) < 0.3
    return np.round(rng.normal(size=n) + y, digits), y, np.sort(rng.integers(0, groups, n))  # rounded: with ties


def one_group(s, y):
    return order(np.asarray(s, float), np.asarray(y, bool), np.zeros(len(s), int), 1)


def kernel(s, y):
    """1, 1/2 or 0 for each positive (rows) against each negative (columns)."""
    s, y = np.asarray(s, float), np.asarray(y, bool)
    return (np.sign(s[y][:, None] - s[~y]) + 1) / 2


def partial(y, s, weight):
    """The area up to a false positive rate of .3, as a share, from scikit-learn's curve with weights."""
    fpr, tpr, _ = roc_curve(y, s, sample_weight=weight, drop_intermediate=False)
    x = np.r_[fpr[fpr < 0.3], 0.3]
    return np.trapezoid(np.r_[tpr[fpr < 0.3], np.interp(0.3, fpr, tpr)], x) / 0.3


WEIGHTED = {
    "auroc": lambda y, s, w: roc_auc_score(y, s, sample_weight=w),
    "average_precision": lambda y, s, w: average_precision_score(y, s, sample_weight=w),
    "partial_auroc": partial,
}


@pytest.mark.parametrize("digits", [1, 6])
def test_values_are_those_of_scikit_learn(digits):
    s, y, group = made(digits=digits)
    rows = order(s, y, group, 3)
    found = {name: bounds(figure(rows), sample(y, group, 3)).values for name, figure in FIGURES.items()}
    for g in range(3):
        own = group == g
        assert found["auroc"][g] == pytest.approx(roc_auc_score(y[own], s[own]), abs=1e-12)
        assert found["average_precision"][g] == pytest.approx(average_precision_score(y[own], s[own]), abs=1e-12)
        assert found["partial_auroc"][g] == pytest.approx(roc_auc_score(y[own], s[own], max_fpr=0.3), abs=1e-12)


@pytest.mark.parametrize("name", FIGURES)
def test_the_influence_of_a_row_is_the_derivative_by_its_weight(name):
    s, y, _ = made(60, seed=4)
    found, tiny = FIGURES[name](one_group(s, y)), 1e-6
    assert found.influence.sum() == pytest.approx(0, abs=1e-12)
    for row in range(60):
        more, less = np.ones(60), np.ones(60)
        more[row] += tiny
        less[row] -= tiny
        slope = (WEIGHTED[name](y, s, more) - WEIGHTED[name](y, s, less)) / (2 * tiny)
        assert found.influence[row] == pytest.approx(slope, abs=1e-6)


def test_the_variance_of_the_auroc_is_delongs_by_hand():
    """Positives 3, 1 and negatives 2, 0: the positives are right about 1 and 1/2 of the negatives, and so on."""
    s, y = [3.0, 1.0, 2.0, 0.0], [1, 1, 0, 0]
    figure = area(one_group(s, y))
    assert figure.values[0] == 0.75
    # V10 = (1, .5), V01 = (.5, 1): sample variances .125 each, over 2 positives and 2 negatives
    by_hand = 0.125 / 2 + 0.125 / 2
    assert variance(figure, sample(np.array(y) > 0, np.zeros(4, int), 1))[0] == pytest.approx(by_hand)


def test_the_variance_of_the_auroc_is_delongs():
    s, y, _ = made()
    right = kernel(s, y)
    by_hand = right.mean(1).var(ddof=1) / len(right) + right.mean(0).var(ddof=1) / right.shape[1]
    assert variance(area(one_group(s, y)), sample(y, np.zeros(200, int), 1))[0] == pytest.approx(by_hand)


def test_the_variance_with_patients_is_that_of_sums_over_patients():
    """Obuchowski's: the components of a patient are added up before they are squared."""
    s, y, _ = made()
    patient = np.arange(200) // 4
    right, u = kernel(s, y), np.zeros(50)
    np.add.at(u, patient[y], (right.mean(1) - right.mean()) / len(right))
    np.add.at(u, patient[~y], (right.mean(0) - right.mean()) / right.shape[1])
    drawn = sample(y, np.zeros(200, int), 1, patient)
    assert variance(area(one_group(s, y)), drawn)[0] == pytest.approx((u**2).sum(), rel=0.05)
    alone = sample(y, np.zeros(200, int), 1, np.arange(200))
    plain = sample(y, np.zeros(200, int), 1)
    assert variance(area(one_group(s, y)), alone)[0] == variance(area(one_group(s, y)), plain)[0]


def test_within_sites_by_hand():
    s, y, site = made(60, groups=10, seed=2)
    rights = [kernel(s[site == k], y[site == k]) for k in range(10)]
    pairs, right = sum(r.size for r in rights), sum(r.sum() for r in rights)
    found = within_site_area(order(s, y, site, 10), np.zeros(10, int), 1)
    assert found.values[0] == pytest.approx(right / pairs)
    rest = [r - right / pairs for r in rights]
    squares = sum((r**2).sum() for r in rest)
    assert found.excess[0] == pytest.approx(squares / pairs**2)
    sums = sum((r.sum(1) ** 2).sum() + (r.sum(0) ** 2).sum() for r in rest)
    assert (found.influence**2).sum() == pytest.approx(sums / pairs**2)


def test_what_two_models_count_twice_by_hand():
    (s, y, site), other = made(60, groups=10, seed=2), made(60, seed=3)[0]
    a, b = (within_site_area(order(x, y, site, 10), np.zeros(10, int), 1) for x in (s, other))
    gaps = [kernel(s[site == k], y[site == k]) - kernel(other[site == k], y[site == k]) for k in range(10)]
    gap, pairs = float(a.values[0] - b.values[0]), sum(g.size for g in gaps)
    by_hand = sum(((g - gap) ** 2).sum() for g in gaps) / pairs**2
    assert gap_excess(a, b, y, site, np.zeros(10, int))[0] == pytest.approx(by_hand)


@pytest.mark.parametrize("name", FIGURES)
def test_groups_at_once_are_groups_one_by_one(name):
    s, y, group = made()
    patient = np.arange(200) // 3
    found = bounds(FIGURES[name](order(s, y, group, 3)), sample(y, group, 3, patient))
    for g in range(3):
        own = group == g
        alone = bounds(FIGURES[name](one_group(s[own], y[own])), sample(y[own], group[own] * 0, 1, patient[own]))
        assert found.of(g).to_dict()["interval"] == pytest.approx(alone.of(0).to_dict()["interval"], abs=1e-12)


@pytest.mark.parametrize("name", FIGURES)
def test_a_perfect_ranking_is_not_sure(name):
    low = []
    for m in (1, 2, 5, 20, 500):
        y = np.repeat([True, False], [m, 3 * m])
        found = bounds(FIGURES[name](one_group(y.astype(float), y)), sample(y, y * 0, 1)).of(0)
        assert found.value == found.high == pytest.approx(1)
        low.append(found.low)
    assert sorted(low) == low
    assert low[2] < 0.75
    assert 0.98 < low[-1] < 1


@pytest.mark.parametrize("name", FIGURES)
def test_more_rows_or_patients_are_narrower(name):
    def width(n, rows=1):
        s, y, _ = made(n, seed=6, digits=9)
        s, y, unit = (np.repeat(x, rows) for x in (s, y, np.arange(n)))
        found = bounds(FIGURES[name](one_group(s, y)), sample(y, unit * 0, 1, unit)).of(0)
        return found.high - found.low

    assert width(400) < 0.6 * width(100)
    assert width(400, rows=3) == pytest.approx(width(400), rel=0.05)  # copies of a patient's row tell nothing new


@pytest.mark.parametrize("name", FIGURES)
def test_differences_swap_and_vanish(name):
    (s, y, group), other = made(), made(seed=5)[0]
    ours, theirs = (FIGURES[name](order(x, y, group, 3)) for x in (s, other))
    drawn = sample(y, group, 3)
    one, back = differences(ours, theirs, drawn), differences(theirs, ours, drawn)
    assert np.allclose(one.values, -back.values)
    assert np.allclose(one.low, -back.high)
    same = differences(ours, FIGURES[name](order(3 * s + 1, y, group, 3)), drawn)
    assert (same.values == 0).all()
    assert (same.low == 0).all()
    assert (same.high == 0).all()


def test_another_order_within_a_class_is_another_model():
    """The AUROCs and their influences are equal, but of the next rows nobody knows."""
    y = np.repeat([True, False], [5, 5])
    ours, theirs = (area(one_group(s, y)) for s in (np.arange(10.0, 0, -1), [9, 10, 8, 7, 6, 5, 4, 3, 2, 1]))
    assert np.array_equal(ours.influence, theirs.influence)
    gap = differences(ours, theirs, sample(y, y * 0, 1)).of(0)
    assert gap.low < gap.value == 0 < gap.high


def test_the_paired_variance_is_delongs():
    (s, y, _), other = made(400, seed=1, digits=9), made(400, seed=5)[0]
    gap = kernel(s, y) - kernel(other, y)
    by_hand = gap.mean(1).var(ddof=1) / len(gap) + gap.mean(0).var(ddof=1) / gap.shape[1]
    least = min(gap.shape)
    found = differences(*(area(one_group(x, y)) for x in (s, other)), sample(y, y * 0, 1)).of(0)
    error = np.sqrt(by_hand + 0.5 / least**3 + 1 / gap.size**2)
    from scipy.stats import t

    assert found.high - found.value == pytest.approx(t.ppf(0.975, least - 1) * error)


@pytest.mark.parametrize(
    ("design", "auroc", "kind"),
    [
        *product([(16, 1, 2)], [0.6, 0.95], ["alike", "patients"]),
        ((16, 1, 2), 0.9, "shifted"),
        ((12, 2, 8), 0.95, "drawn"),
        ((8, 3, 20), 0.95, "alike"),
        ((4, 5, 20), 0.95, "alike"),
    ],
)
def test_intervals_cover(design, auroc, kind):
    coverage = benchmark()
    found = coverage.measured(coverage.World(*design, auroc, kind), trials=300)
    assert len(found) == (15 if min(design[1:]) >= 5 else 12)
    missed = {name: share for name, (share, _) in found.items() if share < 0.9}
    assert not missed
    if design == (16, 1, 2) and kind == "alike":
        assert found["auroc"][1] < 0.4, "an interval as wide as this covers anything"


def test_the_benchmark_measures_what_users_get():
    """Trials worked out at once have the intervals of `rank` and `difference`."""
    coverage = benchmark()
    made = coverage.World(4, 5, 20, 0.8, "patients").trials(3, np.random.default_rng(0))
    (ours, theirs, _), own = (made.figures(s) for s in made.scores), made.trial == 1
    offsets = np.searchsorted(made.site[own], np.arange(4, 9))
    one, other = (
        ranking.rank(s[own], made.positive[own], offsets, "abcd", units=made.patient[own]) for s in made.scores[:2]
    )
    for name in FIGURES:
        assert bounds(ours[name], made.sample_of(name)).of(1).low == pytest.approx(getattr(one.pooled, name).low)
        gap = differences(ours[name], theirs[name], made.sample_of(name)).of(1)
        assert gap.low == pytest.approx(getattr(ranking.difference(one, other), name).low)
    drawn = made.sample_of("within_site_auroc")
    assert bounds(ours["within_site_auroc"], drawn).of(1).low == pytest.approx(one.within_site_auroc.low)
    site = bounds(ours["site_auroc"], made.sample_of("site_auroc")).of(4)
    assert site.high == pytest.approx(one.clients[0].auroc.high)
    twice = gap_excess(
        ours["within_site_auroc"], theirs["within_site_auroc"], made.positive, made.site, made.trial_of_site
    )
    gap = differences(ours["within_site_auroc"], theirs["within_site_auroc"], drawn, twice).of(1)
    assert gap.high == pytest.approx(ranking.difference(one, other).within_site_auroc.high)


def test_a_truth_is_what_many_rows_give():
    """The worlds of the coverage benchmark know their own truth."""
    coverage = benchmark()
    for kind in ("alike", "shifted", "patients"):
        world = coverage.World(4, 2000, 5000, 0.8, kind)
        made = world.trials(1, np.random.default_rng(0))
        offsets = np.searchsorted(made.site, np.arange(5))
        found, truth = ranking.rank(made.scores[0], made.positive, offsets, list("abcd")), world.truth(0.8)
        for name in FIGURES:
            assert getattr(found.pooled, name).value == pytest.approx(truth[name], abs=0.012)
        assert found.within_site_auroc.value == pytest.approx(0.8, abs=0.012)


@pytest.mark.parametrize("module", [intervals, ranking, histograms, csv_cells])
def test_examples_in_the_docstrings(module):
    assert doctest.testmod(module, extraglobs={"np": np}, optionflags=doctest.ELLIPSIS).failed == 0


def test_formulas_are_shown_as_text():
    for text, *rest in combinations(["=1", "+x", "-x", "@x", "\tx", "\rx"], 1):
        assert csv_cells.safe_cell(text) == f"'{text}"
        assert not rest
    for text in ("North", "", "a=1", "'=1", "5-9"):
        assert csv_cells.safe_cell(text) == text

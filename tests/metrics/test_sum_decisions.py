"""Net benefit, calibration and groups from summed counts are those of the rows."""

from __future__ import annotations

import numpy as np
import pytest
from test_score_sums import added, drawn

from fedsaddle.metrics.calibration import Platt, Threshold, decision_curve, reliability
from fedsaddle.metrics.intervals import wilson_share
from fedsaddle.metrics.score_sums import BinCounts, SpreadQuestion, SquareSums, bins_of
from fedsaddle.metrics.subgroups import RowsInGroups, subgroups
from fedsaddle.metrics.sum_decisions import (
    LOWER,
    MIDDLES,
    decisions_of_sums,
    groups_of_sums,
    net_benefit,
    platt_of_counts,
    reliability_of_sums,
    threshold_of_counts,
)
from fedsaddle.metrics.sum_figures import SummedScores

PLATT = Platt(0.9, -0.1)


def alone(scores, y, least=1) -> SummedScores:
    return SummedScores((BinCounts.of(scores, y).histogram(),), least)


@pytest.mark.parametrize("least", [1, 5])
def test_net_benefit_is_that_of_the_rows(least):
    (scores, _), y, _, _ = drawn(1, 60)
    found = alone(scores, y, least)
    shown = found.shown((100, 200))
    curve = decisions_of_sums(found, shown, PLATT)
    floor = PLATT.probability(LOWER[bins_of(scores)])  # of the row's bin: called at the bin's lower edge
    exact = decision_curve(floor, y, curve.thresholds)
    assert len(curve.thresholds) > 5
    for name in ("model", "over_all"):
        ours, theirs = getattr(curve, name), getattr(exact, name)
        for side in ("values", "low", "high"):
            assert getattr(ours, side) == pytest.approx(getattr(theirs, side), abs=1e-10)
    assert curve.everybody == pytest.approx(exact.everybody, abs=1e-12)


def test_net_benefit_has_the_intervals_of_patients_where_sites_were_asked():
    scores, y, units, site = drawn(2, 80, per_patient=4.0)
    found = added(scores, y, units, site, least=1)
    shown = found.shown((100, 200, 500))
    curve = decisions_of_sums(found, shown, PLATT)
    assert curve.thresholds == pytest.approx(PLATT.probability(LOWER[[100, 200, 500]]), abs=1e-12)
    floor = PLATT.probability(LOWER[bins_of(scores[0])])
    exact = decision_curve(floor, y, curve.thresholds, units)
    for name in ("model", "over_all"):
        ours, theirs = getattr(curve, name), getattr(exact, name)
        assert ours.values == pytest.approx(theirs.values, abs=1e-12)
        assert (ours.low <= theirs.low + 1e-12).all(), "effective patients are fewer than patients"
        assert ours.low == pytest.approx(theirs.low, abs=2e-3)
    one = net_benefit(alone(scores[0], y), shown, 200, float(curve.thresholds[1]))
    assert curve.model.low[1] < one.model.low, "alike rows of a patient tell less"
    assert net_benefit(found, shown, 0, 0.0) is None


def test_nothing_is_decided_without_both_classes_or_an_order():
    scores = np.linspace(-2, 2, 40)
    one = alone(scores, np.zeros(40))
    assert decisions_of_sums(one, one.shown(), PLATT) is None
    both = alone(scores, np.arange(40) % 2)
    assert decisions_of_sums(both, both.shown(), Platt(0.0, -1.0)) is None


def test_calibration_is_that_of_the_middles_of_bins():
    (scores, _), y, _, _ = drawn(3, 90)
    found = alone(scores, y, 5)
    shown = found.shown((200,))
    ours, exact = reliability_of_sums(found, shown, PLATT), reliability(PLATT.probability(MIDDLES[bins_of(scores)]), y)
    for name in ("intercept", "slope", "brier", "scaled"):
        a, b = getattr(ours, name), getattr(exact, name)
        assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high), abs=1e-8)
    assert (ours.rows, ours.positives) == (len(y), 90)
    assert ours.expected == pytest.approx(exact.expected, abs=1e-8)
    assert sum(one.rows for one in ours.bins) == len(y)
    assert sum(one.positives for one in ours.bins) == 90
    assert all(one.positives == 0 or one.positives >= 5 for one in ours.bins)
    assert sum(one.predicted * one.rows for one in ours.bins) == pytest.approx(ours.expected, abs=1e-8)
    assert all(one.observed == wilson_share(one.positives, one.rows) for one in ours.bins)
    scores2, y, units, site = drawn(3, 90)
    patients = added(scores2, y, units, site, least=5)
    assert reliability_of_sums(patients, patients.shown(), PLATT).slope is None


def grouped(seed: int, cut_group: int = 0):
    """Rows in three groups; patients lie in one group each."""
    (scores, _), y, units, _ = drawn(seed, 90)
    group = (units * 7) % 3
    if cut_group:  # the third group has few positives
        group[(group == 2) & (y == 1) & (np.cumsum((group == 2) & (y == 1)) > cut_group)] = 0
    whole = alone(scores, y, 5)
    asked = {}
    for k, name in enumerate(("a", "b", "c")):
        own = group == k
        counts = BinCounts.of(scores, y, [own]).histogram(1)
        question = SpreadQuestion.of([counts], [[200]], 5) if min(counts.sides) >= 5 else None
        spread = None if question is None else SquareSums.of(question, [scores[own]], y[own], units[own])
        asked[name] = SummedScores((counts,), 5, question, spread)
    return scores, y, units, group, whole, asked


def test_groups_have_the_figures_of_their_patients():
    scores, y, units, group, whole, asked = grouped(4)
    ours = groups_of_sums(whole, asked, 200)
    exact = subgroups(
        RowsInGroups(scores, y == 1, group, ("a", "b", "c"), 1 / (1 + np.exp(-scores)), 0.2, units)
    ).groups
    for one, other in zip(ours, exact, strict=True):
        assert (one.name, one.positives, one.negatives) == (other.name, other.positives, other.negatives)
        assert (one.auroc.low, one.auroc.high) == pytest.approx((other.auroc.low, other.auroc.high), abs=0.006)
        for name in ("sensitivity", "specificity", "alarms"):
            a, b = getattr(one, name), getattr(other, name)
            assert (a.value, a.low, a.high) == pytest.approx((b.value, b.low, b.high), abs=1e-9)


def test_a_group_with_a_small_count_is_not_told_by_the_others():
    *_, whole, asked = grouped(4, cut_group=3)
    assert asked["c"].sides[0] == 3
    ours = {one.name: one for one in groups_of_sums(whole, asked, 200)}
    assert (ours["c"].positives, ours["c"].auroc) == (0, None)
    left_out = [name for name, one in ours.items() if one.auroc is None]
    assert len(left_out) == 2
    assert "c" in left_out


def test_groups_do_not_tell_the_few_rows_outside_of_them():
    *_, whole, asked = grouped(4)
    scores, y, _, group, *_ = grouped(4)
    few = np.flatnonzero((group == 2) & (y == 1))[:2]  # two positives in no group
    own = (group == 2) & ~np.isin(np.arange(len(y)), few)
    asked["c"] = SummedScores((BinCounts.of(scores, y, [own]).histogram(1),), 5)
    left_out = [one.name for one in groups_of_sums(whole, asked) if one.auroc is None]
    assert len(left_out) == 1


def test_tables_of_groups_are_left_out_where_the_rest_has_a_small_cell():
    *_, whole, asked = grouped(4)
    high = int(bins_of(np.sort(grouped(4)[0])[-2:-1])[0])  # above it are two rows
    ours = groups_of_sums(whole, asked, high)
    assert all(one.sensitivity is None for one in ours)
    assert all(one.auroc is not None for one in ours)


def test_probabilities_and_threshold_are_those_of_the_middles_and_lower_edges():
    (scores, _), y, _, _ = drawn(6, 50)
    counts, bins = BinCounts.of(scores, y).histogram(), bins_of(scores)
    platt = platt_of_counts(counts, log_odds=True)
    exact = Platt.fit(MIDDLES[bins], y, log_odds=True)
    assert (platt.slope, platt.intercept) == pytest.approx((exact.slope, exact.intercept), abs=1e-8)
    p = platt.probability(LOWER[bins])
    cut, found = threshold_of_counts(counts, platt)
    assert found.probability == pytest.approx(Threshold.default(p, y).probability, abs=1e-12)
    assert ((bins >= cut) == (p >= found.probability - 1e-12)).all()
    cut, found = threshold_of_counts(counts, platt, 0.9)
    assert (bins[y == 1] >= cut).mean() >= 0.9

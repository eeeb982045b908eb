"""Figures of groups: those of each group's rows alone, and gaps that do not pretend."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from fedsaddle.metrics.calibration import Threshold
from fedsaddle.metrics.subgroups import RowsInGroups, subgroups, worst


def made(rng, sizes, signal, base=0.3):
    group = np.repeat(np.arange(len(sizes)), sizes)
    y = rng.random(len(group)) < base
    s = rng.normal(size=len(group)) + np.asarray(signal)[group] * y
    return RowsInGroups(s, y, group, [f"g{k}" for k in range(len(sizes))], 1 / (1 + np.exp(-(s - 1))), 0.4)


def test_figures_are_those_of_the_groups_rows():
    rows = made(np.random.default_rng(0), (60, 90, 150), (1, 1, 2))
    found = subgroups(rows)
    for k, group in enumerate(found.groups):
        own = rows.group == k
        y, p = rows.positive[own], rows.probabilities[own]
        named = Threshold(0.4, "").figures(p, y)
        assert (group.positives, group.negatives) == (y.sum(), (~y).sum())
        assert group.auroc.value == pytest.approx(roc_auc_score(y, rows.scores[own]))
        for key in ("sensitivity", "specificity", "positive_predictive_value"):
            assert getattr(group, key).value == pytest.approx(named[key])
        assert 100 * group.alarms.value == pytest.approx(named["alarms_per_100"])
        assert group.observed_minus_predicted.value == pytest.approx(y.mean() - p.mean())
    values = [group.sensitivity.value for group in found.groups]
    assert found.gaps["sensitivity"].value == pytest.approx(max(values) - min(values))


def test_a_group_with_few_of_a_class_is_not_ranked_or_compared():
    rows = made(np.random.default_rng(1), (100, 100, 40), (1, 1, 1))
    few = replace(rows, positive=rows.positive & (rows.group < 2))
    found = subgroups(few)
    assert found.groups[2].few
    assert found.groups[2].auroc is None
    assert found.groups[2].sensitivity is None
    assert found.groups[2].specificity is not None
    values = [group.specificity.value for group in found.groups[:2]]
    assert found.gaps["specificity"].value == pytest.approx(abs(values[0] - values[1]))
    assert found.worst.ranked == 2
    assert found.worst.groups == 3


def test_without_probabilities_or_a_threshold_there_is_the_ranking_only():
    rows = made(np.random.default_rng(2), (80, 80), (1, 1))
    bare = subgroups(replace(rows, probabilities=None))
    assert set(bare.gaps) == {"auroc"}
    assert set(subgroups(replace(rows, threshold=None)).gaps) == {"auroc", "observed_minus_predicted"}


def test_the_worst_of_equal_groups_is_seldom_called_worse_and_a_bad_one_is():
    rng, alarms, times = np.random.default_rng(3), 0, 150
    for _ in range(times):
        alarms += worst(made(rng, [60] * 8, [1.2] * 8)).distinguishable
    assert alarms / times < 0.06
    found = worst(made(rng, [200] * 4, [2, 2, 2, 0]))
    assert found.name == "g3"
    assert found.distinguishable
    assert found.gap.value == pytest.approx(found.auroc.value - found.others.value)


@pytest.mark.parametrize(("count", "apart"), [(8, 0.0), (20, 0.0), (20, 0.4)])
def test_the_interval_of_the_worst_of_many_covers_its_true_auroc(count, apart):
    rng, times, covered = np.random.default_rng(7), 150, 0
    signal = 1.0 + apart * np.linspace(-1, 1, count)
    truth = norm.cdf(signal / np.sqrt(2))
    for _ in range(times):
        found = worst(made(rng, [60] * count, signal))
        covered += found.auroc.low <= truth[int(found.name[1:])] <= found.auroc.high
    assert covered / times >= 0.92
    rows = made(rng, [60] * count, signal)
    own, more = {g.name: g.auroc for g in subgroups(rows).groups}, worst(rows, looks=2 * count)
    assert more.auroc.low == own[more.name].low
    assert own[more.name].high < worst(rows).auroc.high < more.auroc.high


def test_within_sites_the_others_are_compared_among_themselves():
    rng = np.random.default_rng(4)
    rows = made(rng, [100, 100, 100], [1, 2, 2])
    shifted = replace(rows, scores=rows.scores + 10 * (rows.group == 1))  # another scale at one site
    own = [roc_auc_score(rows.positive[rows.group == k], rows.scores[rows.group == k]) for k in (1, 2)]
    found = worst(shifted, within=True)
    assert found.name == "g0"
    assert min(own) <= found.others.value <= max(own)
    assert worst(shifted).others.value < min(own)


def test_more_looks_make_the_gap_wider_and_one_group_has_no_worst():
    rows = made(np.random.default_rng(5), [80, 80], [1, 2])
    assert worst(rows, looks=20).gap.low < worst(rows).gap.low
    assert worst(replace(rows, group=np.zeros(160, int), names=["a"])) is None


def test_patients_with_several_rows_widen_the_intervals():
    rows = made(np.random.default_rng(6), [60, 60], [1, 1])
    thrice = RowsInGroups(
        *(np.repeat(side, 3) for side in (rows.scores, rows.positive, rows.group)), rows.names,
        np.repeat(rows.probabilities, 3), 0.4,
    )  # fmt: skip
    known = subgroups(replace(thrice, units=np.repeat(np.arange(120), 3)))
    for name in ("auroc", "sensitivity", "alarms", "observed_minus_predicted"):
        wide, narrow = getattr(known.groups[0], name), getattr(subgroups(thrice).groups[0], name)
        assert wide.high - wide.low > 1.3 * (narrow.high - narrow.low)

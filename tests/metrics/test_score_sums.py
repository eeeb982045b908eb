"""Answers of sites add up to the figures of all rows: values, and paired intervals in which patients are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from fedsaddle.errors import BadInput
from fedsaddle.federation.records import Visibility, visibility
from fedsaddle.metrics.calibration import at_threshold
from fedsaddle.metrics.histograms import MergedHistogram, ScoreHistogram
from fedsaddle.metrics.own_figures import OwnFigures
from fedsaddle.metrics.ranking import difference, rank
from fedsaddle.metrics.score_sums import BINS, EDGES, BinCounts, SpreadQuestion, SquareSums, bins_of, smoothed
from fedsaddle.metrics.sum_figures import AtCut, SummedScores

NAMED = ("auroc", "average_precision", "partial_auroc")
CUTS = (100, 200, 500)


def drawn(seed: int, positives: int, per_patient: float = 2.0):
    """Scores of two models, labels, patients with alike scores, and four sites that share no patient."""
    chance = np.random.default_rng(seed)
    y = np.repeat([1, 0], [positives, round(positives * 11.5)])
    units = chance.integers(round(len(y) / per_patient), size=len(y))
    alike = chance.normal(size=units.max() + 1)[units]
    first = 0.7 * chance.normal(size=len(y)) + 0.7 * alike + 1.2 * y - 3
    second = 0.9 * first + 0.3 * chance.normal(size=len(y))
    return (first, second), y, units, units % 4


def added(scores, y, units, site, least: int, models: int = 2) -> SummedScores:
    """What a server has after both questions."""
    counts = [
        sum((BinCounts.of(s[site == k], y[site == k]) for k in range(1, 4)), BinCounts.of(s[site == 0], y[site == 0]))
        for s in scores[:models]
    ]
    histograms = tuple(one.histogram() for one in counts)
    asked = SpreadQuestion.of(histograms, [CUTS] * models, least)
    answers = [
        SquareSums.of(asked, [s[site == k] for s in scores[:models]], y[site == k], units[site == k]) for k in range(4)
    ]
    return SummedScores(histograms, least, asked, answers[0] + answers[1] + answers[2] + answers[3])


def binned(scores: np.ndarray) -> np.ndarray:
    """The scores as the counts have them: rows of one bin are ties."""
    return bins_of(scores).astype(np.float64)


@pytest.mark.parametrize("seed", range(3))
def test_sums_over_sites_are_the_figures_and_paired_intervals_of_all_rows(seed):
    scores, y, units, site = drawn(seed, 40)
    found = added(scores, y, units, site, least=1)
    ours, theirs = (rank(binned(s), y, [0, len(y)], ["all"], units=units) for s in scores)
    gap = difference(ours, theirs)
    for model, ranked in enumerate((ours, theirs)):
        figures = found.figures(model)
        for name in NAMED:
            exact = getattr(ranked.pooled, name)
            assert figures[name].value == pytest.approx(exact.value, abs=1e-10)
            assert figures[name].interval == pytest.approx((exact.low, exact.high), abs=1e-10)
    for name, one in found.differences().items():
        exact = getattr(gap, name)
        assert [one.value, one.low, one.high] == pytest.approx([exact.value, exact.low, exact.high], abs=1e-10)
    assert set(found.differences()) == set(NAMED)


@pytest.mark.parametrize("positives", [12, 80])
def test_sums_of_pairs_are_the_mean_auroc_within_sites(positives):
    scores, y, units, site = drawn(positives, positives)
    by_site = np.argsort(site, kind="stable")
    scores, y, units, site = [s[by_site] for s in scores], y[by_site], units[by_site], site[by_site]
    found, ends = added(scores, y, units, site, least=1), np.searchsorted(site, range(5))
    ours, theirs = (rank(s, y, ends, list("abcd"), units=units) for s in scores)
    for model, exact in enumerate((ours.within_site_auroc, theirs.within_site_auroc)):
        one = found.within_sites.interval(model)
        assert (one.value, one.low, one.high) == pytest.approx((exact.value, exact.low, exact.high), abs=1e-10)
    one, exact = found.within_sites.difference(), difference(ours, theirs).within_site_auroc
    assert (one.value, one.low, one.high) == pytest.approx((exact.value, exact.low, exact.high), abs=1e-10)
    alone = added(scores, y, units, site, least=1, models=1).within_sites
    assert alone.difference() is None
    assert alone.interval() == found.within_sites.interval(0)


def test_squares_are_those_of_the_literal_delong_sums():
    """The influence of a positive is the mean over negatives of whether it is above, less the AUROC, over positives."""
    scores, y, units, site = drawn(5, 12)
    found = added(scores, y, units, site, least=1)
    s = binned(scores[0])
    above = (s[y == 1][:, None] > s[y == 0]) + 0.5 * (s[y == 1][:, None] == s[y == 0])
    area = above.mean()
    influence = np.zeros(len(y))
    influence[y == 1] = (above.mean(1) - area) / (y == 1).sum()
    influence[y == 0] = (above.mean(0) - area) / (y == 0).sum()
    literal = np.zeros((2, 2))
    for unit in np.unique(units):
        own = units == unit
        w = np.array([influence[own & (y == 1)].sum(), influence[own & (y == 0)].sum()])
        literal += np.outer(w, w)
    squares = found.spread.squares[0, 0].numpy()[2:4, 2:4] / found.asked.scale
    assert squares == pytest.approx(literal, abs=1e-12)


@pytest.mark.parametrize("positives", [160, 600])
def test_small_cells_that_are_merged_on_the_way_move_no_end_by_half_a_point(positives):
    scores, y, units, site = drawn(7, positives)
    found = added(scores, y, units, site, least=5)
    ours, theirs = (rank(s, y, [0, len(y)], ["all"], units=units) for s in scores)
    gap, figures = difference(ours, theirs), found.figures()
    for name in NAMED:
        exact = getattr(ours.pooled, name)
        assert figures[name].interval == pytest.approx((exact.low, exact.high), abs=0.005)
        both, exact = found.differences()[name], getattr(gap, name)
        assert (both.low, both.high) == pytest.approx((exact.low, exact.high), abs=0.005)


def test_thresholds_have_the_intervals_of_patients():
    scores, y, units, site = drawn(3, 60)
    found = added(scores, y, units, site, least=1)
    shown = found.shown(CUTS)
    for one in found.at_cuts(CUTS, shown):
        exact = at_threshold(binned(scores[0]), y, one.cut, units)
        assert one.exact
        names = ("sensitivity", "specificity", "positive_predictive_value", "negative_predictive_value", "alarms")
        for name in names:
            ours, theirs = getattr(one, name), getattr(exact, name)
            if theirs is not None:
                assert [ours.value, *ours.interval] == pytest.approx([theirs.value, theirs.low, theirs.high], abs=1e-10)


def test_rows_are_their_own_patients_where_sites_were_not_asked():
    scores, y, _, _ = drawn(4, 30)
    found = SummedScores((BinCounts.of(scores[0], y).histogram(),))
    exact = rank(binned(scores[0]), y, [0, len(y)], ["all"]).pooled
    for name, one in found.figures().items():
        interval = getattr(exact, name)
        assert one.interval == pytest.approx((interval.low, interval.high), abs=1e-10)
    assert found.differences() == {}


def test_the_same_model_twice_has_no_difference():
    scores, y, units, site = drawn(4, 30)
    same = added((scores[0], scores[0]), y, units, site, least=1).differences()
    assert {(one.value, one.low, one.high) for one in same.values()} == {(0.0, 0.0, 0.0)}


@pytest.mark.parametrize("seed", range(20))
def test_shown_counts_are_none_or_enough_and_hold_the_exact_ones(seed):
    chance = np.random.default_rng(seed)
    y = np.repeat([1, 0], [int(chance.integers(5, 60)), 400])
    s = chance.normal(size=len(y)) + y - 2
    counts, cuts = ScoreHistogram.of(s, y, EDGES), chance.permutation(BINS)[:6].tolist()
    shown = MergedHistogram.with_cuts(counts, 5, cuts)
    for side in (shown.positives, shown.negatives):
        assert ((side == 0) | (side >= 5)).all()
    assert shown.sides == counts.sides
    exact_rows = SummedScores((counts,), 5).at_cuts(cuts, shown)
    for one in exact_rows:
        called = bins_of(s) >= one.cut
        tp, fp = (called & (y == 1)).sum(), (called & (y == 0)).sum()
        assert one.true_positives[0] <= tp <= one.true_positives[1]
        assert one.false_positives[0] <= fp <= one.false_positives[1]
        for figure, value in ((one.sensitivity, tp / y.sum()), (one.alarms, called.mean())):
            assert figure.bounds[0] - 1e-12 <= value <= figure.bounds[1] + 1e-12
            assert (figure.interval is None) == (figure.value is None)
    first = MergedHistogram.with_cuts(counts, 5, cuts[:1]).above_cut(cuts[0])
    parts = [n for side in (counts.positives, counts.negatives) for n in (side[: cuts[0]].sum(), side[cuts[0] :].sum())]
    if all(n == 0 or n >= 5 for n in parts):
        assert first[0][0] == first[0][1] == parts[1], "the first cut is exact where no cell is small"
    assert MergedHistogram.with_cuts(counts, int(y.sum()) + 1, cuts) is None


def test_rows_between_two_shown_counts_are_enough():
    """Totals above thresholds may not be subtracted to a small number either."""
    chance = np.random.default_rng(1)
    y = np.repeat([1, 0], [30, 300])
    s = chance.normal(size=330) + y - 2
    counts, cuts = ScoreHistogram.of(s, y, EDGES), [40, 80, 120, 121, 122, 160, 300]
    found = SummedScores((counts,), 5)
    shown = found.shown(cuts)
    known = {0: 330, BINS: 0}
    for one in found.at_cuts(cuts, shown):
        low, high = one.alarms.bounds
        if low == high:
            known[one.cut] = round(330 * low)
    for end, tp, fp in zip(shown.ends, shown.positives.cumsum(), shown.negatives.cumsum(), strict=True):
        known[int(end)] = 330 - int(tp + fp)
    steps = -np.diff([known[cut] for cut in sorted(known)])
    assert ((steps == 0) | (steps >= 5)).all()
    assert len(known) > len(shown.ends) + 1


def test_smoothed_counts_have_the_same_sum_and_no_small_cell_stands_out():
    counts = np.bincount(np.random.default_rng(0).integers(0, 300, size=41), minlength=BINS)
    even = smoothed(counts, 5)
    assert even.sum() == pytest.approx(41)
    assert even.max() < 5
    assert smoothed(counts, 1).tolist() == counts.tolist()
    with pytest.raises(BadInput, match="are fewer than minimum_cell = 5"):
        smoothed(np.eye(1, BINS, dtype=np.int64)[0] * 3, 5)


def test_own_figures_are_exact_or_none():
    (scores, _), y, units, _ = drawn(2, 25)
    own = OwnFigures.of(scores, y, 5, CUTS, units)
    exact = rank(scores, y, [0, len(y)], ["own"], units=units).clients[0].auroc
    assert (own.positives, own.negatives, own.auroc) == (25, len(y) - 25, exact)
    told = [one for one in zip(CUTS, own.alarms, strict=True) if one[1] is not None]
    assert told
    for cut, both in told:
        called = bins_of(scores) >= cut
        assert both == ((called & (y == 1)).sum(), (called & (y == 0)).sum())
    assert {visibility(OwnFigures)[name] for name in visibility(OwnFigures)} == {Visibility.PER_CLIENT}
    few = OwnFigures.of(scores[:29], np.repeat([1, 0], [3, 26]), 5, CUTS)
    assert (few.positives, few.negatives, few.auroc, few.alarms) == (None, None, None, (None,) * 3), (
        "the number of rows is known"
    )
    assert few.has_both == (True, True)
    none = OwnFigures.of(scores[:9], np.zeros(9), 5, CUTS)
    assert (none.positives, none.negatives, none.auroc) == (0, 9, None)
    assert none.has_both == (False, True)


def test_answers_to_different_questions_do_not_add_up():
    empty = BinCounts.empty()
    assert (empty + empty).histogram().sides == (0, 0)
    with pytest.raises(BadInput, match="add answers to one and the same question"):
        empty + BinCounts.empty(groups=2)
    assert set(visibility(BinCounts).values()) == set(visibility(SquareSums).values()) == {Visibility.AVERAGED}


def test_groups_are_counted_beside_all_rows():
    scores, y = np.linspace(-2, 2, 8), np.array([0, 1] * 4)
    found = BinCounts.of(scores, y, [scores > 0])
    assert found.histogram().sides == (4, 4)
    assert found.histogram(1).sides == (2, 2)


def test_an_empty_threshold_has_no_share():
    counts = ScoreHistogram.of([0.1, 0.2], [0, 0], EDGES)
    one = AtCut.of(500, MergedHistogram.with_cuts(counts, 1, [500]))
    assert one.sensitivity is None
    assert one.specificity.value == 0.0

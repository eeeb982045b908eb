"""Decisions from summed score counts: net benefit, calibration, and figures of agreed groups, without a small count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsaddle.array_types import Floats, Ints
from fedsaddle.metrics.calibration import BINS as TENTHS
from fedsaddle.metrics.calibration import FEW_ALARMS, Bin, DecisionCurve, Platt, Reliability, Threshold, reliability
from fedsaddle.metrics.histograms import MergedHistogram, ScoreHistogram
from fedsaddle.metrics.intervals import LEVEL, Interval, Intervals, stdtrit, wilson_share
from fedsaddle.metrics.ranking import FEW
from fedsaddle.metrics.score_sums import BINS, EDGES
from fedsaddle.metrics.subgroups import GroupFigures
from fedsaddle.metrics.sum_figures import SumFigure, SummedScores, row_moments

MIDDLES = np.log((np.arange(BINS) + 0.5) / BINS) - np.log1p(-(np.arange(BINS) + 0.5) / BINS)  # scores of bins
LOWER = np.concatenate([[-1e6], EDGES])
HIGHEST = 0.95  # threshold of a decision curve
MOST_ROWS = 1 << 22  # to which calibration is fitted


def counted_rows(counts: ScoreHistogram) -> tuple[Ints, Ints]:
    """The bin and the label of each counted row; of very many rows an even part.

    Args:
        counts: Of the rows.
    """
    fewer = max(1, sum(counts.sides) // MOST_ROWS)  # the sites' word for their rows costs no memory
    up, down = counts.positives // fewer, counts.negatives // fewer
    bins = np.concatenate([np.repeat(np.arange(BINS), up), np.repeat(np.arange(BINS), down)])
    return bins, np.repeat([1, 0], [int(up.sum()), int(down.sum())])


def platt_of_counts(counts: ScoreHistogram, *, log_odds: bool = False, shift: float = 0.0) -> Platt:
    """From scores to probabilities; in a bin its middle stands for the rows.

    Args:
        counts: Of validation rows.
        log_odds: Whether scores are log odds already, as in `Platt.fit`.
        shift: What was subtracted from the scores before they were counted.
    """
    bins, labels = counted_rows(counts)
    return Platt.fit(MIDDLES[bins] + shift, labels, log_odds=log_odds)


def threshold_of_counts(
    counts: ScoreHistogram, platt: Platt, sensitivity: float | None = None
) -> tuple[int, Threshold]:
    """The first bin of those called positive, and the probability where it begins.

    Args:
        counts: Of validation rows.
        platt: From scores to probabilities.
        sensitivity: The share of positives to find; None: the default rule.
    """
    bins, labels = counted_rows(counts)
    p = platt.probability(LOWER)
    found = Threshold.default(p[bins], labels)
    if sensitivity is not None:
        found = Threshold.for_sensitivity(p[bins], labels, sensitivity)
    cut = int(np.searchsorted(p, found.probability - 1e-15, side="left"))
    return min(max(cut, 1), BINS - 1), found


def decisions_of_sums(
    scores: SummedScores, shown: MergedHistogram, platt: Platt, model: int = 0
) -> DecisionCurve | None:
    """The net benefit at thresholds above which counts are shown; None without both classes.

    Where rows of one patient belong together, only thresholds that the sites were asked about have intervals: no others
    are there.

    Args:
        scores: The sums; at the cuts that the sites were asked about, intervals are those of patients.
        shown: The counts that are shown, from `scores.shown`.
        platt: From scores to probabilities.
        model: Which of the models.
    """
    cuts = shown.first[1:].tolist()
    if scores.asked is not None and scores.spread is not None:
        cuts = sorted({*cuts} & {*scores.asked.cuts[model].tolist()})
    chances = platt.probability(LOWER[cuts]) if cuts else np.zeros(0)
    points = [
        (float(t), net_benefit(scores, shown, cut, float(t), model)) for cut, t in zip(cuts, chances, strict=True)
    ]
    known = [(t, one) for t, one in points if one is not None and t < HIGHEST]
    if not known or platt.slope <= 0:
        return None

    def line(key: str) -> Intervals:
        found = [getattr(one, key) for _, one in known]
        return Intervals(*(np.array([getattr(each, side) for each in found]) for side in ("value", "low", "high")))

    return DecisionCurve(
        np.array([t for t, _ in known]), line("model"), np.array([one.everybody for _, one in known]), line("over_all")
    )


@dataclass(frozen=True)
class NetBenefit:
    """The net benefit at one threshold, as shares of all rows.

    Args:
        model: Of calling rows positive by the model.
        over_all: The difference to calling everybody positive.
        everybody: Of calling everybody positive.
    """

    model: Interval
    over_all: Interval
    everybody: float


def net_benefit(
    scores: SummedScores, shown: MergedHistogram, cut: int, threshold: float, model: int = 0
) -> NetBenefit | None:
    """The net benefit of calling the rows from a bin on positive; None where the counts above it are not shown.

    Args:
        scores: The sums.
        shown: The counts that are shown.
        cut: The first bin of those called positive.
        threshold: The probability where it begins: false alarms weigh `threshold / (1 - threshold)`.
        model: Which of the models.
    """
    (p, n), ((tp, most_tp), (fp, most_fp)) = scores.sides, shown.above_cut(cut)
    if not p or not n or (tp, fp) != (most_tp, most_fp) or not 0 < threshold < 1:
        return None
    sums, weight = np.array([p, n, tp, fp], dtype=np.float64), threshold / (1 - threshold)
    moments = scores.moments_at(cut, model)
    moments = row_moments(sums) if moments is None else moments
    gain, to_all = np.array([0.0, 0.0, 1.0, -weight]), np.array([1.0, -weight, 0.0, 0.0])
    ours, over_all = (Interval(*_benefit(own, sums, moments, weight)) for own in (gain, gain - to_all))
    return NetBenefit(ours, over_all, float(to_all @ sums) / (p + n))


def _benefit(own: Floats, sums: Floats, moments: Floats, weight: float) -> tuple[float, float, float]:
    """A mean gain of rows with its interval, as `calibration.decision_curve`."""
    rows = float(sums[0] + sums[1])
    every = np.array([1.0, 1.0, 0.0, 0.0])
    many = max(rows**2 / float(every @ moments @ every), 1.0)
    base = float(sums[0]) / rows
    value = float(own @ sums) / rows
    rest = own - value * every
    squares = max(float(rest @ moments @ rest), 0.0) / rows**2
    floor = (base + (1 - base) * weight**2) / many**2
    half = float(stdtrit(max(many - 1, 1), (1 + LEVEL) / 2)) * np.sqrt(many / max(many - 1, 0.5) * squares + floor)
    return value, value - half, value + half


def reliability_of_sums(scores: SummedScores, shown: MergedHistogram, platt: Platt, model: int = 0) -> Reliability:
    """How well probabilities fit: bins from the counts that are shown, all else from the sum of all counts.

    Where patients may have several rows, intervals would be too narrow: of bins they are those of rows, and intercept,
    slope and Brier score are None.
    """
    counts = scores.counts[model]
    at, labels = counted_rows(counts)
    chance = platt.probability(MIDDLES)
    every = counts.positives + counts.negatives
    found = reliability(chance[at], labels)
    bins = _bins(shown, np.add.reduceat(chance * every, shown.first))
    expected = float(chance @ every)
    found = replace(found, rows=sum(counts.sides), positives=counts.sides[0], expected=expected, bins=bins)
    if scores.spread is None:
        return found
    return replace(found, intercept=None, slope=None, brier=None, scaled=None)


def _bins(shown: MergedHistogram, sums: Floats) -> tuple[Bin, ...]:
    """About ten bins of about equal numbers of rows; `sums` are those of the probabilities in each group."""
    rows = shown.positives + shown.negatives
    total = int(rows.sum())
    if not total:
        return ()
    tenth = np.minimum((TENTHS * (rows.cumsum() - rows / 2) / total).astype(np.int64), TENTHS - 1)
    bins = []
    for k in range(TENTHS):
        own = tenth == k
        many = int(rows[own].sum())
        if many:
            ups = int(shown.positives[own].sum())
            bins.append(Bin(many, ups, float(sums[own].sum()) / many, wilson_share(ups, many)))
    return tuple(bins)


def groups_of_sums(
    whole: SummedScores, groups: Mapping[str, SummedScores], cut: int | None = None
) -> tuple[GroupFigures, ...]:
    """The figures of agreed groups, such as women and men; those with a small count are suppressed.

    Where the rows in no shown group are few, the groups would tell them: the smallest is left out too. The tables at
    the threshold are left out where one of them, or that of the rest, has a small cell.

    Args:
        whole: All rows.
        groups: The rows of each group, by name.
        cut: The first bin of those called positive; None: no threshold.
    """
    least = whole.least
    told = {name: own for name, own in groups.items() if not any(0 < side < least for side in own.sides)}
    shown = dict(sorted(told.items(), key=lambda one: -min(one[1].sides)))
    while shown and any(0 < side < least for side in _rest(whole, shown).sides):
        shown.popitem()  # the smallest: with it the rest is larger
    rest = _rest(whole, shown)
    tables = cut is not None and all(
        _exact_at(one, least, cut) for one in (rest, *(own.counts[0] for own in shown.values()))
    )
    found = []
    for name, own in groups.items():
        if name not in shown:
            found.append(GroupFigures(name, 0, 0))
            continue
        found.append(_group(name, own, cut if tables else None))
    return tuple(found)


def _rest(whole: SummedScores, shown: Mapping[str, SummedScores]) -> ScoreHistogram:
    """The rows in none of the groups that are shown, which everybody can work out."""
    own = [one.counts[0] for one in shown.values()]
    return ScoreHistogram(
        EDGES,
        whole.counts[0].positives - _total([one.positives for one in own]),
        whole.counts[0].negatives - _total([one.negatives for one in own]),
    )


def _total(sides: Sequence[Ints]) -> Ints:
    return np.sum(sides, axis=0, dtype=np.int64) if sides else np.zeros(BINS, dtype=np.int64)


def _exact_at(counts: ScoreHistogram, least: int, cut: int) -> bool:
    merged = MergedHistogram.with_cuts(counts, least, [cut])
    return merged is not None and all(low == high for low, high in merged.above_cut(cut))


def _group(name: str, own: SummedScores, cut: int | None) -> GroupFigures:
    up, down = own.sides
    area = own.figures().get("auroc")
    found = GroupFigures(name, up, down, _interval(area) if min(up, down) >= FEW else None)
    shown = None if cut is None else own.shown([cut])
    if shown is None or cut is None:
        return found
    at = own.at_cuts([cut], shown)[0]
    called = at.true_positives[0] + at.false_positives[0]
    return replace(
        found,
        sensitivity=_interval(at.sensitivity) if up >= FEW else None,
        specificity=_interval(at.specificity) if down >= FEW else None,
        positive_predictive_value=_interval(at.positive_predictive_value) if called >= FEW_ALARMS else None,
        alarms=_interval(at.alarms) if up + down >= FEW else None,
    )


def _interval(figure: SumFigure | None) -> Interval | None:
    if figure is None or figure.value is None or figure.interval is None:
        return None
    return Interval(figure.value, *figure.interval)

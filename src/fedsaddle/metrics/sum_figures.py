"""Figures of all rows, from score counts that were added up over sites, and from sums of squares over their patients.

A figure of all rows follows from the sum of all counts: bins are narrow. Counts are shown of at least `minimum_cell`
rows: neighbouring bins are merged, if possible where a threshold lies, above which counts are exact then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from fedsaddle.array_types import Floats
from fedsaddle.metrics.histograms import MergedHistogram, Range, ScoreHistogram
from fedsaddle.metrics.intervals import (
    FIGURES,
    LEVEL,
    Interval,
    difference_bounds,
    scale_of,
    spread_of_sums,
    stdtrit,
    wilson,
)
from fedsaddle.metrics.score_sums import PairedSites, SpreadQuestion, SquareSums, figures_of, influences_among

WIDEST = 0.02  # of the bounds of a figure that is given as a number
FEW = 5  # with fewer rows of a class a figure has no interval


@dataclass(frozen=True)
class SumFigure:
    """A figure of all rows: the lowest and the highest value that fit the counts; if they are close, a number.

    Args:
        bounds: The lowest and the highest value.
        value: The figure; None where the bounds are more than .02 apart.
        interval: The 95 % interval.
    """

    bounds: Range
    value: float | None = None
    interval: Range | None = None


@dataclass(frozen=True, eq=False)
class SummedScores:
    """The scores of a model, or of two, on the rows of all sites.

    Args:
        counts: Of each model, added up over sites.
        least: The least count that is shown, but 0.
        asked: What the sites were asked about their patients; None: each row is its own patient.
        spread: Their answers, added up.
    """

    counts: tuple[ScoreHistogram, ...]
    least: int = 1
    asked: SpreadQuestion | None = None
    spread: SquareSums | None = None

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of positives and of negatives."""
        return self.counts[0].sides

    def figures(self, model: int = 0) -> dict[str, SumFigure]:
        """AUROC, average precision and partial AUROC, each with its interval."""
        counts, found = self.counts[model], dict[str, SumFigure]()
        if min(self.sides) < max(self.least, 1):
            return found
        values = figures_of(counts)
        known = (counts.auroc(), counts.average_precision(), counts.partial_auroc(0.3))
        for name, within in zip(FIGURES, known, strict=True):
            if within is not None and 2 * within.error > WIDEST:
                found[name] = SumFigure(within.bounds)
            elif within is not None:
                found[name] = SumFigure(within.bounds, values[name], self._interval(name, model, values[name]))
        return found

    def _interval(self, name: str, model: int, value: float) -> Range | None:
        """The 95 % interval of a figure, by sums of squares; None with few rows of a class."""
        if min(self.sides) < FEW:
            return None
        spread, scarce, freedom = self._spread(name, *((1.0, 0.0) if model == 0 else (0.0, 1.0)))
        slope, shift = self._scales[name]
        low, high = wilson(np.array([(value - shift) / slope]), spread, scarce, stdtrit(freedom, (1 + LEVEL) / 2))
        return slope * float(low[0]) + shift, slope * float(high[0]) + shift

    def differences(self) -> dict[str, Interval]:
        """The first model's figures minus the second's, with paired intervals; none for figures with bounds only."""
        if self.spread is None or len(self.counts) != 2 or min(self.sides) < FEW:
            return {}
        one, other, found = self.figures(0), self.figures(1), dict[str, Interval]()
        pairs, unlike = np.array([float(np.prod(self.sides))]), self.spread.unlike.numpy()[0] > 0
        for name in FIGURES:
            ours, theirs = (each[name].value if name in each else None for each in (one, other))
            if ours is None or theirs is None:
                continue
            slope = self._scales[name][0]
            spread, scarce, _ = self._spread(name, 1.0, -1.0)
            both = difference_bounds(np.array([(ours - theirs) / slope]), spread, scarce, pairs, unlike, slope).of(0)
            if both is not None:
                found[name] = both
        return found

    def difference_error(self, name: str) -> float:
        """The standard error of the first model's figure minus the second's; infinite without both classes."""
        if self.spread is None or not min(self.sides):
            return float("inf")
        spread, _, _ = self._spread(name, 1.0, -1.0)
        return self._scales[name][0] * math.sqrt(float(spread[0]))

    @property
    def within_sites(self) -> PairedSites | None:
        """The mean AUROC of the sites, weighted by their pairs; None if the sites were not asked."""
        if self.spread is None or self.asked is None:
            return None
        squares, totals = self.spread.within[0].numpy() / max(self.asked.scale, 1.0), self.spread.pairs[0].numpy()
        return PairedSites(squares, totals, self.asked.pairs, bool(self.spread.unlike[0, 0] > 0))

    def _spread(self, name: str, first: float, second: float) -> tuple[Floats, Floats, Floats]:
        """The variance of a sum of the models' figures, units of the rarer class, and degrees of freedom."""
        squares = self._squares[list(FIGURES).index(name)]
        by_model = np.array([first, second])[: len(self.counts)]
        a, b = (scale_of(count) for count in self._effective)
        pick = np.kron(by_model, np.array([[float(a[0]), 0.0], [0.0, float(b[0])]]))  # positives and negatives
        (up, cross), (_, down) = pick @ squares @ pick.T
        whole = max(up + 2 * cross + down, 0.0)
        rows = [np.array([max(float(x), 0.0)]) for x in (up, down, whole)]
        return spread_of_sums(rows[0], rows[1], rows[2], self._effective)

    @cached_property
    def _effective(self) -> list[Floats]:
        """Kish's effective numbers of patients with positives, and with negatives."""
        if self.spread is None or self.asked is None:
            return [np.array([float(n)]) for n in self.sides]
        shares = np.diag(self.spread.squares[0, 0].numpy())[:2] / max(self.asked.scale, 1.0)
        return [np.array([1 / own if own > 0 else 0.0]) for own in shares.tolist()]

    @cached_property
    def _scales(self) -> dict[str, tuple[float, float]]:
        """The slope and the shift with which each figure is reported."""
        none = np.zeros(0, dtype=np.int64)
        found = influences_among(np.ones(1), np.ones(1), none, none > 0)
        return {name: (one.slope, one.shift) for name, one in found.items()}

    @cached_property
    def _squares(self) -> Floats:
        """(figures, 2 models, 2 models): sums over patients of the products of influences.

        The sites know counts with small cells merged, which make influences a little too even, and their sums a little
        wrong. How much, the counts of all rows tell: mean and variance over the rows of a class are made theirs.
        """
        exact, sums = self._rows([(c.positives, c.negatives) for c in self.counts])
        if self.spread is None or self.asked is None:
            rows = np.tile(self.sides, len(self.counts))
            return np.stack([np.diag(one) for one in exact + sums**2 / np.maximum(rows, 1)])
        even, centres = self._rows(list(zip(self.asked.positives, self.asked.negatives, strict=True)))
        ratio = np.sqrt(np.divide(exact, even, out=np.ones_like(exact), where=even > 0))
        found = []
        for k, each in enumerate(self.spread.squares[0].numpy() / max(self.asked.scale, 1.0)):
            right = ratio[k][:, None] * np.eye(len(each))[2:]
            shift = sums[k] - ratio[k] * centres[k]
            right[0::2, 0], right[1::2, 1] = shift[0::2], shift[1::2]
            found.append(right @ each @ right.T)
        return np.stack(found)

    def _rows(self, known: Sequence[tuple[ArrayLike, ArrayLike]]) -> tuple[Floats, Floats]:
        """If others know these counts of each model, the squared influences of all rows, centred, and their sums.

        Both are (figures, 2 models).
        """
        found, sums = (np.zeros((len(FIGURES), 2 * len(self.counts))) for _ in range(2))
        for model, (own, (ups, downs)) in enumerate(zip(self.counts, known, strict=True)):
            every = np.arange(len(own.positives))
            bins, positive = np.concatenate([every, every]), np.repeat([True, False], len(every))
            up, down = (np.asarray(side, dtype=np.float64) for side in (ups, downs))
            for k, one in enumerate(influences_among(up, down, bins, positive).values()):
                influence = np.nan_to_num(one.influence)
                for side, (counts, own_side) in enumerate(((own.positives, positive), (own.negatives, ~positive))):
                    total = float(counts @ influence[own_side])
                    sums[k, 2 * model + side] = total
                    each = (influence[own_side] - total / max(counts.sum(), 1)) ** 2
                    found[k, 2 * model + side] = counts @ each
        return found, sums

    def shown(self, cuts: Sequence[int] = (), model: int = 0) -> MergedHistogram | None:
        """The counts that may be shown, if possible exact above these bins, the most important first."""
        return MergedHistogram.with_cuts(self.counts[model], self.least, cuts)

    def at_cuts(self, cuts: Sequence[int], shown: MergedHistogram, model: int = 0) -> list[AtCut]:
        """What calling the rows from each bin on positive means, as far as the counts that are shown say.

        Args:
            cuts: The bins; at those that the sites were asked about, intervals are those of patients.
            shown: From `shown`.
            model: Which of the models.
        """
        counts = self.counts[model]
        both = ScoreHistogram(counts.edges, counts.positives + counts.negatives, np.zeros_like(counts.positives))
        rows = MergedHistogram.with_cuts(both, self.least, [*shown.ends.tolist(), *cuts])
        found = []
        for cut in cuts:
            called = (0, sum(shown.sides)) if rows is None else rows.above_cut(cut)[0]
            found.append(AtCut.of(cut, shown, called, self.moments_at(cut, model)))
        return found

    def moments_at(self, cut: int, model: int = 0) -> Floats | None:
        """Sums over patients of the products of their (positives, negatives, true alarms, false alarms).

        None where the sites were not asked about the cut.
        """
        asked = [] if self.asked is None else self.asked.cuts[model].tolist()
        if self.spread is None or cut not in asked:
            return None
        pick = [0, 1, 2 + 2 * model, 3 + 2 * model]
        return self.spread.moments[0, asked.index(cut)].numpy()[np.ix_(pick, pick)]


@dataclass(frozen=True)
class AtCut:
    """Calling the rows of some bins positive: shares of the rows, each a number or bounds.

    Args:
        cut: The first bin of those called positive.
        true_positives: The least and the most of them that fit the counts that are shown.
        false_positives: The same.
        sensitivity: The share of positives called positive.
        specificity: The share of negatives not called positive.
        positive_predictive_value: The share of positives among the rows called positive.
        negative_predictive_value: The share of negatives among the others.
        alarms: The share of rows called positive.
    """

    cut: int
    true_positives: tuple[int, int]
    false_positives: tuple[int, int]
    sensitivity: SumFigure | None
    specificity: SumFigure | None
    positive_predictive_value: SumFigure | None
    negative_predictive_value: SumFigure | None
    alarms: SumFigure | None

    @property
    def exact(self) -> bool:
        """Whether the counts are known."""
        return len({*self.true_positives}) == len({*self.false_positives}) == 1

    @classmethod
    def of(
        cls, cut: int, shown: MergedHistogram, called: tuple[int, int] | None = None, moments: Floats | None = None
    ) -> AtCut:
        """From counts, and sums over patients of products.

        Args:
            cut: The first bin of those called positive.
            shown: Counts of each class.
            called: The least and the most rows called positive; None: what `shown` says.
            moments: Sums over patients of the products of their (positives, negatives, true alarms, false alarms);
                None: each row is its own patient.
        """
        (p, n), (tp, fp) = shown.sides, shown.above_cut(cut)
        rows = (tp[0] + fp[0], tp[1] + fp[1]) if called is None else called
        tp = max(tp[0], rows[0] - fp[1]), min(tp[1], rows[1] - fp[0])
        fp = max(fp[0], rows[0] - tp[1]), min(fp[1], rows[1] - tp[0])
        exact = tp[0] == tp[1] and fp[0] == fp[1]
        sums = np.array([p, n, tp[0], rows[0] - tp[0]], dtype=np.float64)
        if moments is None:
            moments = row_moments(sums)

        def share(
            part: tuple[int, ...], whole: tuple[int, ...], low: float, high: float, known: bool = exact
        ) -> SumFigure | None:
            a, b = np.array(part, dtype=np.float64), np.array(whole, dtype=np.float64)
            if not b @ sums:
                return None
            return _share(a, b, sums, moments) if known else SumFigure((low, high))

        def ratio(part: int, rest: int) -> float:
            return part / (part + rest) if part + rest else 0.0

        all_ = max(p + n, 1)
        return cls(
            cut, tp, fp,
            share((0, 0, 1, 0), (1, 0, 0, 0), tp[0] / max(p, 1), tp[1] / max(p, 1)),
            share((0, 1, 0, -1), (0, 1, 0, 0), 1 - fp[1] / max(n, 1), 1 - fp[0] / max(n, 1)),
            share((0, 0, 1, 0), (0, 0, 1, 1), ratio(tp[0], fp[1]), ratio(tp[1], fp[0])),
            share((0, 1, 0, -1), (1, 1, -1, -1), ratio(n - fp[1], p - tp[0]), ratio(n - fp[0], p - tp[1])),
            share((0, 0, 1, 1), (1, 1, 0, 0), rows[0] / all_, rows[1] / all_, rows[0] == rows[1]),
        )  # fmt: skip


def row_moments(sums: Floats) -> Floats:
    """The sums of products where each row is its own patient."""
    p, n, tp, fp = sums
    return np.array([[p, 0, tp, 0], [0, n, 0, fp], [tp, 0, tp, 0], [0, fp, 0, fp]])


def _share(part: Floats, whole: Floats, sums: Floats, moments: Floats) -> SumFigure:
    """A share with its 95 % interval, in which patients are drawn: as `metrics.intervals.share`."""
    total = float(whole @ sums)
    value = float(part @ sums) / total
    many = total**2 / float(whole @ moments @ whole)
    rest = part - value * whole
    scale = many / max(many - 1, 1e-9) if many >= 2 else 2.0
    variance = np.array([scale * max(float(rest @ moments @ rest), 0.0) / total**2])
    units = np.array([max(many, 1.0)])
    t = stdtrit(np.maximum(units - 1, 1), (1 + LEVEL) / 2)
    low, high = wilson(np.array([value]), variance, units, t)
    return SumFigure((value, value), value, (float(low[0]), float(high[0])))

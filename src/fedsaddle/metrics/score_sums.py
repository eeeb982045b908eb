"""What a site answers about the scores of its rows, so that sums over sites give figures of all rows together.

The fields of an answer say what the server may see of them. An averaged field may be summed behind masks: it crosses
as a mean over sites, and times their number it is the sum. Answers add up by `+`, wherever the rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.array_types import Bools, Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.records import Averaged, replaced, tensors
from fedsaddle.metrics.histograms import MergedHistogram, ScoreHistogram, sigmoid_edges
from fedsaddle.metrics.intervals import (
    FIGURES,
    LEVEL,
    MOST_PAIRS,
    GroupedUnits,
    Interval,
    Linearised,
    Ordered,
    difference_bounds,
    order,
    sample,
    scale_of,
    spread_of_sums,
    stdtrit,
    wilson,
)

Totals = Floats  # pairs, those of small sites; of each model right pairs and their squares; of two the gap's


def pair_sums(scores: Sequence[Floats], positive: Bools, drawn: GroupedUnits, pairs: float) -> tuple[Floats, Totals]:
    """The sums of one site.

    Args:
        scores: (n,) of each model.
        positive: (n,).
        drawn: The patients.
        pairs: The pairs of all rows of all sites, by which everything is divided.

    Returns:
        Sums over patients of the products of the pairs of their positives, of their negatives, and with each model
        how many of these are in the right order; and totals over pairs.
    """
    m, n = float(positive.sum()), float((~positive).sum())
    rows, totals = [positive * n, ~positive * m], [m * n, m * n if m * n <= MOST_PAIRS else 0.0]
    for one in scores:
        steps = order(one, positive, np.zeros(len(one), dtype=np.int64), 1)
        ups, downs = steps.ups, steps.downs
        below, above = steps.after(downs) + downs / 2, steps.before(ups) + ups / 2
        right = steps.rows(below, above)
        rows += [right * positive, right * ~positive]
        totals += [float(ups @ below), float(ups @ (steps.after(downs) + downs / 4))]
    totals += [0.0, 0.0]
    if len(scores) == 2 and 0 < m * n <= MOST_PAIRS:
        first, second = (
            np.sign(one[positive][:, None] - one[~positive]) / 2 for one in scores
        )  # one half, 0 or minus one half for a pair in the right order, tied or wrong
        gap = first - second
        totals[-2:] = [float((gap**2).sum()), float(gap.sum())]
    v = np.stack([drawn.per_unit(np.asarray(row, dtype=np.float64)) for row in rows]) / pairs
    return v @ v.T, np.array(totals) / pairs


@dataclass(frozen=True, eq=False)
class PairedSites:
    """The sums of all sites.

    Args:
        squares: From `pair_sums`, added up.
        totals: From `pair_sums`, added up.
        pairs: By which they were divided.
        unlike: Whether two models differ on some row.
    """

    squares: Floats
    totals: Totals
    pairs: float
    unlike: bool = False

    def value(self, model: int) -> float:
        """The mean AUROC of the sites, weighted by their pairs; NaN without any."""
        return float(self.totals[2 + 2 * model] / self.totals[0]) if self.totals[0] > 0 else float("nan")

    @property
    def _effective(self) -> list[Floats]:
        own = np.diag(self.squares)[:2]
        return [np.array([self.totals[0] ** 2 / one if one > 0 else 0.0]) for one in own]

    def _spread(self, weights: Sequence[float], excess: float) -> tuple[Floats, Floats, Floats]:
        """Of a sum of the models' figures."""
        counts = self._effective
        pick = np.zeros((2, len(self.squares)))
        for model, weight in enumerate(weights):
            for side in (0, 1):
                pick[side, 2 + 2 * model + side] += weight
                pick[side, side] -= weight * self.value(model)
        pick *= np.array([[float(scale_of(one)[0])] for one in counts]) / self.totals[0]
        (up, cross), (_, down) = pick @ self.squares @ pick.T
        sums = [np.array([max(float(x), 0.0)]) for x in (up, down, up + 2 * cross + down)]
        return spread_of_sums(sums[0], sums[1], sums[2], counts, np.array([excess]))

    def interval(self, model: int = 0) -> Interval | None:
        """With its 95 % interval; None without pairs."""
        v, t = self.value(model), self.totals
        if np.isnan(v):
            return None
        right, squares = t[2 + 2 * model], t[3 + 2 * model]
        excess = (squares - 2 * v * right + v**2 * t[0]) / (t[0] ** 2 * self.pairs)
        weights = [0.0] * model + [1.0]
        spread, scarce, freedom = self._spread(weights, float(excess))
        low, high = wilson(np.array([v]), spread, scarce, stdtrit(freedom, (1 + LEVEL) / 2))
        return Interval(v, float(low[0]), float(high[0]))

    def difference(self) -> Interval | None:
        """The first model's minus the second's; None without pairs, or with one model."""
        if len(self.squares) != 6 or not self.totals[0] > 0:
            return None
        gap, t = self.value(0) - self.value(1), self.totals
        excess = (t[-2] - 2 * gap * t[-1] + gap**2 * t[1]) / (t[0] ** 2 * self.pairs)
        spread, scarce, _ = self._spread([1.0, -1.0], float(excess))
        pairs = np.array([t[0] * self.pairs])
        return difference_bounds(np.array([gap]), spread, scarce, pairs, np.array([self.unlike]), 1.0).of(0)


BINS = 1000  # of scores, equal in 1 / (1 + exp(-score))
EDGES = sigmoid_edges(BINS)


def bins_of(scores: ArrayLike) -> Ints:
    """The bin of each score."""
    return np.searchsorted(EDGES, np.asarray(scores, dtype=np.float64), side="right").astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Sums:
    """Adds field by field."""

    def __add__(self, other: Self) -> Self:
        mine, theirs = dict(tensors(self)), dict(tensors(other))
        if type(self) is not type(other) or any(v.shape != theirs[k].shape for k, v in mine.items()):
            raise BadInput("answers", type(other).__name__, "add answers to one and the same question")
        return replaced(self, **{name: value + theirs[name] for name, value in mine.items()})

    @classmethod
    def of_mean(cls, mean: dict[str, Tensor], sites: int) -> Self:
        """The sum, from the mean over so many sites."""
        return cls(**{f.name: mean[f.name].double()[None] * sites for f in fields(cls)})


@dataclass(frozen=True, eq=False)
class BinCounts(_Sums):
    """The rows of each class in each bin of the score: all rows, and those of each agreed group.

    Args:
        positives: (1, 1 + groups, bins), the first line of all rows.
        negatives: The same of negatives.
    """

    positives: Averaged
    negatives: Averaged

    @classmethod
    def of(cls, scores: ArrayLike, labels: ArrayLike, groups: Sequence[ArrayLike] = ()) -> BinCounts:
        """Count the rows of a site.

        Args:
            scores: (n,), a higher one for likelier positives.
            labels: (n,), positive above 0.
            groups: Of each agreed group, which rows are in it.
        """
        at, positive = bins_of(scores), np.asarray(labels).ravel() > 0
        members = [np.ones(len(at), dtype=bool), *(np.asarray(own, dtype=bool) for own in groups)]
        sides = [
            np.stack([np.bincount(at[own & side], minlength=BINS) for own in members]) for side in (positive, ~positive)
        ]
        return cls(*(torch.from_numpy(side).double()[None] for side in sides))

    @classmethod
    def empty(cls, groups: int = 0) -> BinCounts:
        """The answer of a site without rows."""
        return cls(*(torch.zeros(1, 1 + groups, BINS, dtype=torch.float64) for _ in range(2)))

    def of_groups(self) -> BinCounts:
        """The same without the counts of all rows."""
        up, down = self.positives.clone(), self.negatives.clone()
        up[:, 0], down[:, 0] = 0, 0
        return BinCounts(up, down)

    def histogram(self, line: int = 0) -> ScoreHistogram:
        """The counts of all rows, or of a group."""
        up, down = (side[0, line].round().long().numpy() for side in (self.positives, self.negatives))
        return ScoreHistogram(EDGES, up, down)


def smoothed(counts: Ints, least: int) -> Floats:
    """The counts of one class as others may see them: bins are merged to `least` rows, and spread over them evenly."""
    if least <= 1 or not counts.sum() > 0:
        return counts.astype(np.float64)
    merged = MergedHistogram.of(ScoreHistogram(EDGES, counts, np.zeros_like(counts)), least)
    if merged is None:
        raise BadInput("counts", int(counts.sum()), f"are fewer than minimum_cell = {least}")
    width = merged.ends - merged.first
    return np.repeat(merged.positives / width, width)


@dataclass(frozen=True, eq=False)
class SpreadQuestion:
    """What the server sends back, so that each site can work out how much its rows move the figures.

    Args:
        positives: (models, bins), the positives of all sites, small cells merged.
        negatives: The same of negatives.
        cuts: (models, thresholds), the first bin of those called positive.
    """

    positives: Floats
    negatives: Floats
    cuts: Ints

    @classmethod
    def of(cls, sums: Sequence[ScoreHistogram], cuts: Sequence[Sequence[int]], least: int) -> SpreadQuestion:
        """The question about one model, or about two and their difference."""
        up = np.stack([smoothed(one.positives, least) for one in sums])
        down = np.stack([smoothed(one.negatives, least) for one in sums])
        return cls(up, down, np.array(cuts, dtype=np.int64).reshape(len(sums), -1))

    @property
    def sides(self) -> tuple[Floats, Floats]:
        """The positives and the negatives."""
        return self.positives, self.negatives

    @property
    def scale(self) -> float:
        """Squared influences are sent times the number of the rarer class: numbers near 1 suit fixed point."""
        return float(min(self.positives[0].sum(), self.negatives[0].sum()))

    @property
    def pairs(self) -> float:
        """The number of pairs (positive, negative) of all rows."""
        return max(float(self.positives[0].sum() * self.negatives[0].sum()), 1.0)

    def influences(self, model: int, bins: Ints, positive: Bools) -> dict[str, Linearised]:
        """The influence of some rows on each figure of all rows."""
        return influences_among(self.positives[model], self.negatives[model], bins, positive)


def influences_among(positives: Floats, negatives: Floats, bins: Ints, positive: Bools) -> dict[str, Linearised]:
    """The influence of some rows on each figure of all rows, of which counts are known.

    Args:
        positives: (bins,), the positives among all rows.
        negatives: (bins,), the negatives among all rows.
        bins: (n,), the bin of each of some rows.
        positive: (n,), whether it is positive.
    """
    rows = _among(positives, negatives, bins, positive)
    return {name: figure(rows) for name, figure in FIGURES.items()}


def _among(positives: Floats, negatives: Floats, bins: Ints, positive: Bools) -> Ordered:
    """Some rows among all the others, of which counts are known, in steps of descending score."""
    ups, downs = positives[::-1], negatives[::-1]
    filled = np.flatnonzero(ups + downs > 0)
    if not len(filled):
        filled = np.zeros(1, dtype=np.int64)
    step = np.minimum(np.searchsorted(filled, len(ups) - 1 - bins), len(filled) - 1)
    begins = np.arange(len(filled)) == 0
    at = np.arange(len(bins))
    return Ordered(
        1, at, positive.astype(np.float64), step, np.zeros(len(filled), dtype=np.int64), begins,
        ups[filled], downs[filled],
    )  # fmt: skip


def figures_of(sums: ScoreHistogram) -> dict[str, float]:
    """AUROC, average precision and partial AUROC of counted rows; rows of one bin are ties. NaN without a class."""
    none = np.zeros(0, dtype=np.int64)
    found = influences_among(sums.positives.astype(np.float64), sums.negatives.astype(np.float64), none, none > 0)
    return {name: float(one.slope * one.values[0] + one.shift) for name, one in found.items()}


@dataclass(frozen=True, eq=False)
class SquareSums(_Sums):
    """Sums of squares over the patients of a site (or over its rows): DeLong's and Obuchowski's variance add up.

    Args:
        squares: (1, figures, 2 + 2 models, 2 + 2 models): sums over patients of the products of a patient's shares of
            all positives and of all negatives, and with each model the influences of its positives and of its
            negatives, times the number of the rarer class.
        unlike: (1, 1), the rows on which two models differ.
        moments: (1, thresholds, k, k): sums over patients of the products of their numbers of positives, negatives, and
            with each model true and false alarms.
        within: (1, k, k): sums over patients of the products of their pairs within the site, from `pair_sums`, times
            the number of the rarer class.
        pairs: (1, k): totals over these pairs.
    """

    squares: Averaged
    unlike: Averaged
    moments: Averaged
    within: Averaged
    pairs: Averaged

    @classmethod
    def of(
        cls, asked: SpreadQuestion, scores: Sequence[ArrayLike], labels: ArrayLike, units: ArrayLike | None = None
    ) -> SquareSums:
        """The answer of a site.

        Args:
            asked: The question.
            scores: (n,) of each model.
            labels: (n,), positive above 0.
            units: (n,), the patient of each row; None: each row is its own.
        """
        positive = np.asarray(labels).ravel() > 0
        zeros = np.zeros(len(positive), dtype=np.int64)
        own = None if units is None else np.unique(np.asarray(units), return_inverse=True)[1].astype(np.int64)
        drawn, bins = sample(positive, zeros, 1, own), [bins_of(s) for s in scores]

        def summed(rows: Floats | Bools) -> Floats:
            return drawn.per_unit(np.asarray(rows, dtype=np.float64))

        each = [asked.influences(k, at, positive) for k, at in enumerate(bins)]
        p, n = summed(positive), summed(~positive)
        shares = [side / max(float(known[0].sum()), 1.0) for side, known in zip((p, n), asked.sides, strict=True)]
        squares = []
        for name in FIGURES:
            influences = [summed(one[name].influence * side) for one in each for side in (positive, ~positive)]
            w = np.stack([*shares, *influences])
            squares.append(asked.scale * (w @ w.T))
        unlike = sum(float((a != bins[0]).sum()) for a in bins[1:])
        moments = []
        for t in range(asked.cuts.shape[1]):
            called = [at >= asked.cuts[k, t] for k, at in enumerate(bins)]
            v = np.stack([p, n, *(summed(c & side) for c in called for side in (positive, ~positive))])
            moments.append(v @ v.T)
        size, exact = 2 + 2 * len(bins), [np.asarray(one, dtype=np.float64).ravel() for one in scores]
        within, totals = pair_sums(exact, positive, drawn, asked.pairs)
        return cls(
            torch.from_numpy(np.array(squares))[None],
            torch.tensor([[unlike]], dtype=torch.float64),
            torch.from_numpy(np.array(moments).reshape(-1, size, size))[None],
            torch.from_numpy(asked.scale * within)[None],
            torch.from_numpy(totals)[None],
        )

    @classmethod
    def empty(cls, asked: SpreadQuestion) -> SquareSums:
        """The answer of a site without rows."""
        none = np.zeros(0)
        return cls.of(asked, [none] * len(asked.positives), none)

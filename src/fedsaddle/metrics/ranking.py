"""Ranking metrics and curves of a binary model, with 95 % intervals: over all rows, within clients, and by client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.files import JsonObject
from fedsaddle.metrics.intervals import (
    FIGURES,
    GroupedUnits,
    Interval,
    Intervals,
    Linearised,
    Ordered,
    bounds,
    differences,
    gap_excess,
    order,
    sample,
    stdtrit,
    wilson,
    within_site_area,
)
from fedsaddle.numerics.roc import checked_rows, roc_curve

FEW = 5  # a client with fewer rows of a class has no figures of its own


@dataclass(frozen=True)
class RankingFigures:
    """Ranking metrics of one client or of all; None where `why_not` gives a reason.

    Args:
        name: Of the client, or "pooled".
        positives: Number of positives.
        negatives: Number of negatives.
        auroc: Area under the ROC curve.
        average_precision: As scikit-learn's `average_precision_score`.
        partial_auroc: Area up to a false positive rate of .3, on McClish's scale.
    """

    name: str
    positives: int
    negatives: int
    auroc: Interval | None = None
    average_precision: Interval | None = None
    partial_auroc: Interval | None = None

    @property
    def single_class(self) -> bool:
        """Whether a class is missing: the rows count in the pooled figures, but have no curve of their own."""
        return self.positives == 0 or self.negatives == 0

    @property
    def few(self) -> bool:
        """Whether a class has fewer than five rows: too few to distinguish a good ranking from chance."""
        return min(self.positives, self.negatives) < FEW

    @property
    def why_not(self) -> str | None:
        """Why there are no metrics, for a table; None if there are."""
        if self.auroc is not None:
            return None
        if not self.positives + self.negatives:
            return "no rows"
        if self.single_class:
            return "one class only"
        scarce = "positives" if self.positives < FEW else "negatives"
        return f"fewer than {FEW} {scarce}"

    def to_dict(self) -> JsonObject:
        """Plain numbers, for JSON."""
        counts = {"name": self.name, "positives": self.positives, "negatives": self.negatives, "few": self.few}
        return {**counts, **{name: _plain(getattr(self, name)) for name in FIGURES}}


@dataclass(frozen=True)
class RankingDifference:
    """Metrics of our model minus those of theirs on the same rows, with intervals; None where one of the two has none.

    Args:
        name: Of the client, or "pooled".
        auroc: Difference of the areas under the ROC curve.
        average_precision: Difference of the average precisions.
        partial_auroc: Difference of the partial areas.
        within_site_auroc: Difference of the mean AUROC within clients; None for a single client.
        clients: The differences of each client; empty for a single client.
    """

    name: str
    auroc: Interval | None = None
    average_precision: Interval | None = None
    partial_auroc: Interval | None = None
    within_site_auroc: Interval | None = None  # None for a single client
    clients: tuple[RankingDifference, ...] = ()

    def to_dict(self) -> JsonObject:
        """Plain numbers, for JSON."""
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("name", "clients")}
        plain = {"name": self.name, **{name: _plain(figure) for name, figure in named.items()}}
        return plain | ({"clients": [c.to_dict() for c in self.clients]} if self.clients else {})


@dataclass(frozen=True, eq=False)
class Ranking:
    """The scores of a model and their ranking metrics, as `rank` returns them.

    `pooled` is over all rows together. `within_site_auroc` is the mean of the clients' AUROCs, weighted by their pairs
    (positive, negative): it does not depend on whether the scores of two clients are on one scale.

    Args:
        scores: (n,), the clients one after the other.
        labels: (n,), positive above 0.
        offsets: Where the rows of each client begin, and n.
        units: (n,), the unit of each row, such as its patient; None: each row is its own.
        pooled: The metrics over all rows.
        within_site_auroc: Mean AUROC of the clients, weighted by their pairs.
        clients: The metrics of each client.
    """

    scores: Floats  # (n,), the clients one after the other
    labels: Ints
    offsets: Ints
    units: Ints | None  # (n,), numbers of the patients; None if each row is its own
    pooled: RankingFigures
    within_site_auroc: Interval | None
    clients: tuple[RankingFigures, ...]

    @property
    def single_class_clients(self) -> int:
        """The number of clients whose rows are all of one class."""
        return sum(c.single_class for c in self.clients if c.positives + c.negatives)

    @property
    def few_clients(self) -> int:
        """The number of clients with both classes, but fewer than five rows of one."""
        return sum(c.few and not c.single_class for c in self.clients)

    def curve(self, client: int | None = None) -> tuple[Floats, Floats] | None:
        """False and true positive rates of one client or of all; None if a class is missing."""
        rows = slice(None) if client is None else slice(int(self.offsets[client]), int(self.offsets[client + 1]))
        return roc_curve(self.scores[rows], self.labels[rows])

    def to_dict(self) -> JsonObject:
        """Plain numbers, for JSON."""
        return {
            "pooled": self.pooled.to_dict(),
            "within_site_auroc": _plain(self.within_site_auroc),
            "single_class_clients": self.single_class_clients,
            "few_clients": self.few_clients,
            "clients": [c.to_dict() for c in self.clients],
        }


def rank(
    scores: ArrayLike, labels: ArrayLike, offsets: ArrayLike, names: Sequence[str], *, units: ArrayLike | None = None
) -> Ranking:
    """Evaluate scores, where a higher score means more likely positive; client i has the rows from `offsets[i]` on.

    Args:
        scores: (n,), the clients one after the other.
        labels: (n,), positive above 0.
        offsets: Where the rows of each client begin, and n.
        names: Of the clients.
        units: (n,), the unit of each row, such as patient numbers or names. Rows of one patient are correlated, and
            only patients are treated as independent. None (default): every row is its own unit.

    Raises:
        BadInput: if a score is not finite, a label or unit is missing, or lengths do not match.

    Examples:
        >>> found = rank([0.9, 0.2, 0.8, 0.6], [1, 0, 1, 0], [0, 2, 4], ("a", "b"))
        >>> print(found.pooled.auroc, found.clients[0].why_not)
        1.0000 [0.012, 1.000] fewer than 5 positives
    """
    s, positive = checked_rows(scores, labels)
    ends, unit = check_offsets(offsets, len(s), len(names)), _numbers(units, len(s))
    at = _Rows(s, positive, ends, unit)
    pooled = RankingFigures("pooled", *at.counts(whole=True)[0], *(at.bounds(f).of(0) for f in at.pooled.values()))
    by_client = [at.bounds(f) for f in at.by_client.values()]
    clients = []
    for i, (name, counts) in enumerate(zip(names, at.counts(whole=False), strict=True)):
        own = () if min(counts) < FEW else (b.of(i) for b in by_client)
        clients.append(RankingFigures(name, *counts, *own))
    within = at.bounds(at.within).of(0)
    return Ranking(s, np.asarray(labels).ravel(), ends, unit, pooled, within, tuple(clients))


def difference(ours: Ranking, theirs: Ranking) -> RankingDifference:
    """Compare two models on the same rows.

    Args:
        ours: The ranking of the first model.
        theirs: The ranking of the second model, which is subtracted.

    Raises:
        BadInput: if the labels, clients or units of the two are not the same.
    """
    for key in ("labels", "offsets", "units"):
        if not np.array_equal(getattr(ours, key), getattr(theirs, key)):
            raise BadInput(key, "not the same for both", "rank both models on the same rows")
    a, b = (_Rows(r.scores, r.labels > 0, r.offsets, r.units) for r in (ours, theirs))
    # Two models may rank each of many small clients alike by chance: they are the same only if all rows together are.
    one, other = (replace(rows.within, ranks=rows.pooled["auroc"].ranks) for rows in (a, b))
    within = differences(one, other, a.drawn(1), gap_excess(one, other, a.positive, a.client, a.one_group)).of(0)
    auroc, precision, partial = (differences(a.pooled[k], b.pooled[k], a.drawn(1)).of(0) for k in FIGURES)
    by_client = [differences(a.by_client[k], b.by_client[k], a.drawn(len(ours.clients))) for k in FIGURES]
    clients = []
    for i, client in enumerate(ours.clients):
        own = (None, None, None) if client.few else (found.of(i) for found in by_client)
        clients.append(RankingDifference(client.name, *own))
    return RankingDifference("pooled", auroc, precision, partial, within, tuple(clients))


def check_offsets(offsets: ArrayLike, rows: int, clients: int) -> Ints:
    """Check the row offsets of the clients: ascending whole numbers from 0 to the number of rows.

    Args:
        offsets: Where the rows of each client begin, and the number of rows.
        rows: Number of rows.
        clients: Number of clients.
    """
    ends = np.asarray(offsets)
    fits = ends.ndim == 1 and len(ends) > 1 and ends.dtype.kind in "iu"
    if not fits or ends[0] != 0 or ends[-1] != rows or (np.diff(ends) < 0).any():
        raise BadInput("offsets", ends.tolist(), f"must run from 0 up to {rows}, the number of rows, in whole numbers")
    if len(ends) != clients + 1:
        raise BadInput("len(offsets)", len(ends), f"{clients} clients need {clients + 1} offsets")
    return ends.astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Rows:
    """The metrics of checked rows with their influences, each computed once."""

    scores: Floats
    positive: NDArray[np.bool_]
    offsets: Ints
    units: Ints | None

    @cached_property
    def client(self) -> Ints:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def one_group(self) -> Ints:
        """The group of each client if all clients are one group."""
        return np.zeros(len(self.offsets) - 1, dtype=np.int64)

    @cached_property
    def pooled(self) -> dict[str, Linearised]:
        rows = order(self.scores, self.positive, np.zeros(len(self.scores), dtype=np.int64), 1)
        return {name: figure(rows) for name, figure in FIGURES.items()}

    @cached_property
    def sites(self) -> Ordered:
        return order(self.scores, self.positive, self.client, len(self.offsets) - 1)

    @cached_property
    def by_client(self) -> dict[str, Linearised]:
        return {name: figure(self.sites) for name, figure in FIGURES.items()}

    @cached_property
    def within(self) -> Linearised:
        return within_site_area(self.sites, self.one_group, 1)

    @cached_property
    def _together(self) -> GroupedUnits:
        return sample(self.positive, np.zeros(len(self.scores), dtype=np.int64), 1, self.units)

    @cached_property
    def _apart(self) -> GroupedUnits:
        return sample(self.positive, self.client, len(self.offsets) - 1, self.units)

    def drawn(self, groups: int) -> GroupedUnits:
        """The units of all clients pooled, or of each client."""
        return self._together if groups == 1 else self._apart

    def bounds(self, figure: Linearised) -> Intervals:
        return bounds(figure, self.drawn(len(figure.values)))

    def counts(self, *, whole: bool) -> list[tuple[int, int]]:
        ends = self.offsets[[0, -1]] if whole else self.offsets
        up = np.concatenate([[0], np.cumsum(self.positive)])[ends]
        return [(int(p), int(n - p)) for p, n in zip(np.diff(up), np.diff(ends), strict=True)]


def _numbers(units: ArrayLike | None, rows: int) -> Ints | None:
    """Units as whole numbers, whatever their type."""
    if units is None:
        return None
    given = np.asarray(units)
    if given.shape != (rows,):
        raise BadInput("units.shape", given.shape, f"name the unit of each of the {rows} rows")
    gaps = given != given if given.dtype.kind in "fO" else np.zeros(rows, dtype=bool)
    gaps = gaps | np.array([unit is None for unit in given]) if given.dtype == object and rows else gaps
    if gaps.any():
        raise BadInput(f"units[{int(np.argmax(gaps))}]", None, "is missing; name the unit of each row")
    return np.unique(given.astype(str) if given.dtype == object else given, return_inverse=True)[1].astype(np.int64)


def _plain(figure: Interval | None) -> JsonObject | None:
    return None if figure is None else figure.to_dict()


DRAWS = 200
GRID = np.linspace(0, 1, 101)


@dataclass(frozen=True, eq=False)
class Band:
    """Lower and upper true positive rates over the false positive rates.

    Args:
        fpr: False positive rates, increasing from 0 to 1.
        low: Lower bounds of the true positive rate at each of them.
        high: Upper bounds.
    """

    fpr: Floats
    low: Floats
    high: Floats


def pooled_band(ranking: Ranking, *, draws: int = DRAWS, seed: int = 0) -> Band | None:
    """The pointwise 95 % band of the pooled curve: Wilson's, with variances from bootstrap draws of the units.

    None where a class is missing.

    Args:
        ranking: The scores of all clients' rows.
        draws: Number of bootstrap draws.
        seed: Random seed of the draws.
    """
    curve = ranking.curve()
    if curve is None:
        return None
    positive, zeros = ranking.labels > 0, np.zeros(len(ranking.labels), dtype=np.int64)
    rows, drawn = order(ranking.scores, positive, zeros, 1), sample(positive, zeros, 1, ranking.units)
    unit, units, steps = drawn.unit[rows.at], len(drawn.group_of_unit), len(rows.group)
    rng, curves = np.random.default_rng([seed, 83]), []
    for _ in range(draws):
        weight = np.bincount(rng.integers(units, size=units), minlength=units)[unit]
        up, down = (np.bincount(rows.step, weight * side, steps) for side in (rows.positive, 1 - rows.positive))
        if up.any() and down.any():
            tpr, fpr = (np.concatenate([[0.0], np.cumsum(side) / side.sum()]) for side in (up, down))
            curves.append(np.interp(GRID, fpr, tpr))
    scarce = min(float(drawn.effective(side.astype(np.float64))[0]) for side in (positive, ~positive))
    heights, many = np.stack([np.interp(GRID, *curve), *curves]), np.full_like(GRID, scarce)
    # Around the mean of the draws: a height of 1 with a variance would have no interval.
    low, high = wilson(heights.mean(0), heights.var(0), many, stdtrit(np.maximum(many - 1, 1), 0.975))
    return Band(GRID, np.minimum(low, heights[0]), np.maximum(high, heights[0]))


def client_band(ranking: Ranking, share: float = 0.8) -> Band | None:
    """The pointwise range of the middle `share` of the clients' curves; None without a client with figures.

    Args:
        ranking: The scores of all clients' rows.
        share: Share of the curves between the bounds at each false positive rate.
    """
    own = [ranking.curve(i) for i, client in enumerate(ranking.clients) if client.auroc is not None]
    if not own:
        return None
    heights = np.stack([np.interp(GRID, *curve) for curve in own if curve is not None])
    low, high = np.quantile(heights, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return Band(GRID, low, high)


RECALLS = np.linspace(0.01, 1, 100)


@dataclass(frozen=True, eq=False)
class PrecisionRecall:
    """The precision at each recall: the share of positives among the alarms that find that share of the positives.

    Args:
        recall: Recalls, increasing to 1.
        precision: Precision at each recall.
        low: Lower pointwise 95 % bounds of the precision.
        high: Upper bounds.
        base_rate: Share of positives, the precision of alarms at random.
    """

    recall: Floats
    precision: Floats
    low: Floats
    high: Floats
    base_rate: float


def precision_recall(
    ranking: Ranking, client: int | None = None, *, draws: int = DRAWS, seed: int = 0
) -> PrecisionRecall | None:
    """The precision-recall curve of all rows or of one client; None where a class is missing.

    At a recall, the precision is that of the highest threshold which reaches it, as scikit-learn's average precision
    has it. The bounds are Wilson's, with variances from draws of the units with replacement.

    Args:
        ranking: The scores of all clients' rows.
        client: Number of the client; None (default): all rows.
        draws: Number of bootstrap draws; 0: the bounds are the curve.
        seed: Random seed of the draws.
    """
    rows = slice(None) if client is None else slice(int(ranking.offsets[client]), int(ranking.offsets[client + 1]))
    labels, positive = ranking.labels[rows], ranking.labels[rows] > 0
    if not positive.any() or positive.all():
        return None
    zeros = np.zeros(len(labels), dtype=np.int64)
    steps = order(ranking.scores[rows], positive, zeros, 1)
    hits, seen = np.cumsum(steps.ups), np.cumsum(steps.ups + steps.downs)
    precision = _at(RECALLS, hits, seen)
    base = float(positive.mean())
    if not draws:
        return PrecisionRecall(RECALLS, precision, precision, precision, base)
    units = None if ranking.units is None else ranking.units[rows]
    drawn = sample(positive, zeros, 1, units)
    unit, many, count = drawn.unit[steps.at], len(drawn.group_of_unit), len(steps.group)
    rng, heights = np.random.default_rng([seed, 89]), [precision]
    for _ in range(draws):
        weight = np.bincount(rng.integers(many, size=many), minlength=many)[unit]
        up = np.cumsum(np.bincount(steps.step, weight * steps.positive, count)).astype(np.float64)
        if up[-1]:
            heights.append(_at(RECALLS, up, np.cumsum(np.bincount(steps.step, weight, count)).astype(np.float64)))
    stacked = np.stack(heights)
    alarms = seen[np.minimum(np.searchsorted(hits, RECALLS * hits[-1] - 1e-9), len(hits) - 1)]
    scarce = np.maximum(alarms * many / len(labels), 1.0)
    # Around the mean of the draws: a height of 1 with a variance would have no interval.
    low, high = wilson(stacked.mean(0), stacked.var(0), scarce, stdtrit(np.maximum(scarce - 1, 1), 0.975))
    return PrecisionRecall(RECALLS, precision, np.minimum(low, precision), np.maximum(high, precision), base)


def _at(recalls: Floats, hits: Floats, seen: Floats) -> Floats:
    """The precision of the first step with at least that recall."""
    at = np.minimum(np.searchsorted(hits, recalls * hits[-1] - 1e-9), len(hits) - 1)
    return np.asarray(hits[at] / seen[at])

"""What counts: the figures that a search can aim for, and whether a difference is more than chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.federated import crossed
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput
from fedsaddle.numerics import roc

DRAWS = 200
MAX_FPR = 0.3
LEAST_ROWS = 10  # of a site, or a group, that can be the worst
WORST_GROUP = "worst-group"
LEAST_POSITIVES = 5


@dataclass(frozen=True, eq=False)
class Rows:
    """Labelled rows of several sites, and to whom each belongs (a patient, or itself)."""

    labels: Array  # 1 and 0; of other outcomes classes, numbers, or two numbers a row
    site: Ints
    unit: Ints  # 0, 1, ...
    group: Ints | None = None  # of columns of groups, crossed; None: there are none

    @classmethod
    def of(
        cls,
        labels: Array,
        offsets: Ints,
        units: NDArray[np.generic] | None = None,
        groups: Mapping[str, NDArray[np.str_]] | None = None,
    ) -> Rows:
        """Rows that lie site by site, perhaps with their groups by column."""
        site = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        unit = np.arange(len(labels)) if units is None else np.unique(units, return_inverse=True)[1]
        group = np.unique(crossed(groups, tuple(groups)), return_inverse=True)[1].astype(np.int64) if groups else None
        return cls(np.asarray(labels), site, unit.astype(np.int64), group)

    def weights(self, rng: np.random.Generator) -> Floats:
        """How often each row is drawn when units are drawn with replacement."""
        count = int(self.unit.max()) + 1
        drawn = np.bincount(rng.integers(0, count, count), minlength=count)
        return drawn[self.unit].astype(np.float64)

    def falling(self, scores: Floats) -> tuple[Floats, Rows, Ints]:
        """Scores and rows in falling order of the scores, and that order."""
        order = np.argsort(-scores, kind="stable") if scores.ndim == 1 else np.arange(len(scores))
        group = None if self.group is None else self.group[order]
        return scores[order], Rows(self.labels[order], self.site[order], self.unit[order], group), order


Figure = Callable[[Floats, Rows, Floats], float]


def auroc(scores: Floats, rows: Rows, weights: Floats) -> float:
    """The weighted share of pairs in the right order."""
    return _or_nan(roc.auroc(scores, rows.labels, weights))


def partial_auroc(scores: Floats, rows: Rows, weights: Floats) -> float:
    """The area up to a false positive rate of 0.3, on McClish's scale."""
    return _or_nan(roc.partial_auroc(scores, rows.labels, MAX_FPR, weights=weights))


def average_precision(scores: Floats, rows: Rows, weights: Floats) -> float:
    """The mean precision over the positives."""
    return _or_nan(roc.average_precision(scores, rows.labels, weights))


def accuracy(scores: Floats, rows: Rows, weights: Floats) -> float:
    """The share of rows whose score has the right sign."""
    right = (scores > 0) == (rows.labels > 0)
    return float(weights @ right / weights.sum())


def worst_site(scores: Floats, rows: Rows, weights: Floats) -> float:
    """Minus the largest mean log loss over the sites with enough rows."""
    return _worst(scores, rows, weights, rows.site)


def worst_group(scores: Floats, rows: Rows, weights: Floats) -> float:
    """Minus the largest mean log loss over the groups with enough rows."""
    assert rows.group is not None
    return _worst(scores, rows, weights, rows.group)


def _worst(scores: Floats, rows: Rows, weights: Floats, part: Ints) -> float:
    loss = np.logaddexp(0.0, np.where(rows.labels > 0, -scores, scores))
    total, size = np.bincount(part, weights * loss), np.bincount(part, weights)
    enough = np.bincount(part) >= LEAST_ROWS
    enough = (enough if enough.any() else np.ones_like(enough)) & (size > 0)
    return -float((total[enough] / size[enough]).max())


@dataclass(frozen=True)
class Aim:
    """One thing that can count."""

    name: str
    figure: Figure
    select: str | None  # the measure by which a run chooses its best round; None: it takes the last
    about: str

    def value(self, scores: Floats, rows: Rows) -> float:
        """The figure on these rows; higher is better, and NaN if there is none."""
        return self.figure(scores, rows, np.ones(len(scores))) if np.isfinite(scores).all() else np.nan

    def gain(self, ours: Floats, theirs: Floats, rows: Rows, seed: int = 0) -> tuple[float, float]:
        """The difference of two models' figures and its standard error, over draws of units."""
        rng, found = np.random.default_rng([seed, 47]), []
        falling = [rows.falling(scores) for scores in (ours, theirs)]  # each draw then sorts what is sorted
        for _ in range(DRAWS if np.isfinite(ours).all() and np.isfinite(theirs).all() else 0):
            w = rows.weights(rng)
            both = [self.figure(s, own, w[order]) for s, own, order in falling]
            if np.isfinite(both).all():
                found.append(both[0] - both[1])
        gap = self.value(ours, rows) - self.value(theirs, rows)
        return gap, float(np.std(found, ddof=1)) if len(found) > 1 else float("inf")


AIMS = {
    aim.name: aim
    for aim in (
        Aim("auroc", auroc, "auroc", "the order of all rows"),
        Aim("average-precision", average_precision, "average_precision", "few false alarms among the highest scores"),
        Aim("partial-auroc", partial_auroc, "partial_auroc_30", "the order at false positive rates up to 0.3"),
        Aim("worst-site", worst_site, "worst loss", "the loss of the site that is served worst"),
        Aim(WORST_GROUP, worst_group, "global loss", "the loss of the group of rows that is served worst"),
        Aim("accuracy", accuracy, "global accuracy", "the share of rows on the right side of one half"),
    )
}


RowLoss = Callable[[Floats, Array], Floats]


def log_losses(scores: Floats, labels: Array) -> Floats:
    """Cross-entropy of each row, from a score for each class."""
    top = scores.max(1)
    return np.asarray(top + np.log(np.exp(scores - top[:, None]).sum(1)) - scores[np.arange(len(labels)), labels])


def squares(scores: Floats, labels: Array) -> Floats:
    """The squared error of each row."""
    return np.asarray((scores - labels) ** 2)


def count_losses(scores: Floats, labels: Array) -> Floats:
    """The Poisson loss of each row, from its count and exposure."""
    with np.errstate(over="ignore"):
        return np.asarray(labels[:, 1] * np.exp(scores) - labels[:, 0] * scores)


def mean_loss(loss: RowLoss, scores: Floats, rows: Rows, weights: Floats) -> float:
    """Minus the mean loss of all rows."""
    return -float(weights @ loss(scores, rows.labels) / weights.sum())


def worst_mean_loss(loss: RowLoss, scores: Floats, rows: Rows, weights: Floats) -> float:
    """Minus the largest mean loss over the sites with enough rows."""
    total, size = np.bincount(rows.site, weights * loss(scores, rows.labels)), np.bincount(rows.site, weights)
    enough = np.bincount(rows.site) >= LEAST_ROWS
    enough = (enough if enough.any() else np.ones_like(enough)) & (size > 0)
    return -float((total[enough] / size[enough]).max())


def partial_likelihood(scores: Floats, rows: Rows, weights: Floats) -> float:
    """The mean log partial likelihood of the events, each site a stratum; ties by Breslow."""
    time, event = rows.labels.T
    order = np.lexsort((-time, rows.site))
    s, t, site, w = scores[order] - scores.max(), time[order], rows.site[order], weights[order]
    total = np.cumsum(w * np.exp(s))
    ends = np.append((np.diff(site) != 0) | (np.diff(t) != 0), True)  # of each time at each site
    last = np.flatnonzero(ends)[np.concatenate([[0], np.cumsum(ends)[:-1]])]
    first = np.searchsorted(site, site, side="left")
    before = np.where(first > 0, total[np.maximum(first - 1, 0)], 0.0)
    counted = w * event[order]
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(counted > 0, counted * (s - np.log(total[last] - before)), 0.0)
    return float(each.sum() / counted.sum()) if counted.sum() > 0 else np.nan


OUTCOME_AIMS = {  # of outcomes other than two classes
    aim.name: aim
    for aim in (
        Aim("log-loss", partial(mean_loss, log_losses), None, "the log loss"),
        Aim("squared-error", partial(mean_loss, squares), None, "the mean squared error"),
        Aim("deviance", partial(mean_loss, count_losses), None, "the Poisson deviance"),
        Aim("partial-likelihood", partial_likelihood, None, "the partial likelihood, each site a stratum"),
        Aim("worst-log-loss", partial(worst_mean_loss, log_losses), None, "the log loss of the worst site"),
        Aim("worst-squared-error", partial(worst_mean_loss, squares), None, "the mean squared error of the worst site"),
        Aim("worst-deviance", partial(worst_mean_loss, count_losses), None, "the deviance of the worst site"),
    )
}


def aim_of(name: object) -> Aim:
    """Look up an aim of two classes."""
    if not isinstance(name, str) or name not in AIMS:
        raise BadInput("aim", name, f"choose one of {', '.join(AIMS)}")
    return AIMS[name]


def known_aim(name: str) -> Aim:
    """An aim of any outcome."""
    return OUTCOME_AIMS[name] if name in OUTCOME_AIMS else aim_of(name)


def _or_nan(figure: float | None) -> float:
    return np.nan if figure is None else figure

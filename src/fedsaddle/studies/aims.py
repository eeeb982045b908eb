"""What counts: the figures that a search can aim for, and whether a difference is more than chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.numerics import roc

DRAWS = 200
MAX_FPR = 0.3
LEAST_ROWS = 10  # of a site that can be the worst
LEAST_POSITIVES = 5


@dataclass(frozen=True, eq=False)
class Rows:
    """Labelled rows of several sites, and to whom each belongs (a patient, or itself)."""

    labels: Ints  # 1 and 0
    site: Ints
    unit: Ints  # 0, 1, ...

    @classmethod
    def of(cls, labels: Ints, offsets: Ints, units: NDArray[np.generic] | None = None) -> Rows:
        """Rows that lie site by site."""
        site = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        unit = np.arange(len(labels)) if units is None else np.unique(units, return_inverse=True)[1]
        return cls(np.asarray(labels, dtype=np.int64), site, unit.astype(np.int64))

    def weights(self, rng: np.random.Generator) -> Floats:
        """How often each row is drawn when units are drawn with replacement."""
        count = int(self.unit.max()) + 1
        drawn = np.bincount(rng.integers(0, count, count), minlength=count)
        return drawn[self.unit].astype(np.float64)

    def falling(self, scores: Floats) -> tuple[Floats, Rows, Ints]:
        """Scores and rows in falling order of the scores, and that order."""
        order = np.argsort(-scores, kind="stable")
        return scores[order], Rows(self.labels[order], self.site[order], self.unit[order]), order


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
    loss = np.logaddexp(0.0, np.where(rows.labels > 0, -scores, scores))
    total, size = np.bincount(rows.site, weights * loss), np.bincount(rows.site, weights)
    enough = np.bincount(rows.site) >= LEAST_ROWS
    enough = (enough if enough.any() else np.ones_like(enough)) & (size > 0)
    return -float((total[enough] / size[enough]).max())


@dataclass(frozen=True)
class Aim:
    """One thing that can count."""

    name: str
    figure: Figure
    select: str  # the measure by which a run chooses its best round
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
        Aim("accuracy", accuracy, "global accuracy", "the share of rows on the right side of one half"),
    )
}


def aim_of(name: object) -> Aim:
    """Look up an aim."""
    if not isinstance(name, str) or name not in AIMS:
        raise BadInput("aim", name, f"choose one of {', '.join(AIMS)}")
    return AIMS[name]


def _or_nan(figure: float | None) -> float:
    return np.nan if figure is None else figure

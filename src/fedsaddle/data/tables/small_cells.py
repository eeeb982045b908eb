"""Small-cell suppression: counts below `least` are merged, moved or withheld before anything leaves a site.

Every disclosed count is 0 or at least `least`. A simulation of the same sites applies the same rules, so that a
deployed run keeps its bits. With `least` 1 nothing changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.table import Encoded
from fedsaddle.data.tables.treatment import (
    CategoryFacts,
    ColumnMoments,
    NumberFacts,
    bin_of,
    count_between,
    standardised,
)

MOMENTS = 6  # that are sent of a number column: mean, squares and cubes, of the numbers and of their logs
LEAST_CELLS = 2 * MOMENTS  # fewer numbers could be reconstructed from the moments


@dataclass(frozen=True)
class Disclosure:
    """What a site may disclose of its labels: counts of at least `least`, and values that the config lists anyway."""

    least: int = 1
    classes: tuple[str, ...] = ()  # labels that the config lists
    positive: str | int | bool | None = None
    task: str = "auto"

    @property
    def named(self) -> frozenset[str]:
        """Labels whose names the config has."""
        own = () if self.positive is None else (str(self.positive), str(self.positive).lower())
        return frozenset((*self.classes, *own))


def suppress_small_columns(facts: NumberFacts, least: int) -> NumberFacts:
    """Treat columns with too few numbers at a site as empty there, and too few missing cells as the site's mean.

    This leaves the mean and the sums of deviations unchanged.
    """
    if least <= 1:
        return facts
    rows = facts.count + facts.missing
    empty = facts.count < max(least, LEAST_CELLS)
    count = np.where(empty, 0, np.where(facts.missing < least, rows, facts.count))

    def suppressed(moments: ColumnMoments) -> ColumnMoments:
        return ColumnMoments(*(np.where(empty, 0.0, part) for part in (moments.mean, moments.squares, moments.cubes)))

    return replace(facts, count=count, missing=rows - count, plain=suppressed(facts.plain), logs=suppressed(facts.logs))


def merge_small_bins(draft: Encoded, cells: Floats, facts: NumberFacts, site: int, least: int) -> Ints:
    """The counts between agreed edges of one site's cells; `facts` are from before `suppress_small_columns`."""
    counts = count_between(standardised(draft, cells))
    if least <= 1:
        return counts
    if facts.count[site] < max(least, LEAST_CELLS):
        return np.zeros_like(counts)
    missing = int(facts.missing[site])
    if missing < least:
        mean = float((facts.logs if draft.log else facts.plain).mean[site])
        counts[bin_of(np.array([(mean - draft.mean) / draft.std]))] += missing
    return merge_bins(counts, least)


def merge_bins(counts: Ints, least: int) -> Ints:
    """Merge small bins into the midpoint of their range, so that each has 0 or at least `least`; the sum is unchanged.

    Examples:
        >>> merge_bins(np.array([3, 0, 4, 9, 0, 1]), 5).tolist()
        [0, 7, 0, 0, 10, 0]
    """
    groups: list[tuple[int, int, int]] = []  # first bin, last bin, count
    first, total = -1, 0
    for at in np.flatnonzero(counts).tolist():
        first, total = (at if total == 0 else first), total + int(counts[at])
        if total >= least:
            groups.append((first, at, total))
            total = 0
        last = at
    if total and groups:
        before = groups.pop()
        groups.append((before[0], last, before[2] + total))
    merged = np.zeros_like(counts)
    for low, high, count in groups:
        merged[(low + high) // 2] += count
    return merged


def suppress_rare_categories(facts: CategoryFacts, least: int) -> CategoryFacts:
    """Merge rare values into "other", and too few of those, or of missing cells, into the most common value."""
    if least <= 1:
        return facts
    counts = {value: n for value, n in facts.counts.items() if n >= least}
    other = sum(facts.counts.values()) - sum(counts.values()) + facts.other
    missing = facts.missing
    if counts:
        commonest = min(counts, key=lambda value: (-counts[value], value))
        if other < least:
            counts[commonest], other = counts[commonest] + other, 0
        if missing < least:
            counts[commonest], missing = counts[commonest] + missing, 0
    elif other < least:
        other, missing = 0, missing + other
    elif missing < least:
        other, missing = other + missing, 0
    return replace(facts, counts=counts, other=other, missing=missing)


def suppress_rare_labels(counts: Sequence[int] | Ints, least: int) -> tuple[list[int], int]:
    """The disclosed counts of classes, 0 for the others, and the number of rows of the others together.

    That number is disclosed too, so it must not be small either: if it is, the rarest disclosed class joins the others.

    Examples:
        >>> suppress_rare_labels([97, 3], 5), suppress_rare_labels([50, 47, 3], 5), suppress_rare_labels([60, 40], 5)
        (([0, 0], 100), ([50, 0, 0], 50), ([60, 40], 0))
    """
    disclosed = [int(n) if n >= least else 0 for n in counts]
    rest = int(sum(counts)) - sum(disclosed)
    while 0 < rest < least and any(disclosed):
        rarest = min((n, k) for k, n in enumerate(disclosed) if n)[1]
        rest, disclosed[rarest] = rest + disclosed[rarest], 0
    return disclosed, rest


def disclosed_label_counts(labels: NDArray[np.generic], offsets: Ints, classes: int, least: int) -> list[int]:
    """The rows of each class over simulated sites, as a server of real sites would know them."""
    total = np.zeros(classes, dtype=np.int64)
    for first, end in itertools.pairwise(offsets):
        total += suppress_rare_labels(np.bincount(labels[first:end], minlength=classes), least)[0]
    return [int(n) for n in total]

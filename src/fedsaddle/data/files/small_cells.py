"""No small cell leaves a site: counts below `least` are merged, moved or withheld before anything is told.

Every count that is told is 0 or at least `least`. A simulation of the same sites applies the same rules, so that a
deployed run keeps its bits. With `least` 1 nothing changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.encoded import Encoded
from fedsaddle.data.files.column_facts import (
    CategoryFacts,
    Floats,
    Ints,
    Moments,
    NumberFacts,
    bin_of,
    count_between,
)
from fedsaddle.data.files.treatment import standardised

MOMENTS = 6  # of a column of numbers: mean, squares and cubes, of the numbers and of their logs
LEAST_CELLS = 2 * MOMENTS  # fewer numbers could be solved for


@dataclass(frozen=True)
class Telling:
    """What a site may tell of its labels: the least cell, and what the config says of the labels anyway."""

    least: int = 1
    classes: tuple[str, ...] = ()  # labels that the config lists
    positive: str | int | bool | None = None
    task: str = "auto"

    @property
    def named(self) -> frozenset[str]:
        """Labels whose names the config has."""
        own = () if self.positive is None else (str(self.positive), str(self.positive).lower())
        return frozenset((*self.classes, *own))


def tell_numbers(facts: NumberFacts, least: int) -> NumberFacts:
    """Columns with too few numbers at a site are empty there; too few gaps are taken as cells at the site's mean.

    The mean and the sums of deviations are then what they were.
    """
    if least <= 1:
        return facts
    rows = facts.count + facts.missing
    empty = facts.count < max(least, LEAST_CELLS)
    count = np.where(empty, 0, np.where(facts.missing < least, rows, facts.count))

    def kept(moments: Moments) -> Moments:
        return Moments(*(np.where(empty, 0.0, part) for part in (moments.mean, moments.squares, moments.cubes)))

    return replace(facts, count=count, missing=rows - count, plain=kept(facts.plain), logs=kept(facts.logs))


def tell_bins(draft: Encoded, cells: Floats, facts: NumberFacts, site: int, least: int) -> Ints:
    """The counts between agreed edges of one site's cells; `facts` are from before `tell_numbers`."""
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
    """The same sum in bins that have 0 or at least `least`: neighbours meet in the middle between them.

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


def tell_categories(facts: CategoryFacts, least: int) -> CategoryFacts:
    """Rare values are told as "other", without their names; too few of them, or of gaps, count with the commonest."""
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


def tell_labels(counts: Sequence[int] | Ints, least: int) -> tuple[list[int], int]:
    """The counts of classes that are told, 0 for others, and how many rows the others have together.

    The rest is told as a sum, so that it must not be small either: then the rarest of those that are told joins it.

    >>> tell_labels([97, 3], 5), tell_labels([50, 47, 3], 5), tell_labels([60, 40], 5)
    (([0, 0], 100), ([50, 0, 0], 50), ([60, 40], 0))
    """
    told = [int(n) if n >= least else 0 for n in counts]
    rest = int(sum(counts)) - sum(told)
    while 0 < rest < least and any(told):
        rarest = min((n, k) for k, n in enumerate(told) if n)[1]
        rest, told[rarest] = rest + told[rarest], 0
    return told, rest


def told_label_counts(labels: NDArray[Any], offsets: Ints, classes: int, least: int) -> list[int]:
    """The rows of each class over simulated sites, as a server of real sites would know them."""
    total = np.zeros(classes, dtype=np.int64)
    for first, end in itertools.pairwise(offsets):
        total += tell_labels(np.bincount(labels[first:end], minlength=classes), least)[0]
    return [int(n) for n in total]

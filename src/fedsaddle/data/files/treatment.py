"""The agreed treatment of a table's columns: what the facts of all sites make of each column.

- A number column is filled with the median, logged where it is skewed, standardised and cut to ±5 deviations; where
  cells are missing, a flag says so. On request it gets hinges at its quartiles.
- A category column becomes a 0/1 feature for each value; rare values are pooled as "other", missing cells are a value.
- On request each site has an intercept: a 0/1 feature, whose share of the rows stands for it at a new site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedsaddle.data.encoded import Encoded, Floats, signed_log
from fedsaddle.data.files.column_facts import CategoryFacts, Ints, NumberFacts, quantile

SKEWED = 2.0  # skewness beyond which a column is logged
CLIP = 5.0  # standard deviations
LEAST_ROWS = 10  # of a category; those with fewer are pooled
LEAST_MISSING = 10  # cells for a missing flag
MOST_CATEGORIES = 100  # features of one column
MOST_INTERCEPTS = 500  # sites with an intercept of their own: the largest ones
LEAST_SHAPES = 8  # different values that a column with hinges has, about


@dataclass(frozen=True)
class Treatment:
    """What is agreed before anybody looks at a row."""

    standardise: bool = True  # False: numbers as they are, filled
    hinges: int = 0  # of each number column
    site_intercept: bool = False
    minimum_cell: int = 1  # of counts that a site tells
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)  # column -> its values, where they are listed


def treat_numbers(facts: NumberFacts, how: Treatment) -> Encoded:
    """How a number column is transformed; what fills its gaps is settled by `with_median`."""
    plain, logs = facts.plain.merged(facts.count), facts.logs.merged(facts.count)
    log = how.standardise and plain.skew > SKEWED and abs(logs.skew) < plain.skew
    shape = logs if log else plain
    return Encoded(facts.name, log=log, mean=shape.mean, std=shape.std, clip=CLIP if how.standardise else None)


def number_features(draft: Encoded, counts: Ints, missing: int, how: Treatment) -> list[Encoded]:
    """The features of a number column, from counts of its standardised cells."""
    median = quantile(counts, 0.5) if counts.sum() else 0.0
    fill = _back(draft, median)
    if how.standardise:
        number = replace(draft, fill=fill)
    else:
        number = Encoded(draft.column, fill=fill, written=draft.written)
    found = [number]
    if missing >= LEAST_MISSING:
        found.append(Encoded(draft.column, "missing", written=draft.written))
    if how.hinges and (counts > 0).sum() >= LEAST_SHAPES:
        knots = {quantile(counts, (k + 1) / (how.hinges + 1)) for k in range(how.hinges)}
        found += [replace(number, kind="hinge", knot=knot) for knot in sorted(knots)]
    return found


def category_features(facts: CategoryFacts, listed: Sequence[str] = ()) -> list[Encoded]:
    """A feature for each frequent value, one for the rest together and one for missing cells.

    Where the config lists the values, each of them has a feature. Of two values that are never missing, one feature is
    enough.
    """
    counts = {**dict.fromkeys(listed, 0), **facts.counts}
    frequent = sorted(counts, key=lambda value: (-counts[value], value))[:MOST_CATEGORIES]
    kept = sorted(value for value in frequent if counts[value] >= LEAST_ROWS) or sorted(frequent[:2])
    kept = sorted(set(listed)) or kept
    rest = sum(counts.values()) + facts.other - sum(counts[value] for value in kept)
    if len(kept) == 2 and not rest and facts.missing < LEAST_MISSING:
        kept = [min(kept, key=lambda value: (counts[value], value))]
    found = [Encoded(facts.name, "category", category=value) for value in kept]
    if rest:
        found.append(Encoded(facts.name, "other", known=tuple(kept)))
    if facts.missing >= LEAST_MISSING:
        found.append(Encoded(facts.name, "missing"))
    return found


def site_features(column: str, names: Sequence[str], sizes: Ints) -> list[Encoded]:
    """An intercept for each site, or for the largest ones if there are very many; `sizes` are training rows."""
    largest = np.sort(np.argsort(-sizes, kind="stable")[:MOST_INTERCEPTS])
    total = int(sizes.sum())
    return [
        Encoded(column, "site", category=names[i], unknown=float(sizes[i] / total)) for i in largest if sizes[i] > 0
    ]


def standardised(draft: Encoded, cells: Floats) -> Floats:
    """The cells in standard deviations, NaN where they are missing: what the counts are of."""
    return np.asarray(((signed_log(cells) if draft.log else cells) - draft.mean) / draft.std)


def _back(draft: Encoded, z: float) -> float:
    """The cell that is `z` standard deviations from the mean."""
    v = draft.mean + z * draft.std
    return float(np.copysign(np.expm1(abs(v)), v)) if draft.log else float(v)

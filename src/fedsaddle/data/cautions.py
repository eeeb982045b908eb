"""Cautions before training: columns that give the label away, few positives or rows at sites, other units.

Of real sites also: categories that a site spells in its own way, codes such as -999 among numbers, labels that look
swapped and the same rows at two sites. All of it follows from the statistics of columns that sites send anyway, and
from a keyed digest of their rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Ints
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.table import Array, Encoded
from fedsaddle.data.tables.small_cells import LEAST_CELLS
from fedsaddle.data.tables.treatment import BINS, REACH, NumberFacts, quantile
from fedsaddle.text import visible

FEW = 5  # positives
TINY = 10  # rows
NAMED = 5  # sites that a line names
FAR = 5.0  # a site's mean, in standard deviations of the other sites' means beyond what its size explains
MOST_LINES = 20  # about columns
MANY = 30  # categories at a site: more differ between sites anyway
CODES = (99.0, 999.0, 9999.0, 99999.0, 888.0, 8888.0, 777.0, 7777.0, -9.0, -99.0, -999.0, -9999.0, -99999.0, -888.0)
LONELY = 10.0  # a code's least distance from the other cells, in their standard deviations
WIDTH = 2 * REACH / BINS  # of a bin, in standard deviations


@dataclass(frozen=True, eq=False)
class SitesSeen:
    """Statistics of the training rows of each of S sites, in a simulation as at real sites."""

    names: Sequence[str]
    sizes: Ints  # (S,)
    classes: Sequence[str] = ()
    labels: Ints | None = None  # rows of each class, (S, classes)
    numbers: Sequence[Encoded] = ()  # columns of numbers,
    means: Array | None = None  # their means at each site in standard deviations, (S, columns)
    cells: Ints | None = None  # and how many cells those are of, (S, columns)
    facts: Sequence[NumberFacts] = ()  # of the columns of numbers; from real sites only,
    bins: Sequence[Ints] = ()  # and their cells in bins from -5 to 5 standard deviations, (S, bins)
    categories: Mapping[str, Sequence[Mapping[str, int]]] = field(default_factory=dict)  # column -> counts at each site
    digests: Sequence[str] = ()  # of all rows of each site; equal ones are of equal rows

    @classmethod
    def of(cls, data: FederatedData) -> SitesSeen:
        """Of simulated sites."""
        sizes, labels, numbers, means = data.train.sizes, None, [], None
        if len(data.classes) == 2 and data.train.y.ndim == 1:
            owner = np.repeat(np.arange(data.count), sizes)
            labels = np.bincount(2 * owner + data.train.y.numpy(), minlength=2 * data.count).reshape(-1, 2)
        if data.train.x.ndim == 2:
            numbers = [k for k, feature in enumerate(data.encoding) if feature.kind == "number"]
        if numbers:
            sums = np.add.reduceat(data.train.x[:, numbers].numpy(), data.train.offsets[:-1])
            means = sums / sizes[:, None]
        return cls(data.names, sizes, data.classes, labels, [data.encoding[k] for k in numbers], means)


def cautions(data: FederatedData) -> list[str]:
    """Lines about the rows of each site, for data of two classes."""
    seen, held = SitesSeen.of(data), []
    if seen.labels is not None:
        rare = int(seen.labels.sum(axis=0).argmin())
        for part, rows in (("validation", data.validation), ("test", data.test)):
            if rows is not None and (n := int((rows.y == rare).sum())) < FEW:
                held.append(
                    f"only {n} of the {part} rows are {visible(data.classes[rare])!r}: figures on them say little"
                )
    return [*_leaks(data), *_positives(seen), *_swapped(seen), *held, *_tiny(seen), *_other_units(seen)]


def cautions_of_run(data: FederatedData) -> list[str]:
    """Lines about data of two classes that make the figures of any run on them misleading, or leave them out."""
    leaks = _leaks(data)
    for part, rows in (("validation", data.validation), ("test", data.test)):
        if len(data.classes) == 2 and rows is not None and rows.y.ndim == 1:
            there = np.unique(rows.y.numpy())
            if len(there) == 1:
                name = visible(data.classes[int(there[0])])
                leaks.append(
                    f"all {part} rows are {name!r}: there is no AUROC or average precision without both classes"
                )
    return leaks


def cautions_of_sites(seen: SitesSeen) -> list[str]:
    """Lines about the training rows of each site."""
    columns = [*_codes(seen), *_spelling(seen), *_other_units(seen)]
    return [*_same_rows(seen), *_positives(seen), *_swapped(seen), *_tiny(seen), *columns]


def _same_rows(seen: SitesSeen) -> list[str]:
    """Sites with one and the same file."""
    sites: dict[str, list[int]] = {}
    for site, digest in enumerate(seen.digests):
        sites.setdefault(digest, []).append(site)
    return [
        f"{_sites(seen.names, np.array(same))} have the same rows: is it the same file? Rows of one are test rows of "
        "another"
        for digest, same in sites.items()
        if digest and len(same) > 1
    ]


def _swapped(seen: SitesSeen) -> list[str]:
    """Sites whose share of a class is that of the other class elsewhere."""
    if seen.labels is None or len(seen.classes) != 2 or len(seen.sizes) < 2:
        return []
    known = np.flatnonzero(seen.labels.sum(axis=1) == seen.sizes)
    lines = []
    for i in known.tolist():
        others = seen.labels[known[known != i]].sum(axis=0)
        if not others.all():
            continue
        share, usual = seen.labels[i, 1] / seen.sizes[i], others[1] / others.sum()
        chance = math.sqrt(usual * (1 - usual) * (1 / seen.sizes[i] + 1 / others.sum()))
        opposite = abs(share - (1 - usual)) < max(3 * chance, 0.05)
        if opposite and abs(share - usual) > max(6 * chance, 0.3):
            name = visible(seen.classes[1])
            lines.append(
                f"site {visible(seen.names[i])!r} has {share:.0%} rows that are {name!r}, the other sites {usual:.0%}: "
                "are the labels swapped there?"
            )
    return lines[:1] if len(known) == 2 else lines[:NAMED]


def _spelling(seen: SitesSeen) -> list[str]:
    """Categories that differ between sites in case or spaces only, and sites with none of the others' categories."""
    lines = []
    for column, sites in seen.categories.items():
        line = _other_case(seen, column, sites) or _other_words(seen, column, sites)
        lines += [line] if line else []
    return lines[:MOST_LINES]


def _other_case(seen: SitesSeen, column: str, sites: Sequence[Mapping[str, int]]) -> str:
    total: dict[str, dict[str, int]] = {}
    for own in sites:
        for value, n in own.items():
            spelt = total.setdefault(" ".join(value.casefold().split()), {})
            spelt[value] = spelt.get(value, 0) + n
    usual = {folded: max(spelt, key=lambda v: (spelt[v], v)) for folded, spelt in total.items()}
    for name, own in zip(seen.names, sites, strict=True):
        odd = {value: usual[" ".join(value.casefold().split())] for value in own}
        odd = {value: other for value, other in odd.items() if value != other}
        if odd:
            return (
                f"column {visible(column)!r} at site {visible(name)!r} has {_quoted(odd)} where other sites have "
                f"{_quoted(odd.values())}: these count as different categories; write them alike"
            )
    return ""


def _other_words(seen: SitesSeen, column: str, sites: Sequence[Mapping[str, int]]) -> str:
    """A site that has no category in common with the others, which have some in common among themselves."""
    there = [i for i, own in enumerate(sites) if 0 < len(own) <= MANY]
    if len(there) < 2:
        return ""
    alone = [i for i in there if not any(set(sites[i]) & set(sites[k]) for k in there if k != i)]
    if not alone or (len(there) > 2 and 2 * len(alone) >= len(there)):
        return ""
    i = alone[-1]
    others = sorted({value for k in there if k != i for value in sites[k]})
    return (
        f"column {visible(column)!r} at site {visible(seen.names[i])!r} has {_quoted(sites[i])}, and none of the "
        f"categories of the other sites ({_quoted(others)}): the same in other words?"
    )


def _quoted(values: Iterable[str]) -> str:
    every = list(values)
    return ", ".join(repr(visible(v)) for v in every[:4]) + (", ..." if len(every) > 4 else "")


def _codes(seen: SitesSeen) -> list[str]:
    """Numbers such as -999 that lie far from all others: perhaps codes for missing cells."""
    lines = []
    for how, facts, counts in zip(seen.numbers, seen.facts, seen.bins, strict=False):
        for i, name in enumerate(seen.names):
            code = _code(how, facts, i, counts[i])
            if code is not None:
                lines.append(
                    f"column {visible(how.column)!r} at site {visible(name)!r} seems to have {code[0]:g} in about "
                    f"{code[1]:.1%} of its cells, far from all others: a code for missing? Leave such cells empty"
                )
    return lines[:MOST_LINES]


def _code(how: Encoded, facts: NumberFacts, site: int, counts: Ints) -> tuple[float, float] | None:
    """The code among a site's cells, and its share of them; None if there is none.

    A share s of cells at a distance D from the others, which have a centre c and a spread σ, has moments about c of
    sD, sD² + σ² and sD³: three equations for s and D.
    """
    n = int(facts.count[site])
    if n < LEAST_CELLS or not counts.any():
        return None
    low, middle, high = (quantile(counts, share) for share in (0.4, 0.5, 0.6))
    centre, bin_ = _value(how, middle), abs(_value(how, middle + WIDTH / 2) - _value(how, middle - WIDTH / 2))
    spread = abs(_value(how, high) - _value(how, low)) / 0.5067  # of a normal distribution
    squares, cubes = float(facts.plain.squares[site]) / n, float(facts.plain.cubes[site]) / n
    first = float(facts.plain.mean[site]) - centre
    second, third = squares + first**2 - spread**2, cubes + 3 * first * squares + first**3
    if second <= 0 or not third:
        return None
    away = third / second
    share = second / away**2
    if not 1 / n <= share < 0.4 or abs(away) < LONELY * spread:
        return None
    slack = 0.35 * spread  # the median of all cells is not the mean of the others
    if abs(first - second / away) > bin_ + slack + 0.1 * abs(second / away):
        return None
    code = min(CODES, key=lambda c: abs(c - centre - away))
    return (code, share) if abs(code - centre - away) <= slack + 0.02 * abs(code) else None


def _leaks(data: FederatedData) -> list[str]:
    """Columns that alone separate the two classes of the training rows: the label itself, or a consequence of it."""
    x, y = data.train.x, data.train.y
    if len(data.classes) != 2 or y.ndim > 1 or x.ndim != 2 or not x.is_floating_point():
        return []
    up = y == 1
    if min(int(up.sum()), int((~up).sum())) < FEW:
        return []
    above, below = x[up], x[~up]
    lowest, highest = (above.amin(0), below.amin(0)), (above.amax(0), below.amax(0))
    apart = (lowest[0] > highest[1]) | (lowest[1] > highest[0])
    names = [f.column for f in data.encoding] or [f"feature {k}" for k in range(x.shape[1])]
    own = [not data.encoding or data.encoding[k].kind != "site" for k in range(x.shape[1])]
    leaking = {names[k] for k in torch.nonzero(apart).flatten().tolist() if own[k]}
    leaking |= {column for column, at in _categories(data).items() if column not in leaking and _decide(x[:, at], up)}
    named = [name for name in dict.fromkeys(names) if name in leaking]
    classes = f"{visible(data.classes[1])!r} from {visible(data.classes[0])!r}"
    most = [
        f"column {visible(name)!r} alone separates {classes} in all training rows: if it is the label, or known only "
        "after it, leave the column out"
        for name in named[:NAMED]
    ]
    return [*most, *([f"and so do {len(named) - NAMED} more columns"] if len(named) > NAMED else [])]


def _categories(data: FederatedData) -> dict[str, list[int]]:
    """The features of each column of categories."""
    places: dict[str, list[int]] = {}
    for k, feature in enumerate(data.encoding):
        if feature.kind in ("category", "other", "missing"):
            places.setdefault(feature.column, []).append(k)
    return {column: at for column, at in places.items() if len(at) > 1}


def _decide(features: Tensor, up: Tensor) -> bool:
    """Whether every category, of ten rows on average, has rows of one class only."""
    for some in (slice(0, 1000), slice(None)):  # most columns are decided by a few rows
        _, which = np.unique(features[some].numpy(), axis=0, return_inverse=True)
        rows, positive = np.bincount(which), np.bincount(which, weights=up[some].numpy())
        if ((positive > 0) & (positive < rows)).any():
            return False
    return len(rows) * TINY <= len(up)


def _positives(seen: SitesSeen) -> list[str]:
    """Lines about the rarer of two classes."""
    if seen.labels is None or len(seen.classes) != 2:
        return []
    rare = int(seen.labels.sum(axis=0).argmin())
    own, rows = seen.labels[:, rare], int(seen.sizes.sum())
    name, total, lines = visible(seen.classes[rare]), int(own.sum()), []
    if total < 2 * FEW:
        lines.append(
            f"only {total} of {rows:,} training rows are {name!r}: too few to learn from or to measure with; "
            "every figure below is uncertain"
        )
    elif total / rows < 1e-3:
        lines.append(f"only {total} of {rows:,} training rows are {name!r}")
    known = seen.labels.sum(axis=1) == seen.sizes  # real sites suppress small counts
    if not known.all():
        unknown = np.flatnonzero(~known)
        lines.append(f"{_sites(seen.names, unknown)} {_have(unknown)} too few rows of a class to tell how many")
    single = np.flatnonzero(known & ((own == 0) | (own == seen.sizes)))
    if len(single):
        lines.append(f"{_sites(seen.names, single)} {_have(single)} training rows of one class only")
    few = np.flatnonzero(known & (own < FEW) & (own > 0) & (own < seen.sizes))
    if len(few):
        text = f"{_sites(seen.names, few)} {_have(few)} fewer than {FEW} training rows that are {name!r}"
        lines.append(f"{text}: they count in the pool, but have no ranked figure of their own")
    return lines


def _tiny(seen: SitesSeen) -> list[str]:
    tiny = np.flatnonzero(seen.sizes < TINY)
    return [f"{_sites(seen.names, tiny)} {_have(tiny)} fewer than {TINY} training rows"] if len(tiny) else []


def _other_units(seen: SitesSeen) -> list[str]:
    """Columns whose mean at one site is far from that of every other site: perhaps in other units there."""
    if seen.means is None:
        return []
    lines = []
    for k, how in enumerate(seen.numbers):
        cells = seen.sizes if seen.cells is None else seen.cells[:, k]
        there = np.flatnonzero(cells)
        if len(there) < 3 or _yes_or_no(how):
            continue
        means = seen.means[there, k]
        for i in _far(means, cells[there]):
            name, at = visible(how.column), visible(seen.names[there[i]])
            lines.append(
                f"column {name!r} at site {at!r} is far from the other sites (mean {_raw(how, means[i])}, "
                f"elsewhere {_raw(how, float(np.median(np.delete(means, i))))}): other units there?"
            )
    return lines[:MOST_LINES]


def _yes_or_no(how: Encoded) -> bool:
    """Whether a column holds 0 and 1 only, by its moments: it has no units, and is rare at most sites."""
    one = math.log(2) if how.log else 1.0
    share = how.mean / one
    return 0 < share < 1 and math.isclose(how.std**2, one**2 * share * (1 - share), rel_tol=1e-6)


def _far(means: Array, sizes: Ints) -> list[int]:
    """Sites whose mean is far out, beyond their spread and what chance explains (features have deviation 1)."""
    centre = float(np.median(means))
    spread = 1.4826 * float(np.median(np.abs(means - centre)))
    away = np.abs(means - centre)
    return [int(i) for i in np.flatnonzero((away > 1.5) & (away > FAR * np.sqrt(spread**2 + 1 / sizes)))]


def _raw(how: Encoded, z: float) -> str:
    """A standardised mean in the units of the file."""
    return f"{_value(how, z):.4g}"


def _value(how: Encoded, z: float) -> float:
    v = how.mean + how.std * z
    return float(np.copysign(np.expm1(min(abs(v), 700.0)), v)) if how.log else float(v)


def _sites(names: Sequence[str], at: Ints) -> str:
    if len(at) == 1:
        return f"site {visible(names[at[0]])!r}"
    some = ", ".join(visible(names[i]) for i in at[:NAMED])
    return f"{len(at)} sites ({some}{', ...' if len(at) > NAMED else ''})"


def _have(at: Ints) -> str:
    return "has" if len(at) == 1 else "have"

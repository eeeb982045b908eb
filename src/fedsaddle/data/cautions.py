"""What to say before training: sites with few positives, other units at a site, tiny sites, few rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.encoded import Encoded
from fedsaddle.data.federated import FederatedData
from fedsaddle.shown import visible

FEW = 5  # positives
TINY = 10  # rows
NAMED = 5  # sites that a line names
FAR = 5.0  # a site's mean, in standard deviations of the other sites' means beyond what its size explains
MOST_LINES = 20  # about columns

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SitesSeen:
    """What is known of the training rows of each of S sites, in a simulation as at real sites."""

    names: Sequence[str]
    sizes: Ints  # (S,)
    classes: Sequence[str] = ()
    labels: Ints | None = None  # rows of each class, (S, classes)
    numbers: Sequence[Encoded] = ()  # columns of numbers,
    means: NDArray[Any] | None = None  # their means at each site in standard deviations, (S, columns)
    cells: Ints | None = None  # and how many cells those are of, (S, columns)

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
    return [*_positives(seen), *held, *_tiny(seen), *_other_units(seen)]


def cautions_of_sites(seen: SitesSeen) -> list[str]:
    """Lines about the training rows of each site."""
    return [*_positives(seen), *_tiny(seen), *_other_units(seen)]


def _positives(seen: SitesSeen) -> list[str]:
    """Lines about the rarer of two classes."""
    if seen.labels is None or len(seen.classes) != 2:
        return []
    rare = int(seen.labels.sum(axis=0).argmin())
    own, rows = seen.labels[:, rare], int(seen.sizes.sum())
    name, total, found = visible(seen.classes[rare]), int(own.sum()), []
    if total < 2 * FEW:
        found.append(
            f"only {total} of {rows:,} training rows are {name!r}: too few to learn from or to measure with; "
            "every figure below is uncertain"
        )
    elif total / rows < 1e-3:
        found.append(f"only {total} of {rows:,} training rows are {name!r}")
    known = seen.labels.sum(axis=1) == seen.sizes  # real sites do not tell small counts
    if not known.all():
        unknown = np.flatnonzero(~known)
        found.append(f"{_sites(seen.names, unknown)} {_have(unknown)} too few rows of a class to tell how many")
    single = np.flatnonzero(known & ((own == 0) | (own == seen.sizes)))
    if len(single):
        found.append(f"{_sites(seen.names, single)} {_have(single)} training rows of one class only")
    few = np.flatnonzero(known & (own < FEW) & (own > 0) & (own < seen.sizes))
    if len(few):
        text = f"{_sites(seen.names, few)} {_have(few)} fewer than {FEW} training rows that are {name!r}"
        found.append(f"{text}: they count in the pool, but have no ranked figure of their own")
    return found


def _tiny(seen: SitesSeen) -> list[str]:
    tiny = np.flatnonzero(seen.sizes < TINY)
    return [f"{_sites(seen.names, tiny)} {_have(tiny)} fewer than {TINY} training rows"] if len(tiny) else []


def _other_units(seen: SitesSeen) -> list[str]:
    """Columns whose mean at one site is far from that of every other site: perhaps in other units there."""
    if seen.means is None:
        return []
    found = []
    for k, how in enumerate(seen.numbers):
        cells = seen.sizes if seen.cells is None else seen.cells[:, k]
        there = np.flatnonzero(cells)
        if len(there) < 3 or _yes_or_no(how):
            continue
        means = seen.means[there, k]
        for i in _far(means, cells[there]):
            name, at = visible(how.column), visible(seen.names[there[i]])
            found.append(
                f"column {name!r} at site {at!r} is far from the other sites (mean {_raw(how, means[i])}, "
                f"elsewhere {_raw(how, float(np.median(np.delete(means, i))))}): other units there?"
            )
    return found[:MOST_LINES]


def _yes_or_no(how: Encoded) -> bool:
    """Whether a column holds 0 and 1 only, by its moments: it has no units, and is rare at most sites."""
    one = math.log(2) if how.log else 1.0
    share = how.mean / one
    return 0 < share < 1 and math.isclose(how.std**2, one**2 * share * (1 - share), rel_tol=1e-6)


def _far(means: NDArray[Any], sizes: Ints) -> list[int]:
    """Sites whose mean is far out, beyond their spread and what chance explains (features have deviation 1)."""
    centre = float(np.median(means))
    spread = 1.4826 * float(np.median(np.abs(means - centre)))
    away = np.abs(means - centre)
    return [int(i) for i in np.flatnonzero((away > 1.5) & (away > FAR * np.sqrt(spread**2 + 1 / sizes)))]


def _raw(how: Encoded, z: float) -> str:
    """A standardised mean in the units of the file."""
    v = how.mean + how.std * z
    return f"{np.copysign(np.expm1(abs(v)), v) if how.log else v:.4g}"


def _sites(names: Sequence[str], at: Ints) -> str:
    if len(at) == 1:
        return f"site {visible(names[at[0]])!r}"
    some = ", ".join(visible(names[i]) for i in at[:NAMED])
    return f"{len(at)} sites ({some}{', ...' if len(at) > NAMED else ''})"


def _have(at: Ints) -> str:
    return "has" if len(at) == 1 else "have"

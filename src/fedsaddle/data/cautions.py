"""What to say before training: columns that give the label away, few positives or rows at sites, other units."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
    return [*_leaks(data), *_positives(seen), *held, *_tiny(seen), *_other_units(seen)]


def cautions_of_run(data: FederatedData) -> list[str]:
    """Lines about data of two classes that make the figures of any run on them misleading, or leave them out."""
    found = _leaks(data)
    for part, rows in (("validation", data.validation), ("test", data.test)):
        if len(data.classes) == 2 and rows is not None and rows.y.ndim == 1:
            there = np.unique(rows.y.numpy())
            if len(there) == 1:
                name = visible(data.classes[int(there[0])])
                found.append(
                    f"all {part} rows are {name!r}: there is no AUROC or average precision without both classes"
                )
    return found


def cautions_of_sites(seen: SitesSeen) -> list[str]:
    """Lines about the training rows of each site."""
    return [*_positives(seen), *_tiny(seen), *_other_units(seen)]


def _leaks(data: FederatedData) -> list[str]:
    """Columns that alone separate the two classes of the training rows: the label itself, or what follows from it."""
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
    found = {names[k] for k in torch.nonzero(apart).flatten().tolist() if own[k]}
    found |= {column for column, at in _categories(data).items() if column not in found and _decide(x[:, at], up)}
    named = [name for name in dict.fromkeys(names) if name in found]
    classes = f"{visible(data.classes[1])!r} from {visible(data.classes[0])!r}"
    most = [
        f"column {visible(name)!r} alone separates {classes} in all training rows: if it is the label, or known only "
        "after it, leave the column out"
        for name in named[:NAMED]
    ]
    return [*most, *([f"and so do {len(named) - NAMED} more columns"] if len(named) > NAMED else [])]


def _categories(data: FederatedData) -> dict[str, list[int]]:
    """The features of each column of categories."""
    found: dict[str, list[int]] = {}
    for k, feature in enumerate(data.encoding):
        if feature.kind in ("category", "other", "missing"):
            found.setdefault(feature.column, []).append(k)
    return {column: at for column, at in found.items() if len(at) > 1}


def _decide(features: Tensor, up: Tensor) -> bool:
    """Whether every category, of ten rows on average, has rows of one class only."""
    for some in (slice(0, 1000), slice(None)):  # most columns are settled by a few rows
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

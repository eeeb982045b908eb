"""What to say before training: sites with few positives, other units at a site, tiny sites, few rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.federated import FederatedData
from fedsaddle.shown import visible

FEW = 5  # positives
TINY = 10  # rows
NAMED = 5  # sites that a line names
FAR = 5.0  # a site's mean, in standard deviations of the other sites' means beyond what its size explains


def cautions(data: FederatedData) -> list[str]:
    """Lines about the rows of each site, for data of two classes."""
    found: list[str] = []
    if len(data.classes) == 2 and data.train.y.ndim == 1:
        found += _positives(data)
    sizes = data.train.sizes
    tiny = np.flatnonzero(sizes < TINY)
    if len(tiny):
        found.append(f"{_sites(data.names, tiny)} {_have(tiny)} fewer than {TINY} training rows")
    if data.train.x.ndim == 2 and data.encoding:
        found += _other_units(data)
    return found


def _positives(data: FederatedData) -> list[str]:
    """Lines about the rarer class."""
    y = data.train.y.numpy()
    rare = int(np.bincount(y, minlength=2).argmin())
    owner = np.repeat(np.arange(data.count), data.train.sizes)
    own, total = np.bincount(owner[y == rare], minlength=data.count), int((y == rare).sum())
    name, found = visible(data.classes[rare]), []
    if total < 2 * FEW:
        found.append(
            f"only {total} of {len(y):,} training rows are {name!r}: too few to learn from or to measure with; "
            "every figure below is uncertain"
        )
    elif total / len(y) < 1e-3:
        found.append(f"only {total} of {len(y):,} training rows are {name!r}")
    single = np.flatnonzero((own == 0) | (own == data.train.sizes))
    if len(single):
        found.append(f"{_sites(data.names, single)} {_have(single)} training rows of one class only")
    few = np.flatnonzero((own < FEW) & (own > 0) & (own < data.train.sizes))
    if len(few):
        text = f"{_sites(data.names, few)} {_have(few)} fewer than {FEW} training rows that are {name!r}"
        found.append(f"{text}: they count in the pool, but have no ranked figure of their own")
    for part, rows in (("validation", data.validation), ("test", data.test)):
        if rows is not None and (n := int((rows.y == rare).sum())) < FEW:
            found.append(f"only {n} of the {part} rows are {name!r}: figures on them say little")
    return found


def _other_units(data: FederatedData) -> list[str]:
    """Columns whose mean at one site is far from that of every other site: perhaps in other units there."""
    numbers = [k for k, e in enumerate(data.encoding) if e.kind == "number"]
    if data.count < 3 or not numbers:
        return []
    x, ends = data.train.x[:, numbers].numpy(), data.train.offsets
    sizes = data.train.sizes[:, None]
    means = np.add.reduceat(x, ends[:-1]) / sizes
    found = []
    for k, column in enumerate(numbers):
        for site in _far(means[:, k], sizes[:, 0]):
            name, at = visible(data.encoding[column].column), visible(data.names[site])
            found.append(
                f"column {name!r} at site {at!r} is far from the other sites "
                f"(mean {_raw(data, column, means[site, k])}, "
                f"elsewhere {_raw(data, column, float(np.median(np.delete(means[:, k], site))))}): other units there?"
            )
    return found[:20]


def _far(means: NDArray[Any], sizes: NDArray[np.int64]) -> list[int]:
    """Sites whose mean is far out, beyond their spread and what chance explains (features have deviation 1)."""
    centre = float(np.median(means))
    spread = 1.4826 * float(np.median(np.abs(means - centre)))
    away = np.abs(means - centre)
    return [int(i) for i in np.flatnonzero((away > 1.5) & (away > FAR * np.sqrt(spread**2 + 1 / sizes)))]


def _raw(data: FederatedData, column: int, z: float) -> str:
    """A standardised mean in the units of the file."""
    how = data.encoding[column]
    v = how.mean + how.std * z
    return f"{np.copysign(np.expm1(abs(v)), v) if how.log else v:.4g}"


def _sites(names: Sequence[str], at: NDArray[np.int64]) -> str:
    if len(at) == 1:
        return f"site {visible(names[at[0]])!r}"
    some = ", ".join(visible(names[i]) for i in at[:NAMED])
    return f"{len(at)} sites ({some}{', ...' if len(at) > NAMED else ''})"


def _have(at: NDArray[np.int64]) -> str:
    return "has" if len(at) == 1 else "have"

"""Which clients are the worst ones: from their losses, or from counts of losses in bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]
BINS = 256
LEAST, MOST = 1e-6, 1e6  # losses that are told apart
FAR = 1e300


def tail_weights(losses: Floats, sizes: Floats, tail: float, boundary: str) -> Floats:
    """How much each client counts: its size above the (1 - tail)-quantile of the losses, nothing below.

    At the quantile itself it counts wholly, or with `boundary="fractional"` so that all together are the share `tail`.

    >>> tail_weights(np.array([1.0, 3.0, 2.0]), np.ones(3), 0.5, "whole").tolist()
    [0.0, 1.0, 1.0]
    >>> tail_weights(np.array([1.0, 3.0, 2.0]), np.ones(3), 0.5, "fractional").tolist()
    [0.0, 1.0, 0.5]
    """
    order = np.argsort(losses, kind="stable")
    below = np.cumsum(sizes[order])
    total = below[-1]
    at = int(np.searchsorted(below, (1 - tail) * total * (1 - 1e-12)))  # the first with that much of the mass
    quantile = losses[order[min(at, len(order) - 1)]]
    above, level = losses > quantile, losses == quantile
    share = 1.0
    if boundary == "fractional":
        share = float(np.clip((tail * total - sizes[above].sum()) / sizes[level].sum(), 0, 1))
    counts: Floats = sizes * (above + share * level)
    return counts


@dataclass(frozen=True)
class Bins:
    """Bins of losses between `low` and `high`; `share` of the clients in between belong to the tail."""

    low: float
    high: float
    share: float = 1.0

    @classmethod
    def all(cls) -> Bins:
        """All losses."""
        return cls(LEAST, MOST)

    @property
    def edges(self) -> Tensor:
        """Where bins part; losses outside of `low` to `high` fall into the first and the last."""
        inner = np.geomspace(max(self.low, LEAST), min(self.high, MOST), BINS - 1)
        return torch.from_numpy(inner)

    def holding(self, mass: Tensor, tail: float) -> Bins:
        """The bin that holds the (1 - tail)-quantile, from the mass of clients in each."""
        edges, inside = self.edges.numpy(), mass.numpy()
        upto, total = np.cumsum(inside), float(inside.sum())
        at = min(int(np.searchsorted(upto, (1 - tail) * total * (1 - 1e-12))), len(edges))
        share = float(np.clip((tail * total - (total - upto[at])) / inside[at], 0, 1)) if inside[at] > 0 else 1.0
        return Bins(float(edges[at - 1]) if at else -FAR, float(edges[at]) if at < len(edges) else FAR, share)

"""The rows of the one client that lives at a site, under the number it has in the federation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from torch import Tensor

from fedsaddle.data.store import Ints, Labelled, Stacked

_FIRST = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class OwnRows:
    """A federation of `count` clients of which this site holds one; it knows nothing of the others."""

    alone: Stacked  # its rows, as a federation of one
    client: int
    count: int

    @property
    def positives(self) -> float | None:
        """The share of label 1 in every minibatch."""
        return self.alone.positives

    @cached_property
    def sizes(self) -> Ints:
        """Its own number of rows; those of others stand as 0."""
        sizes = np.zeros(self.count, dtype=np.int64)
        sizes[self.client] = len(self.alone.x)
        return sizes

    def labelled(self, clients: Ints, label: int) -> Labelled:
        """Where its rows of one label are."""
        return self.alone.labelled(_FIRST, label)

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Its rows, with an axis of one client."""
        return self.alone.gather(_FIRST, rows)

    def everything(self, clients: Ints) -> tuple[Tensor, Tensor] | None:
        """All of them, without a copy."""
        return self.alone.everything(_FIRST)

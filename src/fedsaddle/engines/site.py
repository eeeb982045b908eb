"""A task's view of the clients it runs for, over rows held in this process."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import ClientRows
from fedsaddle.federation.clients import Batch, Ints
from fedsaddle.federation.randomness import ClientKeys


@dataclass
class LocalSite:
    """One client, or a chunk of a cohort: every tensor it gives has a leading axis of clients."""

    rows: ClientRows
    clients: Ints
    keys: ClientKeys
    samples: int = field(default=0)  # drawn so far, over all its clients

    @classmethod
    def alone(cls, rows: ClientRows, client: int, seed: int = 0) -> LocalSite:
        """One client outside of any round."""
        clients = np.array([client], dtype=np.int64)
        return cls(rows, clients, ClientKeys.of(seed, 0, 0, clients))

    def __post_init__(self) -> None:
        self._sizes = self.rows.sizes[self.clients]

    @property
    def sizes(self) -> Tensor:
        """Their numbers of rows, (C,)."""
        return torch.from_numpy(self._sizes)

    def each(self, v: Tensor) -> Tensor:
        """The same vector for every client, without a copy."""
        return v.expand(len(self.clients), *v.shape)

    def minibatch(self, step: int, size: int, stream: int = 0) -> Batch:
        """Rows drawn uniformly with replacement."""
        self.samples += size * len(self.clients)
        return Batch(*self.rows.gather(self.clients, self.keys.rows(self._sizes, step, size, stream)))

    def everything(self) -> Batch:
        """All rows; shorter clients repeat their last row with weight 0."""
        self.samples += int(self._sizes.sum())
        whole = self.rows.everything(self.clients)
        if whole is not None:
            return Batch(*whole)
        longest = int(self._sizes.max())
        at = np.arange(longest)
        x, y = self.rows.gather(self.clients, np.minimum(at, self._sizes[:, None] - 1))
        if (self._sizes == longest).all():
            return Batch(x, y)
        real = torch.from_numpy(at < self._sizes[:, None])
        return Batch(x, y, real.to(x.dtype if x.is_floating_point() else torch.get_default_dtype()))

"""A task's view of the clients it runs for, over rows held in this process."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import ClientRows
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Ints
from fedsaddle.federation.randomness import ClientKeys

BALANCING = 128  # added to the stream for the negatives of balanced batches; algorithms use lower streams


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

    def minibatch(self, step: int, size: int, stream: int = 0, label: int | None = None) -> Batch:
        """Rows drawn uniformly with replacement; among all, or among those of one label."""
        self.samples += size * len(self.clients)
        if label is not None:
            return self._labelled(step, size, stream, label)
        if self.rows.positives is not None:
            return self._balanced(step, size, stream, self.rows.positives)
        rows = self.keys.rows(self._sizes, step, size, stream)
        return Batch(*self.rows.gather(self.clients, rows), None, torch.from_numpy(rows))

    def _labelled(self, step: int, size: int, stream: int, label: int) -> Batch:
        found = self.rows.labelled(self.clients, label)
        rows = found.pick(self.keys.rows(np.maximum(found.counts, 1), step, size, stream))
        x, y = self.rows.gather(self.clients, rows)
        if found.counts.all():
            return Batch(x, y, None, torch.from_numpy(rows))
        real = torch.from_numpy(found.counts > 0)[:, None].expand(-1, size)
        return Batch(x, y, real.to(_dtype(x)), torch.from_numpy(rows))

    def _balanced(self, step: int, size: int, stream: int, share: float) -> Batch:
        """A given share of positives; weights give the mean of the batch the mean over the client's rows again."""
        if size < 2:
            raise BadInput("batch_size", size, "a batch with positives and negatives has 2 rows or more")
        ups = min(max(round(share * size), 1), size - 1)
        sides = (self._labelled(step, ups, stream, 1), self._labelled(step, size - ups, stream + BALANCING, 0))
        own = torch.from_numpy(self.rows.labelled(self.clients, 1).counts / self._sizes)[:, None]
        parts = (own / ups, (1 - own) / (size - ups))
        weight = torch.cat([w.expand(-1, b.x.shape[1]) for w, b in zip(parts, sides, strict=True)], 1) * size
        x, y, rows = (torch.cat([getattr(b, k) for b in sides], 1) for k in ("x", "y", "rows"))
        return Batch(x, y, weight.to(_dtype(x)), rows)

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
        return Batch(x, y, real.to(_dtype(x)))

    def labelled(self, label: int) -> Tensor:
        """How many of their rows have that label, (C,)."""
        return torch.from_numpy(self.rows.labelled(self.clients, label).counts)

    def uniforms(self, step: int, size: int, stream: int = 0) -> Tensor:
        """Numbers uniform on [0, 1) for each client."""
        return torch.from_numpy(self.keys.uniforms(step, size, stream))


def _dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()

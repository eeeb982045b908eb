"""Where the clients' rows live: in one block with offsets, or fetched client by client."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.errors import BadInput

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Labelled:
    """The rows of one label: client c of those asked has `counts[c]`, numbered `numbers[starts[c] : ...]`."""

    starts: Ints
    counts: Ints
    numbers: Ints

    def pick(self, places: Ints) -> Ints:
        """The row numbers at `places (C, B)` among them; row 0 for clients that have none."""
        if not len(self.numbers):
            return np.zeros_like(places)
        found = self.numbers[np.minimum(self.starts[:, None] + places, len(self.numbers) - 1)]
        return np.where(self.counts[:, None] > 0, found, 0)


class ClientRows(Protocol):
    """The rows of every client. `gather` is all that most algorithms need of an engine."""

    @property
    def count(self) -> int:
        """Number of clients N."""
        ...

    @property
    def sizes(self) -> Ints:
        """Rows per client, (N,)."""
        ...

    @property
    def positives(self) -> float | None:
        """The share of label 1 in every minibatch; None: as they come."""
        ...

    def labelled(self, clients: Ints, label: int) -> Labelled:
        """Where the rows of one label are."""
        ...

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Features and targets of `rows[c]` of `clients[c]`: `(C,) , (C, B) -> (C, B, ...), (C, B)`."""
        ...

    def everything(self, clients: Ints) -> tuple[Tensor, Tensor] | None:
        """All rows of `clients`, where that takes no copy; else None."""
        ...


@dataclass(frozen=True)
class Stacked:
    """All rows in one contiguous tensor: client i owns rows `offsets[i] : offsets[i + 1]`."""

    x: Tensor
    y: Tensor
    offsets: Ints
    allow_empty: bool = False  # test sets may leave a client without rows
    positives: float | None = None  # share of label 1 in every minibatch; None: as they come
    _found: dict[int, tuple[Ints, Ints]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_positives(self.positives)
        object.__setattr__(self, "offsets", np.asarray(self.offsets, dtype=np.int64))
        rows = len(self.x)
        if len(self.y) != rows or self.offsets[0] != 0 or self.offsets[-1] != rows:
            raise BadInput("offsets", self.offsets.tolist()[-1:], f"x has {rows} rows and y has {len(self.y)}")
        sizes = np.diff(self.offsets)
        empty = np.flatnonzero(sizes < 0 if self.allow_empty else sizes <= 0)
        if len(empty):
            raise BadInput("client", int(empty[0]), "has no rows; leave it out, or choose another split")

    @classmethod
    def of(cls, x: Tensor, y: Tensor, parts: Sequence[Ints], allow_empty: bool = False) -> Stacked:
        """Lay out the rows client by client; `parts[i]` are the row numbers of client i."""
        order = torch.from_numpy(np.concatenate(parts))
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.int64)
        return cls(x[order].contiguous(), y[order].contiguous(), offsets, allow_empty)

    @property
    def count(self) -> int:
        """Number of clients N."""
        return len(self.offsets) - 1

    @cached_property
    def sizes(self) -> Ints:
        """Rows per client, (N,)."""
        return np.diff(self.offsets)

    def client(self, i: int) -> tuple[Tensor, Tensor]:
        """All rows of client i, without a copy."""
        rows = slice(int(self.offsets[i]), int(self.offsets[i + 1]))
        return self.x[rows], self.y[rows]

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Rows of several clients in one indexing step."""
        at = torch.from_numpy((self.offsets[clients][:, None] + rows).ravel())
        x = self.x.index_select(0, at).view(*rows.shape, *self.x.shape[1:])
        y = self.y.index_select(0, at).view(*rows.shape, *self.y.shape[1:])
        return x, y

    def labelled(self, clients: Ints, label: int) -> Labelled:
        """Found once for all clients, then looked up."""
        if label not in self._found:
            at = torch.nonzero(self.y == label).flatten().numpy()
            ends = np.searchsorted(at, self.offsets)
            self._found[label] = (ends, at - np.repeat(self.offsets[:-1], np.diff(ends)))
        ends, numbers = self._found[label]
        return Labelled(ends[clients], ends[clients + 1] - ends[clients], numbers)

    def everything(self, clients: Ints) -> tuple[Tensor, Tensor] | None:
        """All rows of clients that are neighbours of one size, without a copy; None for other clients."""
        sizes, first, n = self.sizes[clients], int(clients[0]), int(self.sizes[clients[0]])
        if (sizes != n).any() or (clients != np.arange(first, first + len(clients))).any():
            return None
        rows = slice(int(self.offsets[first]), int(self.offsets[first]) + n * len(clients))
        x, y = self.x[rows], self.y[rows]
        return x.view(len(clients), n, *x.shape[1:]), y.view(len(clients), n, *y.shape[1:])


@dataclass(frozen=True)
class Lazy:
    """Rows fetched when a client is first asked; a million clients cost a table of sizes.

    `load(i)` gives `(x, y)` of client i with `sizes[i]` rows. The last `keep` clients stay in memory.
    """

    sizes: Ints
    load: Callable[[int], tuple[Tensor, Tensor]]
    keep: int = 1024
    positives: float | None = None  # share of label 1 in every minibatch; None: as they come
    _kept: OrderedDict[int, tuple[Tensor, Tensor]] = field(default_factory=OrderedDict, repr=False, compare=False)
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)  # chunks are gathered on several threads

    def __post_init__(self) -> None:
        check_positives(self.positives)

    @property
    def count(self) -> int:
        """Number of clients N."""
        return len(self.sizes)

    def client(self, i: int) -> tuple[Tensor, Tensor]:
        """All rows of client i, from memory if it was asked lately."""
        with self._lock:
            if i in self._kept:
                self._kept.move_to_end(i)
                return self._kept[i]
        x, y = self.load(i)
        if len(x) != self.sizes[i] or len(y) != self.sizes[i]:
            raise BadInput(f"sizes[{i}]", int(self.sizes[i]), f"load({i}) gave {len(x)} rows of x and {len(y)} of y")
        with self._lock:
            self._kept[i] = (x, y)
            while len(self._kept) > self.keep:
                self._kept.popitem(last=False)
        return x, y

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Rows of several clients, client by client."""
        both = [self.client(int(i)) for i in clients]
        picks = torch.from_numpy(rows)
        xs, ys = zip(*((x[r], y[r]) for (x, y), r in zip(both, picks, strict=True)), strict=True)
        return torch.stack(xs), torch.stack(ys)

    def labelled(self, clients: Ints, label: int) -> Labelled:
        """Found anew for the clients that are asked."""
        found = [torch.nonzero(self.client(int(i))[1] == label).flatten().numpy() for i in clients]
        counts = np.array([len(f) for f in found], dtype=np.int64)
        return Labelled(np.cumsum(counts) - counts, counts, np.concatenate(found))

    def everything(self, clients: Ints) -> tuple[Tensor, Tensor] | None:
        """All rows of a client that stands alone."""
        if len(clients) > 1:
            return None
        x, y = self.client(int(clients[0]))
        return x[None], y[None]


def check_positives(share: float | None) -> None:
    """Refuse a share that is not strictly between 0 and 1."""
    if share is not None and not 0 < share < 1:
        raise BadInput("positives", share, "the share of positives in a batch is above 0 and below 1")

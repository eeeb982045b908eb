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
from torch import Tensor

from fedsaddle.arguments import flag, function, number, tensor, whole
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput


@dataclass(frozen=True)
class Labelled:
    """The rows of one label: client c of those asked has `counts[c]`, numbered `numbers[starts[c] : ...]`."""

    starts: Ints
    counts: Ints
    numbers: Ints

    def pick(self, places: Ints) -> Ints:
        """The row numbers at `places (..., C, B)` among them; row 0 for clients that have none."""
        if not len(self.numbers):
            return np.zeros_like(places)
        picked = self.numbers[np.minimum(self.starts[:, None] + places, len(self.numbers) - 1)]
        return np.where(self.counts[:, None] > 0, picked, 0)


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

    def unit_numbers(self, client: int) -> Ints | None:
        """The number of each row's unit within its client, from 0; None: each row is its own."""
        ...


@dataclass(frozen=True)
class Stacked:
    """All rows in one contiguous tensor: client i owns rows `offsets[i] : offsets[i + 1]`.

    Args:
        x: Features, `(n, ...)`.
        y: Labels or targets, `(n,)`, or `(n, L)` for sequences.
        offsets: N + 1 whole numbers, from 0 up to n.
        allow_empty: Whether a client may have no rows, as in a test set.
        positives: Share of label 1 in every minibatch; None: as they come.
        units: To whom each row belongs, such as the number of a patient, `(n,)`; None: each row to itself.

    Raises:
        BadInput: for arguments of another type or shape, a client without rows, and NaN or infinity in the rows.

    Examples:
        >>> rows = Stacked(torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 1]), [0, 1, 3])
        >>> rows.count, rows.sizes.tolist()
        (2, [1, 2])
        >>> rows.client(1)
        (tensor([[2., 3.],
                [4., 5.]]), tensor([1, 1]))
    """

    x: Tensor
    y: Tensor
    offsets: Ints
    allow_empty: bool = False
    positives: float | None = None
    units: Ints | None = None
    _found: dict[int, tuple[Ints, Ints]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        tensor("x", self.x)
        tensor("y", self.y)
        flag("allow_empty", self.allow_empty)
        object.__setattr__(self, "positives", check_positives(self.positives))
        object.__setattr__(self, "offsets", _whole_numbers("offsets", self.offsets, least=2))
        rows = len(self.x)
        if len(self.y) != rows or self.offsets[0] != 0 or self.offsets[-1] != rows:
            raise BadInput("offsets", self.offsets.tolist()[-1:], f"x has {rows} rows and y has {len(self.y)}")
        if self.units is not None and len(_whole_numbers("units", self.units)) != rows:
            raise BadInput("units", len(self.units), f"x has {rows} rows; give one number for each row")
        sizes = np.diff(self.offsets)
        empty = np.flatnonzero(sizes < 0 if self.allow_empty else sizes <= 0)
        if len(empty):
            client = int(empty[0])
            remedy = "a client needs rows; leave it out, or choose another split"
            raise BadInput(f"rows of client {client}", int(sizes[client]), remedy)
        refuse_not_finite(self.x, self.y, self.offsets)

    @classmethod
    def of(cls, x: Tensor, y: Tensor, parts: Sequence[Ints], allow_empty: bool = False) -> Stacked:
        """Store the rows client by client; `parts[i]` are the row numbers of client i.

        Examples:
            >>> Stacked.of(torch.eye(3), torch.tensor([0, 1, 2]), [[2], [0, 1]]).y
            tensor([2, 0, 1])
        """
        tensor("x", x)
        if len(tensor("y", y)) != len(x):
            raise BadInput("len(y)", len(y), f"x has {len(x)} rows; give one entry for each row")
        given: object = parts
        if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or not len(given):
            raise BadInput("parts", parts, "must be a list with the row numbers of each client")
        rows = [_whole_numbers(f"parts[{i}]", part) for i, part in enumerate(parts)]
        order = np.concatenate(rows)
        if len(order) and (order.min() < 0 or order.max() >= len(x)):
            odd = int(order.min() if order.min() < 0 else order.max())
            raise BadInput("row number in parts", odd, f"x has the rows 0 to {len(x) - 1}")
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in rows])]).astype(np.int64)
        at = torch.from_numpy(order)
        return cls(x[at].contiguous(), y[at].contiguous(), offsets, allow_empty)

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

    def unit_numbers(self, client: int) -> Ints | None:
        """The number of each row's unit within the client, from 0; None: each row is its own."""
        if self.units is None:
            return None
        own = self.units[self.offsets[client] : self.offsets[client + 1]]
        return np.unique(own, return_inverse=True)[1].astype(np.int64)

    def unit_rows(self, client: int) -> list[Ints]:
        """The rows of each unit of a client, such as a patient; each row is a unit if nothing else is known."""
        return self._unit_rows[client]

    @cached_property
    def _unit_rows(self) -> list[list[Ints]]:
        rows_of_units: list[list[Ints]] = []
        for first, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            own = np.arange(end - first) if self.units is None else self.units[first:end]
            order = np.argsort(own, kind="stable")
            cuts = np.flatnonzero(np.diff(own[order])) + 1
            rows_of_units.append(np.split(order, cuts))
        return rows_of_units

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Rows of several clients in one indexing step."""
        at = torch.from_numpy((self.offsets[clients][:, None] + rows).ravel())
        x = self.x.index_select(0, at).view(*rows.shape, *self.x.shape[1:])
        y = self.y.index_select(0, at).view(*rows.shape, *self.y.shape[1:])
        return x, y

    def labelled(self, clients: Ints, label: int) -> Labelled:
        """Computed once for all clients, then looked up."""
        if label not in self._found:
            at = torch.nonzero(self.y == label).flatten().numpy()
            ends = np.searchsorted(at, self.offsets)
            self._found[label] = (ends, at - np.repeat(self.offsets[:-1], np.diff(ends)))
        ends, numbers = self._found[label]
        return Labelled(ends[clients], ends[clients + 1] - ends[clients], numbers)

    def everything(self, clients: Ints) -> tuple[Tensor, Tensor] | None:
        """All rows of neighbouring clients of one size, without a copy; None for other clients."""
        sizes, first, n = self.sizes[clients], int(clients[0]), int(self.sizes[clients[0]])
        if (sizes != n).any() or (clients != np.arange(first, first + len(clients))).any():
            return None
        rows = slice(int(self.offsets[first]), int(self.offsets[first]) + n * len(clients))
        x, y = self.x[rows], self.y[rows]
        return x.view(len(clients), n, *x.shape[1:]), y.view(len(clients), n, *y.shape[1:])


@dataclass(frozen=True)
class Lazy:
    """Rows fetched when a client is first asked; a million clients cost a table of sizes.

    Args:
        sizes: Rows per client, `(N,)`.
        load: `load(i)` gives `(x, y)` of client i with `sizes[i]` rows, the same ones each time.
        keep: How many clients, those asked last, stay in memory.
        positives: Share of label 1 in every minibatch; None: as they come.

    Raises:
        BadInput: for arguments of another type, and for rows that do not match `sizes` or are not finite.

    Examples:
        >>> rows = Lazy([2, 2], lambda i: (torch.full((2, 1), float(i)), torch.tensor([0, 1])))
        >>> rows.count
        2
        >>> rows.client(1)[0].tolist()
        [[1.0], [1.0]]
    """

    sizes: Ints
    load: Callable[[int], tuple[Tensor, Tensor]]
    keep: int = 1024
    positives: float | None = None
    _kept: OrderedDict[int, tuple[Tensor, Tensor]] = field(
        default_factory=OrderedDict, init=False, repr=False, compare=False
    )
    # Chunks are gathered on several threads.
    _lock: Lock = field(default_factory=Lock, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", _whole_numbers("sizes", self.sizes, least=1))
        if self.sizes.min() < 1:
            client = int(np.argmin(self.sizes))
            raise BadInput(f"sizes[{client}]", int(self.sizes[client]), "a client needs rows; leave it out")
        function("load", self.load, takes=1)
        whole("keep", self.keep, least=0)
        object.__setattr__(self, "positives", check_positives(self.positives))

    @property
    def count(self) -> int:
        """Number of clients N."""
        return len(self.sizes)

    def client(self, i: int) -> tuple[Tensor, Tensor]:
        """All rows of client i, from memory if it was asked recently."""
        with self._lock:
            if i in self._kept:
                self._kept.move_to_end(i)
                return self._kept[i]
        x, y = self._load(i)
        with self._lock:
            self._kept[i] = (x, y)
            while len(self._kept) > self.keep:
                self._kept.popitem(last=False)
        return x, y

    def _load(self, i: int) -> tuple[Tensor, Tensor]:
        loaded = self.load(i)
        if not isinstance(loaded, tuple | list) or len(loaded) != 2:
            raise BadInput(f"load({i})", type(loaded).__name__, "must give a pair of tensors (x, y)")
        x, y = (tensor(f"{name} of load({i})", value) for name, value in zip("xy", loaded, strict=True))
        if len(x) != self.sizes[i] or len(y) != self.sizes[i]:
            raise BadInput(f"sizes[{i}]", int(self.sizes[i]), f"load({i}) gave {len(x)} rows of x and {len(y)} of y")
        refuse_not_finite(x, y, np.array([0, len(x)]), first=i)
        return x, y

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Rows of several clients, client by client."""
        both = [self.client(int(i)) for i in clients]
        picks = torch.from_numpy(rows)
        xs, ys = zip(*((x[r], y[r]) for (x, y), r in zip(both, picks, strict=True)), strict=True)
        return torch.stack(xs), torch.stack(ys)

    def labelled(self, clients: Ints, label: int) -> Labelled:
        """Looked up again for the clients that are asked."""
        places = [torch.nonzero(self.client(int(i))[1] == label).flatten().numpy() for i in clients]
        counts = np.array([len(f) for f in places], dtype=np.int64)
        return Labelled(np.cumsum(counts) - counts, counts, np.concatenate(places))

    def everything(self, clients: Ints) -> tuple[Tensor, Tensor] | None:
        """All rows of a single client."""
        if len(clients) > 1:
            return None
        x, y = self.client(int(clients[0]))
        return x[None], y[None]

    def unit_numbers(self, client: int) -> Ints | None:
        """None: each row is its own unit."""
        return None


def check_positives(share: float | None) -> float | None:
    """A share strictly between 0 and 1, as a plain number, or None."""
    return None if share is None else number("positives", share, above=0, below=1)


def refuse_not_finite(x: Tensor, y: Tensor, offsets: Ints, first: int = 0) -> None:
    """Name the first entry that is NaN or infinite, by client, row and feature; `first` is the first client's number.

    Sums over all rows show whether to look: they are finite except for such an entry, or where large numbers overflow.
    """
    for name, values in (("feature", x.detach()), ("label", y.detach())):
        if not values.is_floating_point() or torch.isfinite(values.sum()) or torch.isfinite(values).all():
            continue
        flat = values.reshape(len(values), -1)
        row = int(torch.isfinite(flat).all(dim=1).int().argmin())
        at = int(torch.isfinite(flat[row]).int().argmin())
        client = int(np.searchsorted(offsets, row, side="right")) - 1
        what = f"{name} {at}" if name == "feature" else name
        remedy = "is not a finite number; fill it in, or drop the row"
        where = f"{what} of client {first + client}, row {row - int(offsets[client])}"
        raise BadInput(where, float(flat[row, at]), remedy)


def _whole_numbers(key: str, values: object, least: int = 0) -> Ints:
    """A list of at least `least` whole numbers, as int64."""
    try:
        numbers = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):
        raise BadInput(key, type(values).__name__, "must be a list of whole numbers") from None
    if numbers.ndim != 1 or len(numbers) < least or (len(numbers) and numbers.dtype.kind not in "iu"):
        shown = numbers.tolist() if numbers.size <= 10 else f"{numbers.dtype} {numbers.shape}"
        at_least = f", at least {least} of them" if least else ""
        raise BadInput(key, shown, f"must be a list of whole numbers{at_least}")
    return numbers.astype(np.int64)


Rows = Stacked | Lazy  # of several clients

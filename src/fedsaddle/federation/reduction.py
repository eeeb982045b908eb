"""Streaming reduction of replies: an averaged field takes one vector of memory for any number of clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import Diverged, NobodyAnswered
from fedsaddle.federation.clients import Own, Sent, Task
from fedsaddle.federation.records import R, Record, Visibility, tensors, visibility

NOBODY = "no client answered; wait for more clients, or ask a larger cohort"


@dataclass(frozen=True)
class Part(Generic[R]):
    """The replies of a block of clients: of averaged fields the weighted sum, of others each client's value."""

    kind: type[R]
    clients: Ints
    total: float  # weight
    fields: dict[str, Tensor]


def part_of(clients: Ints, weights: Floats, reply: R, checks: bool = True) -> Part[R]:
    """The replies of `clients`, stacked along the leading axis, as one part; raise `Diverged` if it is not finite."""
    visible, reduced = visibility(type(reply)), {}
    for name, value in tensors(reply):
        averaged = visible[name] is Visibility.AVERAGED
        reduced[name] = field = weighted_sum(weights, value) if averaged else value
        if checks and not torch.isfinite(field).all():
            raise Diverged(first_not_finite(clients, value), name)
    return Part(type(reply), clients, float(weights.sum()), reduced)


@dataclass
class Reduction(Generic[R]):
    """Running sum of replies, in the order of `add`; `answer` returns the reduced record.

    With `checks`, `add` refuses replies that are not finite. Without, `finite` checks all at the end, so that
    a device is synchronised only once.

    Args:
        checks: whether `add` rejects replies that are not finite.
        clients: clients that answered.
        kind: class of the replies.
        total: sum of the weights.
        sums: weighted sums of the averaged fields.
        lists: parts of the pooled and per-client fields.
    """

    checks: bool = True
    clients: list[Ints] = field(default_factory=list)
    kind: type[R] | None = None
    total: float = 0.0
    sums: dict[str, Tensor] = field(default_factory=dict)
    lists: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, clients: Ints, weights: Floats, reply: R) -> None:
        """Add the replies of `clients`, stacked along the leading axis; nothing is added if `Diverged` is raised."""
        self.merge(part_of(clients, weights, reply, self.checks))

    def merge(self, part: Part[R]) -> None:
        """Add the replies of a block of clients."""
        self.kind, visible = part.kind, visibility(part.kind)
        for name, value in part.fields.items():
            if visible[name] is Visibility.AVERAGED:
                self.sums[name] = self.sums[name].add_(value) if name in self.sums else value
            else:
                self.lists.setdefault(name, []).append(value)
        self.clients.append(part.clients)
        self.total += part.total

    def finite(self) -> bool:
        """Whether all that was added is finite."""
        parts = [*self.sums.values(), *(part for many in self.lists.values() for part in many)]
        return bool(torch.stack([torch.isfinite(part).all() for part in parts]).all())

    def answer(self) -> tuple[Ints, R]:
        """The clients that answered, and the reduced record."""
        if self.kind is None:
            raise NobodyAnswered(NOBODY)
        return np.concatenate(self.clients), self.kind(**self.reduced())

    def reduced(self) -> dict[str, Tensor]:
        """The fields of the reduced record."""
        if self.kind is None:
            return {}
        visible = visibility(self.kind)
        reduced = {name: part / (self.total or 1.0) for name, part in self.sums.items()}  # total weight 0: the sum is 0
        for name, parts in self.lists.items():
            whole = torch.cat(parts)
            reduced[name] = whole.flatten(0, 1) if visible[name] is Visibility.POOLED else whole
        return reduced


class Reducing(Protocol[R]):
    """What an engine adds the replies of one exchange to, in cohort order."""

    def add(self, clients: Ints, weights: Floats, reply: R) -> None:
        """Add the replies of `clients`, stacked along the leading axis; raise `Diverged` if one is not finite."""
        ...

    def answer(self) -> tuple[Ints, R]:
        """The clients that answered, and the reduced record."""
        ...


class MakeReduction(Protocol):
    """Where the replies of an exchange are added, given its task and what was sent."""

    def __call__(self, task: Task[Own, Sent, R], sent: Sent) -> Reducing[R]:
        """Begin with no replies."""
        ...


@runtime_checkable
class Reduces(Protocol):
    """An engine that lets a wrapper decide how replies become one."""

    reduce: MakeReduction


def streaming(task: Task[Own, Sent, R], sent: Sent) -> Reducing[R]:
    """The plain weighted mean, in one vector of memory."""
    return Reduction()


def weighted_sum(weights: Floats, value: Tensor) -> Tensor:
    """`sum_c weights[c] value[c]`."""
    if len(weights) == 1:
        return value[0] * float(weights[0])
    w = torch.as_tensor(weights, dtype=value.dtype, device=value.device)
    return (w @ value.flatten(1)).view(value.shape[1:]) if value.ndim > 1 else (w * value).sum()


def first_not_finite(clients: Ints, value: Tensor) -> int:
    """The first client whose value is not finite."""
    bad = ~torch.isfinite(value.flatten(1) if value.ndim > 1 else value[:, None]).all(1)
    return int(clients[int(bad.nonzero()[0])]) if bad.any() else int(clients[0])


def finite_clients(reply: Record) -> Tensor:
    """Whether every field of a client's reply is finite, (C,)."""
    each = [torch.isfinite(v).flatten(1).all(1) if v.ndim > 1 else torch.isfinite(v) for _, v in tensors(reply)]
    return torch.stack(each).all(0)

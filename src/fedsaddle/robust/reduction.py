"""A reduction that looks at all replies of an exchange before it averages them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.errors import Diverged, NobodyAnswered
from fedsaddle.federation.clients import Floats, Ints, Task
from fedsaddle.federation.records import Kept, Visibility, bounds_marks, tensors, visibility
from fedsaddle.federation.reduction import NOBODY, Reduction, finite_clients, first_not_finite
from fedsaddle.numerics.robust_means import centred_clipping, geometric_median, trimmed_mean, weighted_median
from fedsaddle.robust.bounds import bounded, lengths, origin
from fedsaddle.robust.running_scales import RunningScales
from fedsaddle.robust.settings import Robust


@dataclass
class Guard:
    """Makes the reductions of a run; keeps the running scales and counts what was bounded."""

    how: Robust
    sizes: Ints  # rows of every client
    scales: RunningScales = field(default_factory=RunningScales)
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    pending: list[tuple[int, str]] = field(default_factory=list)

    def __call__(self, task: Task[Any], sent: Any) -> RobustReduction:
        """The reduction of one exchange."""
        return RobustReduction(self, str(getattr(task, "__name__", task)), sent)

    def begin(self) -> None:
        """Discard what an unfinished round has added."""
        self.scales.begin()
        self.pending.clear()

    def commit(self) -> None:
        """Make what the round has added valid."""
        self.scales.commit()
        for client, name in self.pending:
            self.counts.setdefault(client, Counter())[name] += 1
        self.pending.clear()

    def state(self) -> dict[str, Any]:
        """For a checkpoint, as plain JSON."""
        return {"scales": self.scales.to_dict(), **self.report()}

    def restore(self, stored: dict[str, Any]) -> None:
        """Restore the state from a checkpoint."""
        self.scales.restore(stored["scales"])
        self.counts = {int(i): Counter(names) for i, names in stored["bounded"].items()}
        self.pending.clear()

    def report(self) -> dict[str, Any]:
        """Client -> which fields of its replies were bounded, and how often."""
        return {"bounded": {str(i): dict(names) for i, names in sorted(self.counts.items())}}


@dataclass
class RobustReduction:
    """Collects the replies; `answer` bounds and aggregates them.

    If nothing is bounded and the aggregation is the mean, the result has the bits of the streaming reduction.
    """

    guard: Guard
    task: str
    sent: Any
    clients: list[Ints] = field(default_factory=list)
    weights: list[Floats] = field(default_factory=list)
    replies: list[Any] = field(default_factory=list)

    def add(self, clients: Ints, weights: Floats, reply: Any) -> None:
        """Add the replies of `clients`; nothing is added if `Diverged` is raised."""
        if not bool(finite_clients(reply).all()):
            name, value = next((n, v) for n, v in tensors(reply) if not bool(torch.isfinite(v).all()))
            raise Diverged(first_not_finite(clients, value), name)
        self.clients.append(clients)
        self.weights.append(weights)
        self.replies.append(reply)

    def answer(self) -> tuple[Ints, Any]:
        """The clients that answered, and the reduced record."""
        if not self.replies:
            raise NobodyAnswered(NOBODY)
        if self.guard.how.bounds:
            self._bound()
        clients, kind = np.concatenate(self.clients), type(self.replies[0])
        robust = self._robust_fields()
        rest = Reduction()
        for who, weights, reply in zip(self.clients, self.weights, self.replies, strict=True):
            rest.add(who, weights, _without(reply, robust))
        return clients, kind(**rest.reduced(), **robust)

    def _bound(self) -> None:
        """Replace what exceeds the bounds."""
        guard, clients = self.guard, np.concatenate(self.clients)
        whole = type(self.replies[0])(**{name: self._stacked(name) for name, _ in tensors(self.replies[0])})
        changed, touched = bounded(guard.how, guard.scales, self.task, self.sent, clients, guard.sizes, whole)
        guard.pending += touched
        cuts = [len(who) for who in self.clients]
        for name, value in changed.items():
            parts = torch.split(value, cuts)
            self.replies = [replace(r, **{name: part}) for r, part in zip(self.replies, parts, strict=True)]

    def _robust_fields(self) -> dict[str, Tensor]:
        """The fields that are not plainly averaged."""
        kind, weights = type(self.replies[0]), torch.from_numpy(np.concatenate(self.weights))
        if self.guard.how.aggregation == "mean" or not float(weights.sum()) > 0:
            return {}
        visible, marks = visibility(kind), bounds_marks(kind)
        found: dict[str, Tensor] = {}
        for name, like in tensors(self.replies[0]):
            if visible[name] is Visibility.AVERAGED and not isinstance(marks.get(name), Kept):
                points = self._stacked(name)
                flat = self._aggregate(name, points.flatten(1) if points.ndim > 1 else points[:, None], weights)
                found[name] = flat.to(like.dtype).view(like.shape[1:])
        return found

    def _aggregate(self, name: str, points: Tensor, weights: Tensor) -> Tensor:
        how = self.guard.how
        if how.aggregation == "trimmed-mean":
            return trimmed_mean(points, weights, how.trim)
        if how.aggregation == "median":
            return weighted_median(points, weights)
        if how.aggregation == "geometric-median":
            return geometric_median(points, weights)
        start = origin(type(self.replies[0]), name, self.sent)
        centre = torch.zeros_like(points[0]) if start is None else start.flatten()
        return centred_clipping(points, weights, centre, self._radius(name, points, centre), how.iterations)

    def _radius(self, name: str, points: Tensor, centre: Tensor) -> float:
        """The given radius, or the running median of the updates' norms."""
        if self.guard.how.radius is not None:
            return self.guard.how.radius
        norms, key, scales = lengths(points, centre), f"{self.task}.{name}", self.guard.scales
        if not self.guard.how.bounds:  # else they have been added
            scales.add(key, norms)
        return scales.running(key, norms)

    def _stacked(self, name: str) -> Tensor:
        values = [getattr(reply, name) for reply in self.replies]
        return values[0] if len(values) == 1 else torch.cat(values)


def _without(reply: Any, names: dict[str, Tensor]) -> Any:
    return replace(reply, **dict.fromkeys(names)) if names else reply

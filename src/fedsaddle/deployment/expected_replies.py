"""The expected type and shapes of replies, from a dry run of the task on placeholder rows."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import Stacked
from fedsaddle.deployment.messages import Fault, FaultKind
from fedsaddle.engines.memory import Memory
from fedsaddle.engines.site import LocalSite
from fedsaddle.federation.clients import Task
from fedsaddle.federation.records import Visibility, visibility


def placeholder_rows(x: Tensor, y: Tensor) -> Stacked:
    """Two rows of the given shapes: features 0; if targets are classes, one row of class 0 and one of class 1."""
    labels = torch.zeros(2, *y.shape[1:], dtype=y.dtype)
    if not y.is_floating_point():
        labels[1] = 1
    return Stacked(torch.zeros(2, *x.shape[1:], dtype=x.dtype), labels, np.array([0, 2], dtype=np.int64))


@dataclass
class ExpectedReplies:
    """Expected replies by task and by the shapes of the sent record; one dry run for each."""

    rows: Stacked
    known: dict[Any, Any] = field(default_factory=dict)

    def of(self, task: Task[Any], sent: Any) -> Any:
        """A reply with the expected type and shapes, but meaningless values; None if the dry run fails."""
        key = (getattr(task, "__name__", repr(task)), *_shape_key(sent))
        if key not in self.known:
            try:
                site = LocalSite.alone(self.rows, 0)
                _, self.known[key] = task(Memory().read(task, site), sent, site)
            except Exception:  # the task cannot run on placeholder rows; replies are then compared with each other
                self.known[key] = None
        return self.known[key]


def _shape_key(sent: Any) -> list[Any]:
    """The parts of a sent record that can affect the shapes of a reply: shapes, whole numbers and strings."""
    return [
        (f.name, tuple(v.shape) if isinstance(v, Tensor) else v if v is None or isinstance(v, int | str) else None)
        for f in fields(sent)
        for v in [getattr(sent, f.name)]
    ]


def reply_fault(client: int, reply: Any, expected: Any) -> Fault | None:
    """Compare a reply with the expected one; return the first fault, or None."""

    def wrong(detail: str) -> Fault:
        return Fault(FaultKind.WRONG_RECORD, client, detail)

    if type(reply) is not type(expected):
        return wrong(f"a {type(reply).__name__}, not a {type(expected).__name__}")
    for name, visible in visibility(type(expected)).items():
        value, like = getattr(reply, name), getattr(expected, name)
        if (value is None) != (like is None):
            return wrong(f"{'no' if value is None else 'an unexpected'} {name!r}")
        if value is None:
            continue
        if not isinstance(value, Tensor) or value.dtype != like.dtype:
            return wrong(f"a {name!r} of another type")
        free = 2 if visible is Visibility.POOLED else 0  # any number of pooled rows
        if value.ndim != like.ndim or value.shape[:1] != like.shape[:1] or value.shape[free:] != like.shape[free:]:
            return wrong(f"a {name!r} of shape {tuple(value.shape)}, not {tuple(like.shape)}")
        if not bool(torch.isfinite(value).all()):
            return Fault(FaultKind.NOT_FINITE, client, name)
    return None

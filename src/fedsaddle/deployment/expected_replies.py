"""What a proper reply looks like, from a dry run of the task on placeholder rows: the server has no others."""

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
    """Two rows shaped like the given ones: features 0; where targets are classes, one of class 0 and one of class 1."""
    labels = torch.zeros(2, *y.shape[1:], dtype=y.dtype)
    if not y.is_floating_point():
        labels[1] = 1
    return Stacked(torch.zeros(2, *x.shape[1:], dtype=x.dtype), labels, np.array([0, 2], dtype=np.int64))


@dataclass
class ExpectedReplies:
    """Proper replies by task and by what was sent; one dry run for each kind of ask."""

    rows: Stacked
    known: dict[Any, Any] = field(default_factory=dict)

    def of(self, task: Task[Any], sent: Any) -> Any:
        """A reply as it should be, its numbers meaningless; None where the dry run fails."""
        key = (getattr(task, "__name__", repr(task)), *_outline(sent))
        if key not in self.known:
            try:
                site = LocalSite.alone(self.rows, 0)
                _, self.known[key] = task(Memory().read(task, site), sent, site)
            except Exception:  # a task that cannot run on two empty rows; replies are then compared with each other
                self.known[key] = None
        return self.known[key]


def _outline(sent: Any) -> list[Any]:
    """What can decide the shape of a reply: shapes and whole numbers, but no reals."""
    return [
        (f.name, tuple(v.shape) if isinstance(v, Tensor) else v if v is None or isinstance(v, int | str) else None)
        for f in fields(sent)
        for v in [getattr(sent, f.name)]
    ]


def reply_fault(client: int, reply: Any, proper: Any) -> Fault | None:
    """What is wrong with a client's reply, beside a proper one; None if nothing is."""

    def wrong(detail: str) -> Fault:
        return Fault(FaultKind.WRONG_RECORD, client, detail)

    if type(reply) is not type(proper):
        return wrong(f"a {type(reply).__name__}, not a {type(proper).__name__}")
    for name, how in visibility(type(proper)).items():
        value, like = getattr(reply, name), getattr(proper, name)
        if (value is None) != (like is None):
            return wrong(f"{'no' if value is None else 'an unasked'} {name!r}")
        if value is None:
            continue
        if not isinstance(value, Tensor) or value.dtype != like.dtype:
            return wrong(f"a {name!r} of another type")
        free = 2 if how is Visibility.POOLED else 0  # pooled rows may be many or few
        if value.ndim != like.ndim or value.shape[:1] != like.shape[:1] or value.shape[free:] != like.shape[free:]:
            return wrong(f"a {name!r} of shape {tuple(value.shape)}, not {tuple(like.shape)}")
        if not bool(torch.isfinite(value).all()):
            return Fault(FaultKind.NOT_FINITE, client, name)
    return None

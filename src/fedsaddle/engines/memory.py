"""What clients remember between rounds, kept only for clients that have something to remember."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from fedsaddle.errors import BadCheckpoint
from fedsaddle.federation.clients import Ints, Remembers, Site, Task
from fedsaddle.federation.records import Layout, field_marks


@dataclass
class Memory:
    """Client number -> record. What a round writes counts only once the round is committed."""

    kept: dict[int, Any] = field(default_factory=dict)
    pending: dict[int, Any] = field(default_factory=dict)

    def begin(self) -> None:
        """Drop what an unfinished round wrote."""
        self.pending.clear()

    def commit(self) -> None:
        """Let what the round wrote count."""
        self.kept.update(self.pending)
        for client in [i for i, record in self.pending.items() if record is None]:
            del self.kept[client]
        self.pending.clear()

    def read(self, task: Task[Any], site: Site) -> Any:
        """The memory of the site's clients, stacked; new clients start from the algorithm's `fresh(site)`.

        It is a copy, which the task may write into.
        """
        owner = getattr(task, "__self__", None)  # the algorithm whose method the task is
        if not isinstance(owner, Remembers):
            return None
        known = [self.pending[i] if i in self.pending else self.kept.get(i) for i in site.clients.tolist()]
        if (whole := _stack(known)) is not None:
            return whole
        blank = owner.fresh(site)
        if blank is None or not any(k is not None for k in known):
            return blank
        kind = type(blank)
        return kind(**{f.name: _fill(getattr(blank, f.name), known, f.name) for f in fields(kind)})

    def write(self, clients: Ints, sizes: Tensor, own: Any) -> None:
        """Keep each client's slice; padding of per-sample fields is cut off. None: nothing more to remember."""
        if own is None:
            self.pending.update({i: None for i in clients.tolist() if i in self.kept or i in self.pending})
            return
        kind: type[Any] = type(own)
        laid = field_marks(kind)  # type: ignore[arg-type]
        for c, i in enumerate(clients.tolist()):
            cut = {
                f.name: _slice(getattr(own, f.name), c, int(sizes[c]) if laid.get(f.name) is Layout.PER_SAMPLE else None)
                for f in fields(kind)
            }
            self.pending[i] = kind(**cut)

    def restore(
        self, algorithm: object, site_of: Callable[[int], Site], stored: Mapping[int, Mapping[str, Tensor]]
    ) -> None:
        """Take over what a checkpoint holds."""
        self.pending.clear()
        if stored and not isinstance(algorithm, Remembers):
            raise BadCheckpoint("the checkpoint holds clients' memory, and this algorithm keeps none")
        self.kept = {i: type(algorithm.fresh(site_of(i)))(**values) for i, values in stored.items()}  # type: ignore[attr-defined]


def _stack(known: list[Any]) -> Any:
    """The records of clients that all have one, in one pass; None if there is something to pad or to fill."""
    if any(record is None for record in known):
        return None
    kind: type[Any] = type(known[0])
    if Layout.PER_SAMPLE in field_marks(kind).values():  # type: ignore[arg-type]
        return None
    columns = {f.name: [getattr(record, f.name) for record in known] for f in fields(kind)}
    if any(v.shape != values[0].shape for values in columns.values() for v in values):
        return None
    return kind(**{name: torch.stack(values) for name, values in columns.items()})


def _fill(blank: Tensor, known: Iterable[Any], name: str) -> Tensor:
    stacked = blank.clone()
    for c, record in enumerate(known):
        if record is not None:
            value = getattr(record, name)
            stacked[c][tuple(slice(0, n) for n in value.shape)] = value
    return stacked


def _slice(value: Tensor, c: int, rows: int | None) -> Tensor:
    return torch.clone(value[c] if rows is None else value[c, :rows])

"""The state that clients keep between rounds, stored only for clients that have some."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from fedsaddle.array_types import Ints
from fedsaddle.errors import BadCheckpoint
from fedsaddle.federation.clients import Remembers, Site, Task
from fedsaddle.federation.records import Layout, field_marks


@dataclass
class Memory:
    """State of the clients, by client number. Writes of a round become valid when it is committed.

    Args:
        kept: records of committed rounds, by client number.
        pending: records written in this round.
    """

    kept: dict[int, Any] = field(default_factory=dict)
    pending: dict[int, Any] = field(default_factory=dict)

    def begin(self) -> None:
        """Discard the writes of an unfinished round."""
        self.pending.clear()

    def commit(self) -> None:
        """Make the writes of the round valid."""
        self.kept.update(self.pending)
        for client in [i for i, record in self.pending.items() if record is None]:
            del self.kept[client]
        self.pending.clear()

    def read(self, task: Task[Any], site: Site) -> Any:
        """The state of the site's clients, stacked; new clients start from the algorithm's `fresh(site)`.

        The result is a copy that the task may modify.
        """
        owner = remembering(task)
        if owner is None:
            return None
        known = self.known(site.clients)
        if (whole := stacked(known)) is not None:
            return whole
        blank = owner.fresh(site)
        if blank is None or not any(k is not None for k in known):
            return blank
        kind = type(blank)
        return kind(**{f.name: _fill(getattr(blank, f.name), known, f.name) for f in fields(kind)})

    def known(self, clients: Ints) -> list[Any]:
        """The state of each client, or None."""
        return [self.pending[i] if i in self.pending else self.kept.get(i) for i in clients.tolist()]

    def write(self, clients: Ints, sizes: Tensor, own: Any) -> None:
        """Store each client's slice, without the padding of per-sample fields; None deletes the state."""
        if own is None:
            self.pending.update({i: None for i in clients.tolist() if i in self.kept or i in self.pending})
            return
        kind: type[Any] = type(own)
        marks = field_marks(kind)  # type: ignore[arg-type]
        for c, i in enumerate(clients.tolist()):
            rows = {name: int(sizes[c]) for name, mark in marks.items() if mark is Layout.PER_SAMPLE}
            self.pending[i] = kind(**{f.name: _slice(getattr(own, f.name), c, rows.get(f.name)) for f in fields(kind)})

    def restore(
        self, algorithm: object, site_of: Callable[[int], Site], stored: Mapping[int, Mapping[str, Tensor]]
    ) -> None:
        """Load the state from a checkpoint."""
        self.pending.clear()
        if stored and not isinstance(algorithm, Remembers):
            raise BadCheckpoint(
                "the checkpoint holds clients' memory, but this algorithm keeps none; resume with the same algorithm"
            )
        self.kept = {i: type(algorithm.fresh(site_of(i)))(**values) for i, values in stored.items()}  # type: ignore[attr-defined]


def remembering(task: Task[Any]) -> Remembers | None:
    """The algorithm whose method the task is, if its clients keep state."""
    owner = getattr(task, "__self__", None)
    return owner if isinstance(owner, Remembers) else None


def stacked(known: list[Any]) -> Any:
    """Stack records of equal shapes; None if a client has no record or a field needs padding."""
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

"""Which version of each client's memory counts, as the server knows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

CHECKPOINTS = 2  # as many as a run keeps: the newest may turn out damaged


@dataclass
class KnownVersions:
    """Client -> version; what a round wrote counts once it is committed, what a checkpoint names is never dropped."""

    kept: dict[int, str] = field(default_factory=dict)
    pending: dict[int, str | None] = field(default_factory=dict)
    saved: list[dict[int, str]] = field(default_factory=list)

    def begin(self) -> None:
        """Forget an unfinished round."""
        self.pending.clear()

    def commit(self) -> None:
        """Let what the round wrote count."""
        for client, version in self.pending.items():
            if version is None:
                self.kept.pop(client, None)
            else:
                self.kept[client] = version
        self.pending.clear()

    def wrote(self, client: int, version: str | None) -> None:
        """A client's accepted reply named the version it left."""
        self.pending[client] = version

    def checkpointed(self) -> None:
        """What counts now is written down."""
        self.saved = [*self.saved, dict(self.kept)][-CHECKPOINTS:]

    def said(self, clients: Iterable[int]) -> dict[str, Any]:
        """What an ask says of them: where to start, and what to keep."""
        starts: dict[str, str] = {}
        keep: dict[str, list[str]] = {}
        for i in clients:
            start = self.pending[i] if i in self.pending else self.kept.get(i)
            if start is not None:
                starts[str(i)] = start
            needed = {v for table in (self.kept, *self.saved) if (v := table.get(i)) is not None}
            if needed:
                keep[str(i)] = sorted(needed)
        return {"starts": starts, "keep": keep}

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        return {str(i): v for i, v in self.kept.items()}

    def restore(self, said: dict[str, str]) -> None:
        """Go on from a checkpoint."""
        self.pending.clear()
        self.kept = {int(i): v for i, v in said.items()}
        self.saved = [dict(self.kept)]

"""Replies of simulated clients that are not finite: left out and counted, as a deployed run does with a site's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fedsaddle.errors import Diverged


@dataclass
class LeftOut:
    """Client -> why its replies were left out, and how often. Counts of a round become valid when it is committed."""

    counts: dict[int, Counter[str]] = field(default_factory=dict)
    pending: list[tuple[int, Diverged]] = field(default_factory=list)

    def begin(self) -> None:
        """Discard the counts of an unfinished round."""
        self.pending.clear()

    def note(self, exchange: int, fault: Diverged) -> None:
        """Count a reply that is not finite, of that exchange of the round."""
        self.pending.append((exchange, fault))

    def commit(self) -> None:
        """Make the counts of the round valid."""
        for _, fault in self.pending:
            self.counts.setdefault(fault.client, Counter())[f"sent a '{fault.field}' that is not finite"] += 1
        self.pending.clear()

    def to_dict(self) -> dict[str, Any]:
        """`{"left_out": {client: {reason: count}}}`, or nothing, for JSON."""
        told = {str(i): dict(reasons) for i, reasons in sorted(self.counts.items())}
        return {"left_out": told} if told else {}

    def restore(self, notes: dict[str, Any]) -> None:
        """Restore the counts from a checkpoint."""
        self.counts = {int(i): Counter(reasons) for i, reasons in notes.get("left_out", {}).items()}
        self.pending.clear()

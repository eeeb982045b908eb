"""Running scales of what clients send: how long an update, how large a loss usually is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsaddle.federation.clients import Floats

WINDOW = 10  # exchanges of one kind that a running median looks back on
MOST_KEPT = 16  # numbers that stand for the norms of one exchange
ENOUGH = 3  # replies, from which on their own median counts too


@dataclass
class RunningScales:
    """Norms of the last exchanges and the largest median so far, by field; a round's become valid with its commit."""

    norms: dict[str, list[list[float]]] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    pending: list[tuple[str, list[float]]] = field(default_factory=list)

    def begin(self) -> None:
        """Discard what an unfinished round has added."""
        self.pending.clear()

    def commit(self) -> None:
        """Make what the round has added valid."""
        for key, few in self.pending:
            self.norms[key] = [*self.norms.get(key, []), few][-WINDOW:]
            self.largest[key] = max(self.largest.get(key, 0.0), abs(float(np.median(few))))
        self.pending.clear()

    def add(self, key: str, sizes: Floats) -> None:
        """Add the sizes of one exchange."""
        if len(sizes):
            at = np.linspace(0, len(sizes) - 1, min(len(sizes), MOST_KEPT)).round().astype(int)
            self.pending.append((key, np.sort(sizes)[at].tolist()))

    def scale(self, key: str, sizes: Floats) -> float:
        """The median of the sizes above 0, of these and of the last exchanges; at least that of these if they suffice.

        So a field whose updates grow is not cut short, and a small cohort is compared with earlier ones. 0: no sizes.
        """
        now = sizes[sizes > 0]
        past = [size for few in self.norms.get(key, []) for size in few if size > 0]
        together = np.concatenate([past, now])
        if not len(together):
            return 0.0
        running = float(np.median(together))
        return max(running, float(np.median(now))) if len(now) >= ENOUGH else running

    def largest_median(self, key: str, values: Floats) -> float:
        """The largest absolute median of such numbers so far, these included."""
        return max(self.largest.get(key, 0.0), abs(float(np.median(values))))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"norms": self.norms, "largest": self.largest}

    def restore(self, stored: dict[str, Any]) -> None:
        """Restore the scales from a checkpoint."""
        self.norms, self.largest = dict(stored["norms"]), dict(stored["largest"])
        self.pending.clear()

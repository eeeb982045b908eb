"""Running scales of what clients send: how long an update, how large a loss usually is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsaddle.federation.clients import Floats

WINDOW = 10  # exchanges of one kind that a running median looks back on
SETTLED = 5  # exchanges, from which on a running median is remembered
MOST_KEPT = 16  # numbers that stand for the sizes of one exchange
GROWTH = 3.0  # times what was usual, that clients together may grow by in one exchange
ENOUGH = 3  # replies, from which on their own median counts too


@dataclass
class RunningScales:
    """Sizes in the last exchanges and the largest running median so far, by field.

    What a round adds becomes valid when the round is committed.
    """

    sizes: dict[str, list[list[float]]] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    pending: list[tuple[str, list[float]]] = field(default_factory=list)

    def begin(self) -> None:
        """Discard what an unfinished round has added."""
        self.pending.clear()

    def commit(self) -> None:
        """Make what the round has added valid."""
        for key, few in self.pending:
            self.sizes[key] = [*self.sizes.get(key, []), few][-WINDOW:]
            if len(self.sizes[key]) >= SETTLED:
                self.largest[key] = max(self.largest.get(key, 0.0), self.running(key, np.empty(0)))
        self.pending.clear()

    def add(self, key: str, sizes: Floats) -> None:
        """Add the sizes of one exchange."""
        if len(sizes):
            at = np.linspace(0, len(sizes) - 1, min(len(sizes), MOST_KEPT)).round().astype(int)
            self.pending.append((key, np.sort(sizes)[at].tolist()))

    def running(self, key: str, sizes: Floats) -> float:
        """The median of the sizes above 0, of these and of the last exchanges; 0 if there are none."""
        past = [size for few in self.sizes.get(key, []) for size in few]
        return _middle(np.concatenate([past, sizes]))

    def scale(self, key: str, sizes: Floats) -> float:
        """The largest that was usual so far: of the running medians, with this exchange, and of its own if it suffices.

        So nobody is cut short when updates grow, nor when most clients have little left to learn and a few have not; a
        small cohort is compared with earlier ones. Once there are enough of these, the clients' own median counts no
        more than `GROWTH` times what was usual, as hostile clients may be the most of a cohort by chance.
        """
        usual = max(self.running(key, sizes), self.largest.get(key, 0.0))
        if int((sizes > 0).sum()) < ENOUGH:
            return usual
        own = _middle(sizes)
        settled = len(self.sizes.get(key, ())) >= SETTLED and usual > 0
        return max(usual, min(own, GROWTH * usual) if settled else own)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"sizes": dict(self.sizes), "largest": dict(self.largest)}

    def restore(self, stored: dict[str, Any]) -> None:
        """Restore the scales from a checkpoint."""
        self.sizes, self.largest = dict(stored["sizes"]), dict(stored["largest"])
        self.pending.clear()


def _middle(sizes: Floats) -> float:
    """The median of what is above 0; 0 if there is nothing."""
    found = sizes[sizes > 0]
    return float(np.median(found)) if len(found) else 0.0

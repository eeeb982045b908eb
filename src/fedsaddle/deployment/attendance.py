"""Who answers and who does not: sites that fail rest for a while, are counted, and are asked again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

MOST_REST = 16  # rounds


@dataclass
class Attendance:
    """One line for each client, in the order of their numbers."""

    names: tuple[str, ...]
    answered: Counter[int] = field(default_factory=Counter)
    left_out: dict[int, Counter[str]] = field(default_factory=dict)
    bytes_down: Counter[int] = field(default_factory=Counter)
    bytes_up: Counter[int] = field(default_factory=Counter)
    in_a_row: Counter[int] = field(default_factory=Counter)
    rests_until: dict[int, int] = field(default_factory=dict)

    def good(self, client: int) -> None:
        """It answered properly."""
        self.answered[client] += 1
        self.in_a_row.pop(client, None)
        self.rests_until.pop(client, None)

    def bad(self, client: int, reason: str, round: int) -> None:
        """It did not: left out of this round, and of 1, 3, 7 ... more if that goes on."""
        self.left_out.setdefault(client, Counter())[reason] += 1
        self.in_a_row[client] += 1
        self.rests_until[client] = round + min(2 ** (self.in_a_row[client] - 1), MOST_REST)

    def rests(self, client: int, round: int) -> bool:
        """Whether it is left alone in this round."""
        return round < self.rests_until.get(client, 0)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: by the sites' names."""
        return {
            name: {
                "answered": self.answered[i],
                "left_out": dict(self.left_out.get(i, {})),
                "bytes_down": self.bytes_down[i],
                "bytes_up": self.bytes_up[i],
            }
            for i, name in enumerate(self.names)
        }

    def restore(self, said: dict[str, Any]) -> None:
        """Go on from what a checkpoint says."""
        for i, name in enumerate(self.names):
            line = said.get(name, {})
            self.answered[i] = line.get("answered", 0)
            self.left_out[i] = Counter(line.get("left_out", {}))
            self.bytes_down[i], self.bytes_up[i] = line.get("bytes_down", 0), line.get("bytes_up", 0)

"""Lines that say what a run waits for, on a terminal and in a file alike: seldom enough to be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

FIRST, LONGEST = 10.0, 300.0  # seconds: the first line about something, and the longest time between two
NAMED = 5  # sites that a line names


@dataclass
class Waiting:
    """Says what is waited for: after 10 s, then after twice as long each time, at most every 5 minutes."""

    say: Callable[[str], None]
    what: str = ""
    next: float = FIRST

    def tell(self, what: str, seconds: float) -> None:
        """It has been waited for `what` for so long."""
        if what != self.what:
            self.what, self.next = what, FIRST
        if seconds >= self.next:
            self.say(f"waiting for {what} since {seconds:.0f} s")
            self.next = seconds + min(max(self.next, FIRST), LONGEST)

    def sites(self, waiting: Mapping[str, float]) -> None:
        """These sites have not answered for so many seconds."""
        if waiting:
            self.tell(names_of(list(waiting)), max(waiting.values()))

    def over(self) -> None:
        """Nothing is waited for."""
        self.what, self.next = "", FIRST


def names_of(sites: list[str]) -> str:
    """The first names, and how many more.

    >>> names_of([f"site-{i}" for i in range(8)])
    'site-0, site-1, site-2, site-3, site-4 and 3 more'
    """
    more = f" and {len(sites) - NAMED} more" if len(sites) > NAMED else ""
    return ", ".join(sites[:NAMED]) + more

"""What an engine must do to carry exchanges: deliver the same bytes to some sites, and bring back their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from fedsaddle.deployment.messages import Fault


class Arrival(NamedTuple):
    """What came back from one client: bytes, or the fault for which there are none."""

    client: int
    content: bytes | None
    fault: Fault | None = None


class Transport(Protocol):
    """Delivers and waits. It vouches for who sent what; it knows nothing of what is said."""

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Send to the clients and wait: for all of them, or until the time is up.

        Once `least` have answered, it may go on after a grace of its own. A client it says nothing of did not answer.
        """
        ...


@dataclass
class InProcess:
    """Sites in this process, one function each: the codec without the network."""

    sites: Mapping[int, Callable[[bytes], bytes]]

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Ask one after the other."""
        return [Arrival(i, self.sites[i](content)) for i in clients]

"""The interface of transports: send the same bytes to some sites and return their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from fedsaddle.deployment.messages import Fault


class Arrival(NamedTuple):
    """The answer of one client: bytes, or a fault."""

    client: int
    content: bytes | None
    fault: Fault | None = None


class Transport(Protocol):
    """Sends bytes and waits for answers. It authenticates the senders and does not read the content."""

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Send to the clients and wait for all answers or for the timeout.

        Once `least` clients have answered, a transport may return after a grace period. A client without an arrival
        did not answer.
        """
        ...


@runtime_checkable
class QuickTransport(Protocol):
    """A transport with a second way for small messages, on which sites need not ask for work first."""

    def quick(self, clients: Sequence[int], content: bytes, timeout: float) -> list[Arrival]:
        """Send to the clients and wait for their answers; those who cannot be reached so may be missing."""
        ...


@dataclass
class InProcess:
    """Sites in this process, one function each, without a network."""

    sites: Mapping[int, Callable[[bytes], bytes]]

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Call the sites one after the other."""
        return [Arrival(i, self.sites[i](content)) for i in clients]

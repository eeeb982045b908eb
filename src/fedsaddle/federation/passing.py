"""What all who stand between an algorithm and its clients share: they pass on what they do not change."""

from __future__ import annotations

from dataclasses import dataclass

from fedsaddle.federation.clients import Clients, Ints


@dataclass
class Passing:
    """In front of other clients."""

    inner: Clients

    @property
    def count(self) -> int:
        """Number of clients N."""
        return self.inner.count

    @property
    def sizes(self) -> Ints:
        """Rows per client."""
        return self.inner.sizes

    @property
    def samples(self) -> int:
        """Samples that clients have worked on."""
        return int(getattr(self.inner, "samples", 0))

    def begin(self, round: int) -> None:
        """Open a round."""
        self.inner.begin(round)

    def commit(self) -> None:
        """Close the round."""
        self.inner.commit()

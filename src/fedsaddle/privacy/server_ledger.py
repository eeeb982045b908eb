"""What the server of a deployed run has released about clients, and the secret of its noise; in the run's folder.

A checkpoint may be older than the last model that was sent out. So what counts is written here, before it is used: a
round that is done again with the same answers gets the same noise and counts once, with other answers it counts again.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from fedsaddle.atomic import write_atomically
from fedsaddle.errors import BadCheckpoint
from fedsaddle.privacy.exchanges import Exchange, Exchanges

FILE = "privacy-server.json"
OWNER = 0o600


@dataclass
class ServerLedger:
    """The noisy sums of a run so far, each by a digest of what it is made of."""

    path: Path | None  # None: this process alone remembers
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    released: dict[str, Exchange] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path | None) -> ServerLedger:
        """The ledger of a folder; new if there is none."""
        path = None if folder is None else folder / FILE
        if path is None or not path.exists():
            return cls(path)
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            released = {name: Exchange(float(rate), int(n)) for name, rate, n in stored["released"]}
            return cls(path, bytes.fromhex(stored["secret"]), released)
        except (OSError, ValueError, KeyError, TypeError) as reason:
            raise BadCheckpoint(f"{path} is damaged ({type(reason).__name__}); nothing more is released") from None

    @property
    def spent(self) -> Exchanges:
        """How many of each kind."""
        return Exchanges(self.released.values())

    def add(self, digest: bytes, exchange: Exchange) -> None:
        """Count a sum that is made of what the digest is of, on the disk as well."""
        self.released[digest.hex()] = exchange
        if self.path is None:
            return
        listed = [[name, e.rate, e.population] for name, e in self.released.items()]
        content = {"secret": self.secret.hex(), "released": listed}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps(content).encode(), OWNER)

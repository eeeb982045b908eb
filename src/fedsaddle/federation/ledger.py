"""What a run costs and what it shows: bytes, exchanges, samples, and which fields leave a client in the open."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from fedsaddle.federation.clients import Ints, R, Task, merged
from fedsaddle.federation.passing import Passing
from fedsaddle.federation.records import Seen, nbytes, seen, tensors


@dataclass
class Ledger:
    """Totals since the start of the run."""

    exchanges: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    asked: int = 0
    answered: int = 0
    samples: int = 0
    fields: dict[str, str] = field(default_factory=dict)  # "LocalModels.final" -> "averaged"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def reply_bytes(reply: Any, answered: int) -> int:
    """What all the clients together sent, given the reduced reply."""
    how = seen(type(reply))
    total = 0
    for name, value in tensors(reply):
        size = value.numel() * value.element_size()
        total += size * answered if how[name] is Seen.AVERAGED else size
    return total


@dataclass
class Metered(Passing):
    """Passes every ask on and writes it into the ledger."""

    ledger: Ledger = field(default_factory=Ledger)

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Ask, and note what it cost."""
        asked, _ = merged(cohort, weights, self.count)
        self.ledger.exchanges += 1
        self.ledger.asked += len(asked)
        self.ledger.bytes_down += nbytes(sent) * len(asked)
        before = getattr(self.inner, "samples", 0)
        clients, reply = self.inner.ask(cohort, task, sent, weights=weights)
        self.ledger.samples += getattr(self.inner, "samples", 0) - before
        self.ledger.answered += len(clients)
        self.ledger.bytes_up += reply_bytes(reply, len(clients))
        for name, how in seen(type(reply)).items():
            if getattr(reply, name) is not None:
                self.ledger.fields[f"{type(reply).__name__}.{name}"] = how.value
        return clients, reply

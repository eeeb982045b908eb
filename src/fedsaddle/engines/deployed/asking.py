"""The server's half: `Clients` over any transport.

Replies are checked one by one and added up in cohort order, as the serial engine does, so that a deployed run has the
bits of a simulated one. Of the clients' memory the server knows version names only; which of them count is written
into its own checkpoints.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from fedsaddle.engines.deployed.asks import Answer, Ask
from fedsaddle.engines.deployed.attendance import Attendance
from fedsaddle.engines.deployed.expected import Expected, fault
from fedsaddle.engines.deployed.known_versions import KnownVersions
from fedsaddle.engines.deployed.transport import Arrival, Transport
from fedsaddle.engines.memory import Memory
from fedsaddle.errors import BadMessage, Diverged, TooFewAnswered
from fedsaddle.federation.clients import Ints, R, Task, merged
from fedsaddle.federation.records import seen, tensors
from fedsaddle.federation.reduction import Reduction
from fedsaddle.federation.wire import Message, kinds_of, pack, unpack

log = logging.getLogger("fedsaddle.server")


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait, and for how many."""

    timeout: float = 60.0  # seconds for one exchange
    minimum: int = 1  # sites that must answer (all of a smaller cohort)
    patience: float = 300.0  # seconds to go on asking while fewer do
    pause: float = 1.0  # seconds between such attempts
    most_bytes: int = 1 << 30  # of one reply


@dataclass
class Deployed:
    """Asks sites. `names[i]` is the site of client i; `sizes` were agreed before the first round."""

    transport: Transport
    names: tuple[str, ...]
    sizes: Ints
    run: str
    fingerprint: str
    expected: Expected
    patience: Patience = field(default_factory=Patience)
    memory: Memory = field(default_factory=Memory)  # always empty: clients keep theirs
    samples: int = 0
    round: int = 0
    exchange: int = 0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.attendance = Attendance(self.names)
        self.versions = KnownVersions()

    @property
    def count(self) -> int:
        """Number of clients N."""
        return len(self.names)

    def begin(self, round: int) -> None:
        """Open a round."""
        self.round, self.exchange = round, 0
        self.versions.begin()

    def commit(self) -> None:
        """Close the round."""
        self.versions.commit()

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Send, wait, check, and reduce in cohort order; ask again while too few have answered."""
        clients, each = merged(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        good = self._gather(clients.tolist(), task, sent, exchange)
        reduction = Reduction()
        for c, i in enumerate(clients.tolist()):
            if i in good:
                answer, reply = good[i]
                reduction.add(clients[c : c + 1], each[c : c + 1], reply)
                self.versions.wrote(i, answer.version)
                self.samples += answer.samples
                self.attendance.good(i)
        return reduction.answer()

    def _gather(self, clients: list[int], task: Task[R], sent: Any, exchange: int) -> dict[int, tuple[Answer, R]]:
        least = min(self.patience.minimum, len(clients))
        awake = [i for i in clients if not self.attendance.rests(i, self.round)]
        asked = awake if len(awake) >= least else clients
        good: dict[int, tuple[Answer, R]] = {}
        faults: dict[int, str] = {}
        began = self.now()
        while True:
            waiting = [i for i in asked if i not in good]
            new, faults = self._attempt(waiting, task, sent, exchange, least - len(good))
            good |= new
            for i, reason in faults.items():
                self.attendance.bad(i, reason, self.round)
                log.warning(
                    "round %d, exchange %d: %s left out: %s", self.round + 1, exchange + 1, self.names[i], reason
                )
            if len(good) >= least:
                return good
            if not good and faults and all(reason.endswith("not finite") for reason in faults.values()):
                first = next(iter(faults))
                raise Diverged(first, faults[first].split("'")[1])
            if self.now() - began >= self.patience.patience:
                raise TooFewAnswered(self._complaint(len(good), least, faults))
            asked = clients
            self.sleep(self.patience.pause)

    def _attempt(
        self, clients: list[int], task: Task[R], sent: Any, exchange: int, least: int
    ) -> tuple[dict[int, tuple[Answer, R]], dict[int, str]]:
        """Those who answered properly, and what is wrong with the others."""
        name, kinds = str(getattr(task, "__name__", task)), kinds_of(getattr(task, "__self__", task))
        ask = Ask(
            run=self.run, fingerprint=self.fingerprint, nonce=secrets.token_hex(8), round=self.round,
            exchange=exchange, task=name, **self.versions.said(clients),
        )  # fmt: skip
        content = pack(Message(ask.to_dict(), sent))
        proper = self.expected.of(task, sent)
        for i in clients:
            self.attendance.bytes_down[i] += len(content)
        good: dict[int, tuple[Answer, R]] = {}
        faults = dict.fromkeys(clients, f"did not answer in {self.patience.timeout:g} s")
        for arrival in self.transport.exchange(clients, content, least, self.patience.timeout):
            if arrival.client not in faults:  # not asked, or heard already
                continue
            try:
                good[arrival.client] = self._checked(arrival, ask.nonce, kinds, proper)
                del faults[arrival.client]
            except BadMessage as reason:
                faults[arrival.client] = str(reason)
        if proper is None and good:
            faults |= _unlike_most(good)
        return {i: both for i, both in good.items() if i not in faults}, faults

    def _checked(self, arrival: Arrival, nonce: str, kinds: Any, proper: Any) -> tuple[Answer, Any]:
        if arrival.content is None:
            raise BadMessage(arrival.reason)
        size = len(arrival.content)
        self.attendance.bytes_up[arrival.client] += size
        if size > self.patience.most_bytes:
            raise BadMessage(f"sent {size:,} bytes, more than the limit of {self.patience.most_bytes:,}")
        message = unpack(arrival.content, kinds)
        answer = Answer.read(message.about)
        if answer.failure:
            raise BadMessage(f"failed: {answer.failure:.200}")
        if answer.nonce != nonce:
            raise BadMessage("sent a reply to another ask")
        wrong = fault(message.record, message.record if proper is None else proper)
        if wrong:
            raise BadMessage(wrong)
        return answer, message.record

    def _complaint(self, good: int, least: int, faults: dict[int, str]) -> str:
        why = "; ".join(f"{self.names[i]} {reason}" for i, reason in sorted(faults.items())[:5])
        return (
            f"round {self.round + 1}: {good} of at least {least} sites answered within "
            f"{self.patience.patience:g} s ({why}); start the missing sites and resume, or lower the minimum"
        )

    def state(self) -> dict[str, Any]:
        """For a checkpoint: which memory counts, and the totals."""
        return {"versions": self.versions.to_dict(), "sites": self.attendance.to_dict(), "names": list(self.names)}

    def restore(self, said: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.versions.restore(said["versions"])
        self.attendance.restore(said["sites"])


def _unlike_most(good: dict[int, tuple[Answer, Any]]) -> dict[int, str]:
    """Those whose averaged fields have shapes that most others do not have; where no dry run tells what is right."""
    shapes = {}
    for i, (_, reply) in good.items():
        how = seen(type(reply))
        shapes[i] = str([(n, v.dtype, tuple(v.shape)) for n, v in tensors(reply) if how[n].value == "averaged"])
    usual = Counter(shapes.values()).most_common(1)[0][0]
    return {i: "sent shapes that the others did not" for i, shape in shapes.items() if shape != usual}

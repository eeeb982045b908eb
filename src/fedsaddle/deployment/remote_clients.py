"""The server's half: `Clients` over any transport.

Replies are checked one by one and added up in cohort order, as the serial engine does, so that a deployed run has the
bits of a simulated one. Of the clients' memory the server knows version names only; which of them count is written
into its own checkpoints.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike

from fedsaddle.deployment.attendance import Attendance
from fedsaddle.deployment.courier import Courier
from fedsaddle.deployment.expected_replies import Expected, fault
from fedsaddle.deployment.known_versions import KnownVersions
from fedsaddle.deployment.messages import Answer, Ask
from fedsaddle.engines.memory import Memory
from fedsaddle.errors import BadMessage
from fedsaddle.federation.clients import Ints, R, Task, merged
from fedsaddle.federation.records import Seen, seen, tensors
from fedsaddle.federation.reduction import Reduction
from fedsaddle.federation.wire import Message, kinds_of


@dataclass
class Deployed:
    """Asks sites. `sizes` were agreed before the first round."""

    courier: Courier
    sizes: Ints
    run: str
    fingerprint: str
    expected: Expected
    versions: KnownVersions = field(default_factory=KnownVersions)
    memory: Memory = field(default_factory=Memory)  # always empty: clients keep theirs
    samples: int = 0
    round: int = 0
    exchange: int = 0

    @property
    def count(self) -> int:
        """Number of clients N."""
        return len(self.courier.names)

    @property
    def attendance(self) -> Attendance:
        """Who answered, and what it cost."""
        return self.courier.attendance

    def begin(self, round: int) -> None:
        """Open a round."""
        self.round, self.exchange = round, 0
        self.versions.begin()

    def commit(self) -> None:
        """Close the round."""
        self.versions.commit()

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Send, wait, check, and reduce in cohort order."""
        clients, each = merged(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        good = self._gathered(clients.tolist(), task, sent, exchange)
        reduction = Reduction()
        for c, i in enumerate(clients.tolist()):
            if i in good:
                answer, reply = good[i]
                reduction.add(clients[c : c + 1], each[c : c + 1], reply)
                self.versions.wrote(i, answer.version)
                self.samples += answer.samples
                self.attendance.good(i)
        return reduction.answer()

    def _gathered(self, clients: list[int], task: Task[R], sent: Any, exchange: int) -> dict[int, tuple[Answer, R]]:
        name, kinds = str(getattr(task, "__name__", task)), kinds_of(getattr(task, "__self__", task))
        proper = self.expected.of(task, sent)

        def made(nonce: str, asked: list[int]) -> Message:
            ask = Ask(
                run=self.run, fingerprint=self.fingerprint, nonce=nonce, round=self.round, exchange=exchange, task=name,
                **self.versions.said(asked),
            )  # fmt: skip
            return Message(ask.to_dict(), sent)

        def check(answer: Answer, reply: Any) -> tuple[Answer, Any]:
            wrong = fault(reply, reply if proper is None else proper)
            if wrong:
                raise BadMessage(wrong)
            return answer, reply

        where = f"round {self.round + 1}, exchange {exchange + 1}"
        good = self.courier.collect(clients, self.courier.least(len(clients)), made, kinds, check, where, self.round)
        return good if proper is not None else _alike(good)

    def state(self) -> dict[str, Any]:
        """For a checkpoint: which memory counts, and the totals."""
        return {"versions": self.versions.to_dict(), "sites": self.attendance.to_dict()}

    def restore(self, said: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.versions.restore(said["versions"])
        self.attendance.restore(said["sites"])


def _alike(good: dict[int, tuple[Answer, Any]]) -> dict[int, tuple[Answer, Any]]:
    """Those whose averaged fields have the shapes that most have; where no dry run tells what is right."""
    shapes = {}
    for i, (_, reply) in good.items():
        how = seen(type(reply))
        shapes[i] = str([(n, v.dtype, tuple(v.shape)) for n, v in tensors(reply) if how[n] is Seen.AVERAGED])
    usual = Counter(shapes.values()).most_common(1)[0][0]
    return {i: both for i, both in good.items() if shapes[i] == usual}

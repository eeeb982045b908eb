"""The server's half: `Clients` over any transport.

Replies are checked one by one and added up in cohort order, as the serial engine does, so that a deployed run has the
bits of a simulated one. Of the clients' memory the server knows the names of versions only; which of them count is
written into its own checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.deployment.courier import Attendance, Courier
from fedsaddle.deployment.expected_replies import ExpectedReplies, reply_fault
from fedsaddle.deployment.messages import Answer, Ask, Fault
from fedsaddle.federation.clients import ClientsState, Ints, R, Task, merge_repeats
from fedsaddle.federation.records import Visibility, tensors, visibility
from fedsaddle.federation.reduction import Reduction
from fedsaddle.federation.wire import Message, kinds_of

CHECKPOINTS = 2  # as many as a run keeps: the newest may turn out damaged


@dataclass
class MemoryVersions:
    """Client -> version of its memory that counts.

    What a round wrote counts once it is committed; what a checkpoint names is never dropped.
    """

    kept: dict[int, str] = field(default_factory=dict)
    pending: dict[int, str | None] = field(default_factory=dict)
    saved: list[dict[int, str]] = field(default_factory=list)

    def begin(self) -> None:
        """Forget an unfinished round."""
        self.pending.clear()

    def commit(self) -> None:
        """Let what the round wrote count."""
        for client, version in self.pending.items():
            if version is None:
                self.kept.pop(client, None)
            else:
                self.kept[client] = version
        self.pending.clear()

    def write(self, client: int, version: str | None) -> None:
        """A client's accepted reply named the version it left."""
        self.pending[client] = version

    def checkpointed(self) -> None:
        """What counts now is written down."""
        self.saved = [*self.saved, dict(self.kept)][-CHECKPOINTS:]

    def starts(self, clients: Iterable[int]) -> dict[str, str]:
        """The version that each client's task starts from, as an ask names it."""
        found = {str(i): self.pending[i] if i in self.pending else self.kept.get(i) for i in clients}
        return {i: version for i, version in found.items() if version is not None}

    def needed(self, clients: Iterable[int]) -> dict[str, list[str]]:
        """The versions that each client must keep, as an ask names them."""
        found = {str(i): {t[i] for t in (self.kept, *self.saved) if i in t} for i in clients}
        return {i: sorted(versions) for i, versions in found.items() if versions}

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        return {str(i): v for i, v in self.kept.items()}

    def restore(self, stored: dict[str, str]) -> None:
        """Go on from a checkpoint."""
        self.pending.clear()
        self.kept = {int(i): v for i, v in stored.items()}
        self.saved = [dict(self.kept)]


@dataclass
class RemoteClients:
    """Asks sites. `sizes` were agreed before the first round."""

    courier: Courier
    sizes: Ints
    run: str
    fingerprint: str
    expected: ExpectedReplies
    versions: MemoryVersions = field(default_factory=MemoryVersions)
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
        clients, summed_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        good = self._collect(clients.tolist(), task, sent, exchange)
        reduction = Reduction()
        for c, i in enumerate(clients.tolist()):
            if i in good:
                answer, reply = good[i]
                reduction.add(clients[c : c + 1], summed_weights[c : c + 1], reply)
                self.versions.write(i, answer.version)
                self.samples += answer.samples
                self.attendance.count_answer(i)
        return reduction.answer()

    def _collect(self, clients: list[int], task: Task[R], sent: Any, exchange: int) -> dict[int, tuple[Answer, R]]:
        """The proper replies of one exchange, by client."""
        name, kinds = str(getattr(task, "__name__", task)), kinds_of(getattr(task, "__self__", task))
        proper = self.expected.of(task, sent)

        def make_message(nonce: str, asked: list[int]) -> Message:
            ask = Ask(
                run=self.run, fingerprint=self.fingerprint, nonce=nonce, round=self.round, exchange=exchange, task=name,
                starts=self.versions.starts(asked), keep=self.versions.needed(asked),
            )  # fmt: skip
            return Message(ask.to_dict(), sent)

        def check(client: int, answer: Answer, reply: Any) -> tuple[Answer, Any] | Fault:
            return reply_fault(client, reply, reply if proper is None else proper) or (answer, reply)

        where = f"round {self.round + 1}, exchange {exchange + 1}"
        least = self.courier.least(len(clients))
        good = self.courier.collect(clients, least, make_message, kinds, check, where, self.round)
        return good if proper is not None else _drop_odd_shapes(good)

    def settings(self) -> dict[str, Any]:
        """Sums are taken in cohort order, whatever carries the replies."""
        return {"name": "remoteclients"}

    def state(self) -> ClientsState:
        """For a checkpoint: which memory counts, and the totals. The memory itself stays at the sites."""
        return ClientsState(notes={"versions": self.versions.to_dict(), "sites": self.attendance.to_dict()})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Go on from a checkpoint."""
        self.versions.restore(notes["versions"])
        self.attendance.restore(notes["sites"])

    def checkpointed(self) -> None:
        """Sites may drop memory that no checkpoint speaks of."""
        self.versions.checkpointed()

    def report(self) -> dict[str, Any]:
        """Who answered, and what it cost."""
        return {"sites": self.attendance.to_dict()}


def _drop_odd_shapes(good: dict[int, tuple[Answer, Any]]) -> dict[int, tuple[Answer, Any]]:
    """Those whose averaged fields have the shapes that most have; where no dry run tells what is right."""
    shapes = {}
    for i, (_, reply) in good.items():
        how = visibility(type(reply))
        shapes[i] = str([(n, v.dtype, tuple(v.shape)) for n, v in tensors(reply) if how[n] is Visibility.AVERAGED])
    usual = Counter(shapes.values()).most_common(1)[0][0]
    return {i: both for i, both in good.items() if shapes[i] == usual}

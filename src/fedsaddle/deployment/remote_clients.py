"""The server's side of an exchange: `Clients` over any transport.

Replies are checked one by one and reduced in cohort order, as in the serial engine, so a deployed run gives the same
result as a simulation, bit for bit. The clients' memory stays at the sites. The server knows only version names; its
checkpoints store which versions are valid.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.store import Stacked
from fedsaddle.deployment.courier import Attendance, Courier
from fedsaddle.deployment.messages import Answer, Ask, Fault, FaultKind, SecureCohort
from fedsaddle.engines.site import LocalSite, Memory
from fedsaddle.errors import BadMessage, CannotWrite, NobodyAnswered
from fedsaddle.federation.clients import ClientsState, Own, Sent, Task, merge_repeats
from fedsaddle.federation.records import R, Record, Visibility, tensors, visibility
from fedsaddle.federation.reduction import MakeReduction, streaming
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Message
from fedsaddle.files import Json, JsonObject


def placeholder_rows(x: Tensor, y: Tensor) -> Stacked:
    """Two rows of the given shapes: features 0; if targets are classes, one row of class 0 and one of class 1."""
    labels = torch.zeros(2, *y.shape[1:], dtype=y.dtype)
    if not y.is_floating_point():
        labels[1] = 1
    return Stacked(torch.zeros(2, *x.shape[1:], dtype=x.dtype), labels, np.array([0, 2], dtype=np.int64))


@dataclass
class ExpectedReplies:
    """Expected replies by task and by the shapes of the sent record; one dry run for each.

    Args:
        rows: placeholder rows.
        known: replies of earlier dry runs.
    """

    rows: Stacked
    known: dict[tuple[object, ...], Record | None] = field(default_factory=dict)

    def of(self, task: Task[Own, Sent, R], sent: Sent) -> R | None:
        """A reply with the expected type and shapes, but meaningless values; None if the dry run fails."""
        key = (getattr(task, "__name__", repr(task)), *_shape_key(sent))
        if key not in self.known:
            try:
                site = LocalSite.alone(self.rows, 0)
                _, self.known[key] = task(Memory().read(task, site), sent, site)
            except Exception:  # the task cannot run on placeholder rows; replies are then compared with each other
                self.known[key] = None
        return cast(R | None, self.known[key])


def _shape_key(sent: Record) -> list[object]:
    """The parts of a sent record that can affect the shapes of a reply: shapes, whole numbers and strings."""
    return [
        (f.name, tuple(v.shape) if isinstance(v, Tensor) else v if v is None or isinstance(v, int | str) else None)
        for f in fields(sent)
        for v in [getattr(sent, f.name)]
    ]


def reply_fault(client: int, reply: object, expected: object) -> Fault | None:
    """Compare a reply with the expected one; return the first fault, or None."""

    def wrong(detail: str) -> Fault:
        return Fault(FaultKind.WRONG_RECORD, client, detail)

    if type(reply) is not type(expected):
        return wrong(f"a {type(reply).__name__}, not a {type(expected).__name__}")
    for name, visible in visibility(type(expected)).items():
        value, like = getattr(reply, name), getattr(expected, name)
        if (value is None) != (like is None):
            return wrong(f"{'no' if value is None else 'an unexpected'} {name!r}")
        if value is None:
            continue
        if not isinstance(value, Tensor) or value.dtype != like.dtype:
            return wrong(f"a {name!r} of another type")
        free = 2 if visible is Visibility.POOLED else 0  # any number of pooled rows
        if value.ndim != like.ndim or value.shape[:1] != like.shape[:1] or value.shape[free:] != like.shape[free:]:
            return wrong(f"a {name!r} of shape {tuple(value.shape)}, not {tuple(like.shape)}")
        if not bool(torch.isfinite(value).all()):
            return Fault(FaultKind.NOT_FINITE, client, name)
    return None


log = logging.getLogger("fedsaddle.server")
CHECKPOINTS = 2  # as many as a run keeps, since the newest may be damaged


@dataclass
class MemoryVersions:
    """Client -> valid version of its memory.

    Versions of a round become valid when it is committed; versions named in a checkpoint are kept.

    Args:
        kept: of committed rounds, by client.
        pending: of this round, by client.
        saved: those that checkpoints name.
    """

    kept: dict[int, str] = field(default_factory=dict)
    pending: dict[int, str | None] = field(default_factory=dict)
    saved: list[dict[int, str]] = field(default_factory=list)

    def begin(self) -> None:
        """Discard the versions of an unfinished round."""
        self.pending.clear()

    def commit(self) -> None:
        """Make the versions of the round valid."""
        for client, version in self.pending.items():
            if version is None:
                self.kept.pop(client, None)
            else:
                self.kept[client] = version
        self.pending.clear()

    def write(self, client: int, version: str | None) -> None:
        """Note the version that an accepted reply named."""
        self.pending[client] = version

    def checkpointed(self) -> None:
        """Keep the valid versions: a checkpoint names them."""
        self.saved = [*self.saved, dict(self.kept)][-CHECKPOINTS:]

    def starts(self, clients: Iterable[int]) -> dict[str, str]:
        """The version that each client's task starts from, for `Ask.starts`."""
        found = {str(i): self.pending[i] if i in self.pending else self.kept.get(i) for i in clients}
        return {i: version for i, version in found.items() if version is not None}

    def needed(self, clients: Iterable[int]) -> dict[str, list[str]]:
        """The versions that each client must keep, for `Ask.keep`."""
        found = {str(i): {t[i] for t in (self.kept, *self.saved) if i in t} for i in clients}
        return {i: sorted(versions) for i, versions in found.items() if versions}

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        return {str(i): v for i, v in self.kept.items()}

    def restore(self, stored: dict[str, str]) -> None:
        """Restore the versions from a checkpoint."""
        self.pending.clear()
        self.kept = {int(i): v for i, v in stored.items()}
        self.saved = [dict(self.kept)]


@dataclass
class Answered:
    """Whose replies counted in each exchange, on the disk, so that a resumed run repeats its exchanges exactly.

    A site answers a question once. If after a crash other sites counted than before, the next question would be another
    one than the sites have answered.

    Args:
        path: the file; None: nothing is kept.
    """

    path: Path | None = None
    known: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Answered:
        """As far as the file was written."""
        found = cls(path)
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for line in lines:
            with suppress(ValueError):  # a line that was cut: its exchange did not count
                round, exchange, *clients = json.loads(line)
                found.known[round, exchange] = tuple(clients)
        return found

    def add(self, at: tuple[int, int], clients: Iterable[int]) -> None:
        """Note whose replies count in a round and exchange, before anything follows from them; nobody's: it failed."""
        who = tuple(int(i) for i in clients)
        if self.path is None or self.known.get(at) == who:
            return
        self.known[at] = who
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps([*at, *who])}\n")  # apart from a line that was cut
                file.flush()
                os.fsync(file.fileno())
        except OSError as reason:
            raise CannotWrite(self.path, reason) from None


@dataclass
class RemoteClients:
    """Clients at remote sites.

    Args:
        courier: sends messages to the sites.
        sizes: rows of each site, by its facts.
        run: name of the run.
        fingerprint: of the algorithm that all have agreed on.
        expected: replies as they should look.
        versions: of the clients' memory.
        reduce: how replies become one; robust aggregation substitutes its own.
        samples: rows that were drawn at the sites so far.
        round: the current round.
        exchange: the next exchange of the round.
        minimum_sites: that an average must be of.
        answered: whose replies counted before the run was resumed.
    """

    courier: Courier
    sizes: Ints
    run: str
    fingerprint: str
    expected: ExpectedReplies
    versions: MemoryVersions = field(default_factory=MemoryVersions)
    reduce: MakeReduction = streaming
    samples: int = 0
    round: int = 0
    exchange: int = 0
    minimum_sites: int = 1
    answered: Answered = field(default_factory=Answered)

    @property
    def count(self) -> int:
        """Number of clients N."""
        return len(self.courier.names)

    @property
    def attendance(self) -> Attendance:
        """Answers, faults and bytes per site."""
        return self.courier.attendance

    def begin(self, round: int) -> None:
        """Begin a round."""
        self.round, self.exchange = round, 0
        self.versions.begin()

    def commit(self) -> None:
        """End the round."""
        self.versions.commit()

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Send the task, check the replies and reduce them in cohort order."""
        clients, total_weights = merge_repeats(cohort, weights, self.count)
        exchange, self.exchange = self.exchange, self.exchange + 1
        if len(clients) < self.minimum_sites:
            told = f"a cohort of {len(clients)} sites"
            raise self.nobody(f"{told}; policies of sites ask for averages of at least {self.minimum_sites}")
        at = (self.round, exchange)
        if self.answered.known.get(at) == ():
            raise self.nobody("nobody's replies counted before the run was resumed")
        try:
            found = self.reduced(clients, total_weights, task, sent, exchange)
        except NobodyAnswered:
            self.answered.add(at, ())
            raise
        self.answered.add(at, found[0])
        return found

    def counted(self, clients: list[int], exchange: int) -> list[int]:
        """Those of the clients whose replies counted before the run was resumed; all, in a new exchange."""
        who = self.answered.known.get((self.round, exchange))
        return clients if who is None else [i for i in clients if i in who]

    def answers_needed(self, exchange: int, cohort: int, sites: int) -> int:
        """How many of a cohort must answer: all whose replies counted before the run was resumed.

        Args:
            exchange: the exchange.
            cohort: how many are asked.
            sites: how many an average must be of.
        """
        if (self.round, exchange) in self.answered.known:
            return cohort
        return max(self.courier.least(cohort), sites)

    def nobody(self, why: str) -> NobodyAnswered:
        """The error that ends a round without answers, noted in the log."""
        text = f"round {self.round + 1}: {why}"
        log.warning("%s", text)
        return NobodyAnswered(text)

    def reduced(
        self, clients: Ints, total_weights: Floats, task: Task[Own, Sent, R], sent: Sent, exchange: int
    ) -> tuple[Ints, R]:
        """The clients that answered one exchange, and their replies in one."""
        good = self._collect(self.counted(clients.tolist(), exchange), task, sent, exchange)
        reduction = self.reduce(task, sent)
        for c, i in enumerate(clients.tolist()):
            if i in good:
                answer, reply = good[i]
                reduction.add(clients[c : c + 1], total_weights[c : c + 1], reply)
                self.accept(i, answer)
                self.attendance.count_answer(i)
        return reduction.answer()

    def accept(self, client: int, answer: Answer) -> None:
        """Note the version of its memory and the samples of a client whose reply is used."""
        self.versions.write(client, answer.version)
        self.samples += answer.samples

    def _collect(
        self, clients: list[int], task: Task[Own, Sent, R], sent: Sent, exchange: int
    ) -> dict[int, tuple[Answer, R]]:
        """The valid replies of one exchange, by client."""
        name, kinds = str(getattr(task, "__name__", task)), records_of(getattr(task, "__self__", task))
        expected = self.expected.of(task, sent)

        versions: set[str | None] = {None}

        def make_message(nonce: str, asked: list[int]) -> Message:
            ask = self.ask_of(nonce, asked, name, exchange)
            versions.add(ask.version)
            return Message(ask.to_dict(), sent)

        def check(client: int, answer: Answer, reply: object) -> tuple[Answer, R] | Fault:
            if answer.version not in versions:
                raise BadMessage("a version of its memory that the ask does not name")
            return reply_fault(client, reply, reply if expected is None else expected) or (answer, cast(R, reply))

        where = f"round {self.round + 1}, exchange {exchange + 1}"
        least = self.answers_needed(exchange, len(clients), 0 if self.minimum_sites <= 1 else self.minimum_sites)
        good = self.courier.collect(clients, least, make_message, kinds, check, where, self.round)
        return good if expected is not None else _drop_odd_shapes(good)

    def ask_of(self, nonce: str, asked: list[int], task: str, exchange: int, secure: SecureCohort | None = None) -> Ask:
        """The header of one attempt at some clients."""
        return Ask(
            run=self.run, fingerprint=self.fingerprint, nonce=nonce, round=self.round, exchange=exchange, task=task,
            starts=self.versions.starts(asked), keep=self.versions.needed(asked), secure=secure,
        )  # fmt: skip

    def settings(self) -> dict[str, Json]:
        """The engine's name; the transport does not affect the rounding of sums."""
        return {"name": "remoteclients"}

    def state(self) -> ClientsState:
        """The valid versions and the totals, for a checkpoint."""
        return ClientsState(notes={"versions": self.versions.to_dict(), "sites": self.attendance.to_dict()})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: JsonObject, algorithm: object) -> None:
        """Restore the versions and the totals from a checkpoint."""
        self.versions.restore(notes["versions"])
        self.attendance.restore(notes["sites"])

    def checkpointed(self) -> None:
        """Let sites delete memory that no checkpoint names."""
        self.versions.checkpointed()

    def standing(self) -> dict[str, str]:
        """Of each site whether it is "up", "lost" (its last answer is missing or bad) or "waiting" for its first."""
        at = self.attendance
        return {
            name: "lost" if at.in_a_row[i] else "up" if at.answered[i] else "waiting" for i, name in enumerate(at.names)
        }

    def report(self) -> dict[str, Json]:
        """Answers, faults and bytes per site, for the summary."""
        return {"sites": self.attendance.to_dict()}


def _drop_odd_shapes(good: dict[int, tuple[Answer, R]]) -> dict[int, tuple[Answer, R]]:
    """Keep the replies whose averaged fields have the most common shapes; for tasks without an expected reply."""
    shapes = {}
    for i, (_, reply) in good.items():
        visible = visibility(type(reply))
        shapes[i] = str([(n, v.dtype, tuple(v.shape)) for n, v in tensors(reply) if visible[n] is Visibility.AVERAGED])
    usual = Counter(shapes.values()).most_common(1)[0][0]
    return {i: both for i, both in good.items() if shapes[i] == usual}

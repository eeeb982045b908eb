"""The server's side of secure aggregation: collect masked replies, then unmask shares, then decode the sum.

An exchange takes one message each way, and a second one of a few hundred bytes in which the sites that answered reveal
their masks, whether sites were lost or not. If a site is lost between the two, the exchange ends without a result:
nothing of it can be read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, cast

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.deployment.messages import Answer, Fault, FaultKind, Request, SecureCohort
from fedsaddle.deployment.remote_clients import RemoteClients, reply_fault
from fedsaddle.deployment.secure_site import read_opening
from fedsaddle.errors import BadMessage
from fedsaddle.federation.clients import Own, Sent, Task
from fedsaddle.federation.records import R, Record, Visibility, is_record, tensors, visibility
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Kinds, Message
from fedsaddle.files import Json
from fedsaddle.secure.fixed_point import (
    LEAST_SITES,
    Layout,
    decode,
    layout_of,
    read_layout,
    require_bytes,
    share_word,
    shares_of,
    sum_of,
    too_few,
)
from fedsaddle.secure.masking import UnmaskShare, unmask_
from fedsaddle.secure.secured import SeenFields

log = logging.getLogger("fedsaddle.server")
ATTEMPTS = 2  # at collecting the unmask shares


@dataclass(frozen=True)
class Masked:
    """A checked reply of one site: the bytes of the masked words, and the fields that are not masked.

    Args:
        kind: class of the record.
        layout: of the masked fields.
        masked: the bytes.
        shown: fields that are not masked.
    """

    kind: type[Record]
    layout: Layout
    masked: Tensor
    shown: Mapping[str, Tensor]


@dataclass(frozen=True)
class MaskedQuestion:
    """What sites answered behind masks: the nonce of the message, and the sites asked, each with its share.

    Args:
        nonce: of the message.
        shares: of the weight of each site.
        cohort: the sites that were asked.
        where: for messages.
    """

    nonce: str
    shares: Mapping[int, float]
    cohort: Sequence[int]
    where: str


@dataclass
class SecureClients(RemoteClients):
    """Clients at remote sites, of whose averaged fields the server only learns sums.

    Args:
        seen: the fields that the server has seen.
    """

    seen: SeenFields = field(default_factory=SeenFields)

    @property
    def least(self) -> int:
        """The smallest number of sites of a sum: three, or more if the policy of a site requires it."""
        return max(LEAST_SITES, self.minimum_sites)

    def settings(self) -> dict[str, Json]:
        """The engine's name, and that it sums in fixed point."""
        return {**super().settings(), "secure_aggregation": True}

    def report(self) -> dict[str, Json]:
        """Answers, faults and bytes per site, and the fields that the server saw."""
        return {**super().report(), **self.seen.to_dict()}

    def reduced(
        self, clients: Ints, total_weights: Floats, task: Task[Own, Sent, R], sent: Sent, exchange: int
    ) -> tuple[Ints, R]:
        """The clients that answered one exchange, and their replies in one, of which averaged fields were masked."""
        shares = dict(zip(clients.tolist(), shares_of(total_weights).tolist(), strict=True))
        expected = self.expected.of(task, sent)
        if (expected is None or layout_of(expected)) and (reason := too_few(list(shares.values()), self.least)):
            raise self.nobody(reason)
        shares = {i: shares[i] for i in self.counted(clients.tolist(), exchange)}
        asked = _Asked(self, task, sent, exchange, shares, expected)
        good = asked.collect()
        replies = {i: good[i] for i in clients.tolist() if i in good}  # in cohort order
        kind, shown = next(iter(replies.values()))[1].kind, _shown([one for _, one in replies.values()])
        sums = asked.sums(replies)
        for i, (answer, _) in replies.items():
            self.accept(i, answer)
        self.seen.note(kind, {*sums, *shown})
        return np.array(list(replies), dtype=np.int64), cast(R, kind(**sums, **shown))

    def unmasked(self, masked: Mapping[int, Tensor], layout: Layout, question: MaskedQuestion) -> dict[str, Tensor]:
        """The weighted means over the sites whose masked replies to one question these are.

        Raises:
            NobodyAnswered: if they are too few, or do not open their masks.
        """
        shares = question.shares
        if reason := too_few([shares[i] for i in masked], self.least):
            raise self.nobody(reason)
        openings = self._openings(sorted(masked), question)
        try:
            total = sum_of(list(masked.values()), layout)
            unmask_(total, masked, openings, set(question.cohort) - masked.keys())
        except BadMessage as reason:
            raise self.nobody(f"the masks could not be removed ({reason})") from None
        if int(total[-1]) != sum(share_word(shares[i]) for i in masked) % 2**64:
            raise self.nobody("the masks of this exchange do not cancel: a site did not mask as it should")
        return decode(total, layout)

    def _openings(self, alive: Sequence[int], question: MaskedQuestion) -> dict[int, UnmaskShare]:
        """The unmask share of each of these sites; all are needed."""
        lost = [i for i in question.cohort if i not in alive]

        def make_message(nonce: str, asked: list[int]) -> Message:
            about = Request(do="unmask", run=self.run, fingerprint=self.fingerprint, nonce=nonce).to_dict()
            return Message(about, {"of": question.nonce, "alive": list(alive)})

        def check(client: int, answer: Answer, record: object) -> UnmaskShare:
            return read_opening(record, client, alive, lost)

        found = self.courier.quick(alive, make_message, check)
        for _ in range(ATTEMPTS):
            if missing := [i for i in alive if i not in found]:
                found |= self.courier.once(missing, make_message, check, f"{question.where}, masks", self.round)
        if silent := [self.courier.names[i] for i in alive if i not in found]:
            raise self.nobody(f"{', '.join(silent)} answered, but did not open their masks")
        return found


@dataclass
class _Asked(Generic[Own, Sent, R]):
    """One exchange."""

    of: SecureClients
    task: Task[Own, Sent, R]
    sent: Sent
    exchange: int
    shares: dict[int, float]
    expected: R | None
    nonce: str = ""  # of the attempt that counts
    cohort: list[int] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"round {self.of.round + 1}, exchange {self.exchange + 1}"

    def collect(self) -> dict[int, tuple[Answer, Masked]]:
        """The valid replies to one and the same message."""
        name = str(getattr(self.task, "__name__", self.task))
        kinds = records_of(getattr(self.task, "__self__", self.task))
        versions: set[str | None] = {None}

        def make_message(nonce: str, asked: list[int]) -> Message:
            self.nonce, self.cohort = nonce, asked
            shares = {str(i): self.shares[i] for i in asked}
            ask = self.of.ask_of(nonce, asked, name, self.exchange, SecureCohort(shares=shares))
            versions.add(ask.version)
            return Message(ask.to_dict(), self.sent)

        def check(client: int, answer: Answer, record: object) -> tuple[Answer, Masked] | Fault:
            if answer.version not in versions:
                raise BadMessage("a version of its memory that the ask does not name")
            found = self._read(client, record, kinds)
            return found if isinstance(found, Fault) else (answer, found)

        hides = self.expected is None or layout_of(self.expected)
        policies = 0 if self.of.minimum_sites <= 1 else self.of.minimum_sites
        least = self.of.answers_needed(self.exchange, len(self.shares), self.of.least if hides else policies)
        clients = list(self.shares)
        good = self.of.courier.collect(
            clients, least, make_message, kinds, check, self.where, self.of.round, afresh=True
        )
        for i in good:
            self.of.attendance.count_answer(i)
        usual = Counter((one.kind, one.layout) for _, one in good.values()).most_common(1)[0][0]
        return {i: both for i, both in good.items() if (both[1].kind, both[1].layout) == usual}

    def _read(self, client: int, record: object, kinds: Kinds) -> Masked | Fault:
        """A site's reply, after checking what is not masked."""
        if not isinstance(record, dict):  # nothing of it is averaged
            if not is_record(record) or type(record) not in kinds.values():
                raise BadMessage("a reply that is not a record of the algorithm")
            if layout_of(record):
                raise BadMessage("averaged fields that are not masked")
            fault = reply_fault(client, record, record if self.expected is None else self.expected)
            return fault or Masked(type(record), (), torch.zeros(0, dtype=torch.uint8), dict(tensors(record)))
        if record.keys() != {"kind", "fields", "masked", "shown"}:
            raise BadMessage("a masked reply with other parts than it should have")
        known = kinds.get(record["kind"]) if isinstance(record["kind"], str) else None
        layout, shown, masked = read_layout(record["fields"]), record["shown"], record["masked"]
        if known is None or not isinstance(shown, dict) or not isinstance(masked, Tensor):
            raise BadMessage("a masked reply of an unknown kind")
        if fault := _fault(client, known, layout, shown, self.expected):
            return fault
        require_bytes(masked, layout)
        return Masked(known, layout, masked, shown)

    def sums(self, replies: Mapping[int, tuple[Answer, Masked]]) -> dict[str, Tensor]:
        """The means of the averaged fields over the sites that answered, after unmasking."""
        layout = next(iter(replies.values()))[1].layout
        if not layout:
            return {}
        masked = {i: one.masked for i, (_, one) in replies.items()}
        return self.of.unmasked(masked, layout, MaskedQuestion(self.nonce, self.shares, self.cohort, self.where))


def _fault(
    client: int, kind: type[Record], layout: Layout, shown: Mapping[str, object], expected: Record | None
) -> Fault | None:
    """The first fault of a masked reply: its kind, the form of masked fields, or the fields that are not masked."""

    def wrong(detail: str) -> Fault:
        return Fault(FaultKind.WRONG_RECORD, client, detail)

    visible, masked = visibility(kind), {one.name for one in layout}
    if not masked or len(masked) != len(layout) or any(visible.get(n) is not Visibility.AVERAGED for n in masked):
        return wrong("a masked reply with other fields than its record has")
    for name, value in shown.items():
        if visible.get(name) in (None, Visibility.AVERAGED) or not isinstance(value, Tensor) or value.ndim < 1:
            return wrong("a masked reply that shows other fields than its record has")
        if not bool(torch.isfinite(value).all()):
            return Fault(FaultKind.NOT_FINITE, client, name)
    if expected is None:
        return None
    if kind is type(expected) and layout != layout_of(expected):
        return wrong("masked fields of other names, types or shapes than the task's")
    hidden = dict.fromkeys(name for name, seen in visible.items() if seen is Visibility.AVERAGED)  # seen by nobody
    known = issubclass(kind, type(expected))
    bare = replace(expected, **hidden) if known else expected
    return reply_fault(client, kind(**{**dict.fromkeys(visible), **shown}), bare)


def _shown(replies: Sequence[Masked]) -> dict[str, Tensor]:
    """The fields that are not masked, of each client in cohort order."""
    visible, found = visibility(replies[0].kind), {}
    for name in replies[0].shown:
        whole = torch.cat([one.shown[name] for one in replies])
        found[name] = whole.flatten(0, 1) if visible[name] is Visibility.POOLED else whole
    return found

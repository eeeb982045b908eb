"""Sums over sites of answers to requests: each site masks its own, and the server learns the sum of three or more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from fedsaddle.deployment.audit import SUMS
from fedsaddle.deployment.courier import REFUSALS
from fedsaddle.deployment.messages import Answer, Fault, Request, SecureCohort, reply_limits
from fedsaddle.deployment.secure_clients import MaskedQuestion, SecureClients
from fedsaddle.errors import BadMessage
from fedsaddle.federation.records import Record
from fedsaddle.federation.wire import Message
from fedsaddle.secure.fixed_point import layout_of, require_bytes

Reply = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class MaskedReplies:
    """The replies of some sites to one request, without what is masked in them, and the masked sums."""

    replies: dict[int, Reply]
    masked: dict[int, Tensor]
    question: MaskedQuestion

    def sum(self, clients: SecureClients, like: Record) -> dict[str, Tensor]:
        """The means over the sites that answered behind masks.

        Args:
            clients: The sites.
            like: An answer of the same form.

        Raises:
            NobodyAnswered: if they are too few, or do not open their masks.
        """
        found = clients.unmasked(self.masked, layout_of(like), self.question)
        clients.seen.note(type(like), set(found))
        return found


def ask_masked(
    clients: SecureClients, do: str, payload: Mapping[str, object], asked: Sequence[int], cohort: Sequence[int],
    like: Record, check: Callable[[int, Reply], Reply | Fault], round: int,
) -> MaskedReplies:  # fmt: skip
    """Ask sites, of which those of the cohort mask a part of their reply for a sum over it.

    Args:
        clients: The sites.
        do: The request.
        payload: What it is about.
        asked: The sites to ask.
        cohort: Those that have rows.
        like: What is masked, by its form.
        check: Checks what is not masked.
        round: The round, for messages and pauses.

    Raises:
        TooFewAnswered: if fewer than the deployment's minimum answer.
    """
    layout, question = layout_of(like), MaskedQuestion("", {}, (), "")

    def make_message(nonce: str, now: list[int]) -> Message:
        nonlocal question
        there = [i for i in now if i in cohort]
        question = MaskedQuestion(nonce, dict.fromkeys(there, 1 / max(len(there), 1)), there, do)
        about = Request(do=do, run=clients.run, fingerprint=clients.fingerprint, nonce=nonce).to_dict()
        secure = None
        if len(there) >= clients.least:
            secure = SecureCohort(shares={str(i): share for i, share in question.shares.items()}).model_dump()
        return Message(about, {**payload, "secure": secure})

    def read(client: int, answer: Answer, record: object) -> Reply | Fault:
        if not isinstance(record, dict):
            raise BadMessage("a reply without fields")
        sums = record.get(SUMS)
        if sums is not None:
            if client not in question.cohort or not isinstance(sums, Tensor):
                raise BadMessage("masked sums that were not asked for")
            require_bytes(sums, layout)
        found = check(client, {key: value for key, value in record.items() if key != SUMS})
        return found if isinstance(found, Fault) else {**found, SUMS: sums}

    courier, least = clients.courier, max(1, clients.courier.least(len(asked)))
    good = courier.collect(
        list(asked), least, make_message, {}, read, do, round, reply_limits(do), REFUSALS, afresh=True
    )
    masked = {i: reply[SUMS] for i, reply in sorted(good.items()) if reply[SUMS] is not None}
    replies = {i: {key: value for key, value in reply.items() if key != SUMS} for i, reply in good.items()}
    return MaskedReplies(replies, masked, question)

"""The facts that travel beside a record, as typed messages, and what can go wrong with them.

A message is JSON on the wire. It is checked when it is read: every key must be there, with a value of its type, and no
other; anything else is a `BadMessage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fedsaddle.errors import BadMessage, Refused

PROTOCOL = 2  # since 2 an answer's failure has a kind and a detail
MAX_DETAIL = 200  # characters of a site's own text that are shown


class FaultKind(Enum):
    """Why a site's reply is not used."""

    SILENT = "silent"
    NOT_CONNECTED = "not_connected"
    REFUSED = "refused"
    FAILED = "failed"
    BAD_MESSAGE = "bad_message"
    TOO_LARGE = "too_large"
    STALE = "stale"
    WRONG_RECORD = "wrong_record"
    NOT_FINITE = "not_finite"


_TEXT = {
    FaultKind.SILENT: "did not answer in {}",
    FaultKind.NOT_CONNECTED: "is not connected",
    FaultKind.REFUSED: "refused: {}",
    FaultKind.FAILED: "failed: {}",
    FaultKind.BAD_MESSAGE: "sent a bad message: {}",
    FaultKind.TOO_LARGE: "sent {}",
    FaultKind.STALE: "sent a reply to another ask",
    FaultKind.WRONG_RECORD: "sent {}",
    FaultKind.NOT_FINITE: "sent a '{}' that is not finite",
}


@dataclass(frozen=True)
class Fault:
    """What is wrong with one client's reply.

    The detail is for people to read; of `NOT_FINITE` it is the name of the field.

    >>> str(Fault(FaultKind.NOT_FINITE, 2, "loss"))
    "sent a 'loss' that is not finite"
    """

    kind: FaultKind
    client: int
    detail: str = ""

    def __str__(self) -> str:
        return _TEXT[self.kind].format(self.detail)


class MessagePart(BaseModel):
    """A part of a message: strict, and never changed."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class TypedMessage(MessagePart):
    """A whole message, with the number of the protocol beside it."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"protocol": PROTOCOL, **self.model_dump(mode="json")}

    @classmethod
    def read(cls, about: dict[str, Any]) -> Self:
        """The message; raises `BadMessage` with one plain line."""
        if about.get("protocol") != PROTOCOL:
            raise BadMessage(f"a message of protocol {about.get('protocol')!r:.40}; this version speaks {PROTOCOL}")
        try:
            return cls.model_validate({key: value for key, value in about.items() if key != "protocol"})
        except ValidationError as reason:
            raise BadMessage(_complaint(reason)) from None


def _complaint(reason: ValidationError) -> str:
    """The first thing that is wrong, in our words."""
    first = reason.errors(include_url=False, include_context=False)[0]
    where = f"{'.'.join(map(str, first['loc']))!r:.60}"
    if first["type"] == "missing":
        return f"a message without {where}"
    if first["type"] == "extra_forbidden":
        return f"a message with an unknown {where}"
    return f"a message whose {where} is {first['input']!r:.40}"


class Ask(TypedMessage):
    """Server to sites: run a task of your algorithm."""

    run: str
    fingerprint: str
    nonce: str  # of this exchange and attempt, never used twice
    round: NonNegativeInt
    exchange: NonNegativeInt
    task: str
    starts: dict[str, str]  # client -> the version of its memory to start from; left out: none
    keep: dict[str, list[str]]  # client -> versions that may still be needed


class Request(TypedMessage):
    """Server to sites: something other than a task, such as facts about the rows or the measures of a model."""

    do: str
    run: str
    fingerprint: str
    nonce: str


class Failure(MessagePart):
    """Why a site could not answer. It names no data."""

    kind: Literal["refused", "failed"]  # who refuses will not change its mind
    detail: str

    @classmethod
    def of(cls, reason: Exception) -> Failure:
        """What a site tells of an error: the text of what it refuses or cannot read, of anything else the type."""
        told = str(reason) if isinstance(reason, Refused | BadMessage) else type(reason).__name__
        return cls(kind="refused" if isinstance(reason, Refused) else "failed", detail=told)

    def fault(self, client: int) -> Fault:
        """As the server counts it."""
        return Fault(FaultKind(self.kind), client, f"{self.detail:.{MAX_DETAIL}}")


class Answer(TypedMessage):
    """Site to server: what became of an ask or a request."""

    nonce: str
    version: str | None  # of the memory as the task left it; None: it remembers nothing
    samples: NonNegativeInt
    failure: Failure | None

    @classmethod
    def failed(cls, nonce: str, reason: Exception) -> Answer:
        """The answer of a site that could not do it."""
        return cls(nonce=nonce, version=None, samples=0, failure=Failure.of(reason))

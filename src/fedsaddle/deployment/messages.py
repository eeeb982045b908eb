"""The headers of the messages between server and sites, and the faults of replies.

A header is JSON on the wire. The reader checks that it has exactly the expected keys, with values of the right types;
otherwise it raises `BadMessage`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fedsaddle.errors import BadMessage, Refused

PROTOCOL = 3  # 3: facts of columns and counts between edges, before the encoding is agreed
MAX_DETAIL = 200  # characters of a site's text to show


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
    FaultKind.STALE: "sent a reply to another request",
    FaultKind.WRONG_RECORD: "sent {}",
    FaultKind.NOT_FINITE: "sent a '{}' that is not finite",
}


@dataclass(frozen=True)
class Fault:
    """A fault of one client's reply.

    The detail is text for users; for `NOT_FINITE` it is the name of the field.

    >>> str(Fault(FaultKind.NOT_FINITE, 2, "loss"))
    "sent a 'loss' that is not finite"
    """

    kind: FaultKind
    client: int
    detail: str = ""

    def __str__(self) -> str:
        return _TEXT[self.kind].format(self.detail)


class MessagePart(BaseModel):
    """A part of a message, strictly typed and immutable."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class TypedMessage(MessagePart):
    """A message header with the protocol version."""

    def to_dict(self) -> dict[str, Any]:
        """The header with the protocol version, for JSON."""
        return {"protocol": PROTOCOL, **self.model_dump(mode="json")}

    @classmethod
    def read(cls, about: dict[str, Any]) -> Self:
        """Validate a header; raise `BadMessage` for the first error."""
        if about.get("protocol") != PROTOCOL:
            raise BadMessage(f"a message of protocol {about.get('protocol')!r:.40}; this version uses {PROTOCOL}")
        try:
            return cls.model_validate({key: value for key, value in about.items() if key != "protocol"})
        except ValidationError as reason:
            raise BadMessage(error_text(reason)) from None


def error_text(reason: ValidationError) -> str:
    """The first validation error in one short phrase."""
    first = reason.errors(include_url=False, include_context=False)[0]
    where = f"{'.'.join(map(str, first['loc']))!r:.60}"
    if first["type"] == "missing":
        return f"a message without {where}"
    if first["type"] == "extra_forbidden":
        return f"a message with an unknown {where}"
    return f"a message whose {where} is {first['input']!r:.40}"


class Ask(TypedMessage):
    """Server to sites: run a task of the algorithm."""

    run: str
    fingerprint: str
    nonce: str  # identifies this attempt; never used twice
    round: NonNegativeInt
    exchange: NonNegativeInt
    task: str
    starts: dict[str, str]  # client -> the version of its memory to start from; absent: no memory
    keep: dict[str, list[str]]  # client -> versions to keep


class Request(TypedMessage):
    """Server to sites: a request other than a task, such as facts about the rows or the evaluation of a model."""

    do: str
    run: str
    fingerprint: str
    nonce: str


class Failure(MessagePart):
    """Why a site could not answer, without any data."""

    kind: Literal["refused", "failed"]  # a refusal is final; the server does not retry
    detail: str

    @classmethod
    def of(cls, reason: Exception) -> Failure:
        """The report of an error: the text of `Refused` and `BadMessage`, only the type of any other."""
        detail = str(reason) if isinstance(reason, Refused | BadMessage) else type(reason).__name__
        return cls(kind="refused" if isinstance(reason, Refused) else "failed", detail=detail)

    def fault(self, client: int) -> Fault:
        """The fault that the server counts."""
        return Fault(FaultKind(self.kind), client, f"{self.detail:.{MAX_DETAIL}}")


class Answer(TypedMessage):
    """Site to server: the answer to an ask or a request."""

    nonce: str
    version: str | None  # of the memory after the task; None: no memory
    samples: NonNegativeInt
    failure: Failure | None

    @classmethod
    def failed(cls, nonce: str, reason: Exception) -> Answer:
        """The answer of a site that failed."""
        return cls(nonce=nonce, version=None, samples=0, failure=Failure.of(reason))

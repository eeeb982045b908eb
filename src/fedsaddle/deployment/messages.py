"""The headers of the messages between server and sites, and the faults of replies.

A header is JSON on the wire. The reader checks that it has exactly the expected keys, with values of the right types,
lengths and ranges; otherwise it raises `BadMessage`. Text of others is cut and made visible before it is shown.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsaddle.atomic import is_disk_failure
from fedsaddle.errors import BadMessage, CannotWrite, Refused
from fedsaddle.shown import shortened, visible

PROTOCOL = 6  # 6: records by class names without modules; facts with a digest of the rows; versions
MAX_DETAIL = 200  # characters of a site's text to show
MAX_TOLD = 1000  # characters of a reason that a site may tell
MAX_SITES = 100_000

Word = Annotated[str, Field(max_length=100)]  # a name of a run, a task, a request, or a fingerprint
Nonce = Annotated[str, Field(pattern=r"^[A-Za-z0-9]{0,64}$")]
Version = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")]  # of a client's memory; a file's name
Client = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,5})$")]
Round = Annotated[int, Field(ge=0, le=10**9)]
Samples = Annotated[int, Field(ge=0, le=10**12)]


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
        return _TEXT[self.kind].format(shown_text(self.detail))


def shown_text(text: str) -> str:
    r"""Text of others in one short line, which can forge no line of a log.

    >>> shown_text("gone\n2026-01-01 INFO all is well")
    'gone\\n2026-01-01 INFO all is well'
    """
    return shortened(visible(text[: 2 * MAX_DETAIL]), MAX_DETAIL)


class MessagePart(BaseModel):
    """A part of a message, strictly typed and immutable."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class TypedMessage(MessagePart):
    """A message header with the protocol version."""

    def to_dict(self) -> dict[str, Any]:
        """The header with the protocol version, for JSON."""
        return {"protocol": PROTOCOL, **self.model_dump(mode="json")}

    @classmethod
    def read(cls, about: dict[str, Any]) -> Self:
        """Validate a header; raise `BadMessage` for the first error."""
        if about.get("protocol") != PROTOCOL:
            raise BadMessage(
                f"a message of protocol {_brief.repr(about.get('protocol'))}; this version uses {PROTOCOL}"
            )
        try:
            return cls.model_validate({key: value for key, value in about.items() if key != "protocol"})
        except ValidationError as reason:
            raise BadMessage(error_text(reason)) from None


def error_text(reason: ValidationError) -> str:
    """The first validation error in one short phrase."""
    first = reason.errors(include_url=False, include_context=False)[0]
    where = f"{'.'.join(str(part)[:60] for part in first['loc'])!r:.60}"
    if first["type"] == "missing":
        return f"a message without {where}"
    if first["type"] == "extra_forbidden":
        return f"a message with an unknown {where}"
    if first["type"] == "value_error":
        return f"a message whose {where} is not right: {first['msg'].removeprefix('Value error, ')}"
    return f"a message whose {where} is {_brief.repr(first['input'])!s:.40}"


_brief = reprlib.Repr()  # takes no longer for a long value than for a short one
_brief.maxstring = _brief.maxother = _brief.maxlong = 40
_brief.maxlevel = 2


class SecureCohort(MessagePart):
    """The sites that mask their replies together, each with its share of the weight."""

    shares: dict[Client, Annotated[float, Field(ge=-1, le=1)]] = Field(min_length=1, max_length=MAX_SITES)


class Ask(TypedMessage):
    """Server to sites: run a task of the algorithm."""

    run: Word
    fingerprint: Word
    nonce: Nonce  # identifies this attempt; never used twice
    round: Round
    exchange: Round
    task: Word
    starts: dict[Client, Version] = Field(max_length=MAX_SITES)  # the memory to start from; absent: no memory
    keep: dict[Client, Annotated[list[Version], Field(max_length=10)]] = Field(max_length=MAX_SITES)  # versions
    secure: SecureCohort | None = None  # None: replies are not masked

    @property
    def version(self) -> str:
        """The version of the memory that a site writes when it has run the task."""
        return f"{self.round:08d}-{self.exchange:03d}-{self.nonce}"


class Request(TypedMessage):
    """Server to sites: a request other than a task, such as facts about the rows or the evaluation of a model."""

    do: Word
    run: Word
    fingerprint: Word
    nonce: Nonce


class Failure(MessagePart):
    """Why a site could not answer, without any data."""

    kind: Literal["refused", "failed"]  # a refusal is final; the server does not retry
    detail: str = Field(max_length=MAX_TOLD)

    @classmethod
    def of(cls, reason: Exception) -> Failure:
        """The report of an error: the text of `Refused` and `BadMessage`, the cause of a disk's failure without the
        path, and only the type of any other.
        """
        detail = str(reason) if isinstance(reason, Refused | BadMessage) else type(reason).__name__
        if is_disk_failure(reason):
            cause = reason.cause if isinstance(reason, CannotWrite) else getattr(reason, "strerror", "")
            detail = f"it cannot write to its disk ({cause}); make room there, then resume the run"
        told = shortened(visible(detail), MAX_TOLD // 2)
        return cls(kind="refused" if isinstance(reason, Refused) else "failed", detail=told)

    def fault(self, client: int) -> Fault:
        """The fault that the server counts."""
        return Fault(FaultKind(self.kind), client, self.detail)


class Answer(TypedMessage):
    """Site to server: the answer to an ask or a request."""

    nonce: Nonce
    version: Version | None  # of the memory after the task; None: no memory
    samples: Samples
    failure: Failure | None

    @classmethod
    def failed(cls, nonce: str, reason: Exception) -> Answer:
        """The answer of a site that failed."""
        return cls(nonce=nonce, version=None, samples=0, failure=Failure.of(reason))

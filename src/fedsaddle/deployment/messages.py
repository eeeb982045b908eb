"""The messages between server and sites: headers, typed payloads with their limits, and the faults of replies."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Self, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from fedsaddle.data.tables.agreed_encoding import MAX_COLUMNS, MAX_VALUES, Count, Name, SiteCounts
from fedsaddle.data.tables.encode_rows import Encoded, Kind
from fedsaddle.data.tables.treatment import BINS
from fedsaddle.errors import BadMessage, CannotWrite, Refused
from fedsaddle.federation.wire import LIMITS, SMALL, Limits
from fedsaddle.files import is_disk_failure
from fedsaddle.text import shortened, visible

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

    Args:
        kind: what is wrong.
        client: whose reply it is.
        detail: text for users.

    Examples:
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

    Examples:
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
    def read(cls, about: dict[str, object]) -> Self:
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
    """The sites that mask their replies together, each with its share of the weight.

    Args:
        shares: share of the weight of each site.
    """

    shares: dict[Client, Annotated[float, Field(ge=-1, le=1)]] = Field(min_length=1, max_length=MAX_SITES)


class Ask(TypedMessage):
    """Server to sites: run a task of the algorithm.

    Args:
        run: name of the run.
        fingerprint: of the algorithm that all agreed on.
        nonce: identifies this attempt; never used twice.
        round: number of the round, from 0.
        exchange: number of the exchange in the round, from 0.
        task: name of the task.
        starts: the memory to start from; absent: no memory.
        keep: versions.
        secure: None: replies are not masked.
    """

    run: Word
    fingerprint: Word
    nonce: Nonce
    round: Round
    exchange: Round
    task: Word
    starts: dict[Client, Version] = Field(max_length=MAX_SITES)
    keep: dict[Client, Annotated[list[Version], Field(max_length=10)]] = Field(max_length=MAX_SITES)
    secure: SecureCohort | None = None

    @property
    def version(self) -> str:
        """The version of the memory that a site writes when it has run the task."""
        return f"{self.round:08d}-{self.exchange:03d}-{self.nonce}"


class Request(TypedMessage):
    """Server to sites: a request other than a task, such as facts about the rows or the evaluation of a model.

    Args:
        do: what is asked for.
        run: name of the run.
        fingerprint: of the algorithm that all agreed on, empty before.
        nonce: identifies this attempt.
    """

    do: Word
    run: Word
    fingerprint: Word
    nonce: Nonce


class Failure(MessagePart):
    """Why a site could not answer, without any data.

    Args:
        kind: a refusal is final; the server does not retry.
        detail: why, without any data.
    """

    kind: Literal["refused", "failed"]
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
    """Site to server: the answer to an ask or a request.

    Args:
        nonce: that of the ask.
        version: of the memory after the task; None: no memory.
        samples: rows that were drawn.
        failure: why there is no answer, or None.
    """

    nonce: Nonce
    version: Version | None
    samples: Samples
    failure: Failure | None

    @classmethod
    def failed(cls, nonce: str, reason: Exception) -> Answer:
        """The answer of a site that failed."""
        return cls(nonce=nonce, version=None, samples=0, failure=Failure.of(reason))


M = TypeVar("M", bound=BaseModel)
MAX_FEATURES = 100_000
REPLY_LIMITS: Mapping[str, Limits] = {"facts": LIMITS}  # of replies to a request; all others are small

Digests = Annotated[
    dict[Annotated[str, Field(max_length=40)], Annotated[str, Field(max_length=64)]], Field(max_length=20)
]
Site = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Finite = Annotated[float, Field(ge=-1e300, le=1e300)]
Label = Annotated[int, Field(ge=-(2**53), le=2**53)] | Name
Classes = Annotated[list[Label], Field(min_length=1, max_length=MAX_VALUES * 100)]


def read_payload(model: type[M], given: object) -> M:
    """Validate what came with a request or a reply; raise `BadMessage` for the first error."""
    try:
        return model.model_validate(given)
    except ValidationError as reason:
        raise BadMessage(error_text(reason)) from None


def reply_limits(do: str) -> Limits:
    """How large the reply to a request may be."""
    return REPLY_LIMITS.get(do, SMALL)


class Feature(MessagePart):
    """One feature of the agreed encoding, as `Encoded.to_dict` writes it.

    Args:
        column: name of the column.
        kind: how the feature follows from a cell.
        category: that it stands for.
        fill: in place of a missing number.
        log: whether the signed logarithm is taken.
        mean: that is subtracted.
        std: that it is divided by.
        clip: largest absolute value.
        knot: where a hinge begins.
        known: categories that have features of their own.
        unknown: in place of an unknown site.
        written: how the file writes numbers.
    """

    column: Name
    kind: Kind
    category: Name | None = None
    fill: Finite | None = None
    log: bool = False
    mean: Finite = 0.0
    std: Annotated[float, Field(gt=0, le=1e300)] = 1.0
    clip: Annotated[float, Field(gt=0, le=1e300)] | None = None
    knot: Finite = 0.0
    known: list[Name] = Field([], max_length=MAX_FEATURES)
    unknown: Annotated[float, Field(ge=0, le=1)] = 0.0
    written: Annotated[str, Field(max_length=100)] = ""

    def encoded(self) -> Encoded:
        """The feature itself."""
        return Encoded.from_dict(self.model_dump())


class ArrayScale(MessagePart):
    """How arrays are standardised: the shape of a row, and mean and deviation of each feature or of all.

    Args:
        shape: of a row.
        mean: of each feature, or of all.
        std: of each feature, or of all.
    """

    shape: list[Annotated[int, Field(ge=1, le=2**31)]] = Field(min_length=1, max_length=8)
    mean: Finite | Annotated[list[Finite], Field(max_length=MAX_FEATURES)]
    std: Finite | Annotated[list[Finite], Field(max_length=MAX_FEATURES)]


class AgreedEncoding(MessagePart):
    """The encoding that the server made of all facts: classes, and features or an array.

    Args:
        values: labels as the files have them, None for a regression target.
        classes: labels as text.
        counts: training rows of each class, as far as sites tell.
        positive: place of the positive label among the values.
        features: of tables.
        array: how arrays are standardised.
    """

    values: Classes | None
    classes: list[Name] | None = Field(max_length=MAX_VALUES * 100)
    counts: list[Annotated[int, Field(ge=0, le=2**60)]] = Field(max_length=MAX_VALUES * 100)
    positive: Count | None = None
    features: list[Feature] | None = Field(None, min_length=1, max_length=MAX_FEATURES)
    array: ArrayScale | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.features is None) == (self.array is None):
            raise ValueError("either features or an array is needed")
        if (self.classes is None) != (self.values is None) or len(self.classes or ()) != len(self.counts):
            raise ValueError("a count for each class is needed")
        if self.positive is not None and self.positive >= len(self.values or ()):
            raise ValueError("the positive class is not among the values")
        return self


class FactsAsked(MessagePart):
    """Server to sites: the digests of the run's config, and the names of all sites.

    Args:
        config: digests of the sections of the config.
        names: of all sites.
    """

    config: Digests
    names: list[Site] = Field([], max_length=MAX_SITES)


class CountsAsked(MessagePart):
    """Server to sites: how number columns are standardised before their cells are counted.

    Args:
        config: digests of the sections of the config.
        drafts: features of the number columns, each column once.
    """

    config: Digests
    drafts: list[Feature] = Field(max_length=MAX_COLUMNS)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len({draft.column for draft in self.drafts}) != len(self.drafts):
            raise ValueError("a column stands twice")
        return self


class KeysAsked(MessagePart):
    """Server to sites: the names of all sites, each of which makes a key for the run.

    Args:
        config: digests of the sections of the config.
        names: of all sites.
    """

    config: Digests
    names: list[Site] = Field(min_length=1, max_length=MAX_SITES)


class KeyTold(MessagePart):
    """Site to server, and from there to all sites: the key of a site in a run, and its signature.

    Args:
        public: the public key, in hexadecimal.
        signature: by the site's signing key, in hexadecimal.
    """

    public: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class UnmaskAsked(MessagePart):
    """Server to sites: which answers are summed, of the question with that nonce.

    Args:
        of: nonce of the ask whose replies are summed.
        alive: the clients whose replies are summed.
    """

    of: Nonce
    alive: list[Annotated[int, Field(ge=0, lt=MAX_SITES)]] = Field(min_length=1, max_length=MAX_SITES)


class AgreeAsked(MessagePart):
    """Server to sites: the names of all sites, the encoding and, for secure aggregation, the keys of all sites.

    Args:
        config: digests of the sections of the config.
        names: of all sites.
        agreed: the encoding.
        keys: for secure aggregation, of all sites.
        sizes: training rows, with keys.
    """

    config: Digests
    names: list[Site] = Field(min_length=1, max_length=MAX_SITES)
    agreed: AgreedEncoding
    keys: dict[Site, KeyTold] | None = Field(None, max_length=MAX_SITES)
    sizes: list[Count] | None = Field(None, max_length=MAX_SITES)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise ValueError("a site stands twice")
        if self.sizes is not None and len(self.sizes) != len(self.names):
            raise ValueError("a number of rows for each site is needed")
        return self


class AgreeTold(MessagePart):
    """Site to server: the number of its training rows.

    Args:
        rows: training rows of the site.
    """

    rows: Count


class MeasureAsked(MessagePart):
    """Server to sites: a model to evaluate on the rows of one part.

    Args:
        w: the model.
        dual: its dual, if it has one.
        part: the rows to measure it on.
        rounds: that were done before.
        cuts: first bins of alarms.
        groups: numbers of the agreed groups to count apart.
        secure: None: score counts are not masked.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

    w: Tensor
    dual: Tensor | None
    part: Literal["train", "validation", "test"]
    rounds: Annotated[int, Field(ge=0, le=10**9)] = 0
    cuts: Annotated[list[Annotated[int, Field(ge=0, le=10**6)]], Field(max_length=100)] = []
    groups: Annotated[list[Annotated[int, Field(ge=0, lt=1000)]], Field(max_length=100)] = []
    secure: SecureCohort | None = None


class SpreadAsked(MeasureAsked):
    """Server to sites: the model again, and the score counts of all sites, for sums of squares over patients.

    Args:
        positives: score counts of all sites.
        negatives: score counts of all sites.
    """

    positives: Tensor
    negatives: Tensor
    group: Annotated[int, Field(ge=0, lt=1000)] | None = None  # among the agreed ones; None: all rows

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for counts in (self.positives, self.negatives):
            ok = counts.dtype == torch.float64 and counts.ndim == 2 and counts.shape[1] <= 10**6
            if not ok or not bool((torch.isfinite(counts) & (counts >= 0)).all()):
                raise ValueError("counts are numbers of at least 0")
        return self


def tell_counts(told: SiteCounts) -> dict[str, Tensor]:
    """The counts as they are sent."""
    return {"counts": torch.tensor(told.counts, dtype=torch.int64).reshape(-1, BINS)}


def read_counts(given: object, columns: int) -> SiteCounts:
    """The counts of so many columns, as `tell_counts` sent them."""
    counts = given.get("counts") if isinstance(given, dict) and len(given) == 1 else None
    if not isinstance(counts, Tensor) or counts.dtype != torch.int64:
        raise BadMessage("a message without 'counts' of whole numbers")
    if tuple(counts.shape) != (columns, BINS):
        raise BadMessage(f"counts of shape {tuple(counts.shape)}, not ({columns}, {BINS})")
    return read_payload(SiteCounts, {"counts": counts.tolist()})


def require_shape(value: Tensor | None, like: Tensor | None, name: str) -> None:
    """Raise `BadMessage` for a tensor of another shape than `like`, or one that holds no real numbers."""
    if value is None or like is None:
        if value is not like:
            raise BadMessage(f"{'no' if value is None else 'an unexpected'} {name!r}")
    elif value.shape != like.shape or not value.is_floating_point():
        raise BadMessage(f"a {name!r} of shape {tuple(value.shape)}, not {tuple(like.shape)}, or of another type")

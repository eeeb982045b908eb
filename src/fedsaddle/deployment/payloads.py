"""What requests and their replies may hold, beside headers: each has a model that names types, lengths and ranges.

`facts` and `counts` are answered with `SiteFacts` and `SiteCounts` of `fedsaddle.data.files.site_facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from fedsaddle.data.encoded import Encoded, Kind
from fedsaddle.data.files.column_facts import BINS
from fedsaddle.data.files.site_facts import MAX_COLUMNS, MAX_VALUES, Count, Name, SiteCounts
from fedsaddle.deployment.messages import MAX_SITES, MessagePart, Nonce, error_text
from fedsaddle.errors import BadMessage
from fedsaddle.federation.wire_checks import LIMITS, SMALL, Limits

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


def read_payload(model: type[M], given: Any) -> M:
    """Validate what came with a request or a reply; raise `BadMessage` for the first error."""
    try:
        return model.model_validate(given)
    except ValidationError as reason:
        raise BadMessage(error_text(reason)) from None


def reply_limits(do: str) -> Limits:
    """How large the reply to a request may be."""
    return REPLY_LIMITS.get(do, SMALL)


class Feature(MessagePart):
    """One feature of the agreed encoding, as `Encoded.to_dict` writes it."""

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
    """How arrays are standardised: the shape of a row, and mean and deviation of each feature or of all."""

    shape: list[Annotated[int, Field(ge=1, le=2**31)]] = Field(min_length=1, max_length=8)
    mean: Finite | Annotated[list[Finite], Field(max_length=MAX_FEATURES)]
    std: Finite | Annotated[list[Finite], Field(max_length=MAX_FEATURES)]


class AgreedEncoding(MessagePart):
    """The encoding that the server made of all facts: classes, and features or an array."""

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
    """Server to sites: the digests of the run's config, and the names of all sites."""

    config: Digests
    names: list[Site] = Field([], max_length=MAX_SITES)


class CountsAsked(MessagePart):
    """Server to sites: how number columns are standardised before their cells are counted."""

    config: Digests
    drafts: list[Feature] = Field(max_length=MAX_COLUMNS)


class KeysAsked(MessagePart):
    """Server to sites: the names of all sites, each of which makes a key for the run."""

    config: Digests
    names: list[Site] = Field(min_length=1, max_length=MAX_SITES)


class KeyTold(MessagePart):
    """Site to server, and from there to all sites: the key of a site in a run, and its signature."""

    public: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class UnmaskAsked(MessagePart):
    """Server to sites: which answers are summed, of the question with that nonce."""

    of: Nonce
    alive: list[Annotated[int, Field(ge=0, lt=MAX_SITES)]] = Field(min_length=1, max_length=MAX_SITES)


class AgreeAsked(MessagePart):
    """Server to sites: the names of all sites, the encoding and, for secure aggregation, the keys of all sites."""

    config: Digests
    names: list[Site] = Field(min_length=1, max_length=MAX_SITES)
    agreed: AgreedEncoding
    keys: dict[Site, KeyTold] | None = Field(None, max_length=MAX_SITES)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(set(self.names)) != len(self.names):
            raise ValueError("a site stands twice")
        return self


class AgreeTold(MessagePart):
    """Site to server: the number of its training rows."""

    rows: Count


class MeasureAsked(MessagePart):
    """Server to sites: a model to evaluate on the rows of one part."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

    w: Tensor
    dual: Tensor | None
    part: Literal["train", "validation", "test"]
    rounds: Annotated[int, Field(ge=0, le=10**9)] = 0  # that were done before


def tell_counts(told: SiteCounts) -> dict[str, Tensor]:
    """The counts as they are sent."""
    return {"counts": torch.tensor(told.counts, dtype=torch.int64).reshape(-1, BINS)}


def read_counts(given: Any, columns: int) -> SiteCounts:
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

"""The requests of a study, beside those of a run: agree on the plan, begin a trial, and say goodbye with the model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from torch import Tensor

from fedsaddle.deployment.messages import MAX_SITES, AgreedEncoding, Digests, KeyTold, MessagePart, Site, Word
from fedsaddle.errors import BadMessage
from fedsaddle.metrics.score_sums import BINS

PARTS = ("validation", "test")  # of the rows, that models are compared on
Part = Literal["validation", "test"]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]


class StudyAsked(MessagePart):
    """Server to sites: the digest of the plan, and all that the sites of a run agree on."""

    plan: Word
    config: Digests
    names: list[Site] = Field(min_length=1, max_length=MAX_SITES)
    agreed: AgreedEncoding
    keys: dict[Site, KeyTold] | None = Field(None, max_length=MAX_SITES)


class BeginAsked(MessagePart):
    """Server to sites: begin a trial, from this model if it starts from that of another trial."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

    start: Tensor | None = None
    start_trial: Word | None = None


class OwnAsked(MessagePart):
    """Server to sites: their own figures of a model on test rows, and of one that each trains on its rows alone."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

    w: Tensor
    trial: Annotated[int, Field(ge=0, le=10**6)]
    cuts: list[Annotated[int, Field(ge=0, le=BINS)]] = Field(max_length=40)
    alone: bool = False


class GoodbyeAsked(MessagePart):
    """Server to sites: the chosen model, how its scores become probabilities, and the card."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)

    w: Tensor
    trial: Word
    name: Annotated[str, Field(max_length=200)]
    slope: Number
    intercept: Number
    threshold: Share
    reason: Annotated[str, Field(max_length=200)]
    card: list[Annotated[str, Field(max_length=2000)]] = Field([], max_length=2000)  # lines of Markdown


def name_of(run: str, place: str) -> str:
    """The name by which messages about a trial, or about a part of the rows, are known.

    Examples:
        >>> name_of("icu-4bda9e", "fedavg-0.3")
        'icu-4bda9e.fedavg-0.3'
    """
    return f"{run}.{place}"


def places_of(name: str) -> tuple[str, str]:
    """A study's run, and the trial or part of a message; the second is empty for messages about the whole study."""
    run, _, place = name.partition(".")
    if not run:
        raise BadMessage("a message without the name of a run")
    return run, place

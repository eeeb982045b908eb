"""What is said about an exchange beside the record: who is meant, from which memory, and what an answer belongs to."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from fedsaddle.errors import BadMessage, Refused

PROTOCOL = 1
REFUSED = "refused: "  # begins the reason of a site that will not change its mind
_TYPES: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "str": str,
    "str | None": (str, type(None)),
    "dict[str, str]": dict,
    "dict[str, list[str]]": dict,
}


@dataclass(frozen=True, kw_only=True)
class Said:
    """Facts as plain JSON, checked when they are read."""

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"protocol": PROTOCOL, **asdict(self)}

    @classmethod
    def read(cls, about: dict[str, Any]) -> Self:
        """The facts, or BadMessage."""
        if about.get("protocol") != PROTOCOL:
            raise BadMessage(f"a message of protocol {about.get('protocol')!r}; this version speaks {PROTOCOL}")
        given = {k: v for k, v in about.items() if k != "protocol"}
        wanted = {f.name: _TYPES[str(f.type)] for f in fields(cls)}
        if given.keys() != wanted.keys():
            raise BadMessage(f"a message with {sorted(given)} in it, not {sorted(wanted)}")
        for name, value in given.items():
            if not isinstance(value, wanted[name]) or isinstance(value, bool):
                raise BadMessage(f"a message whose {name} is {value!r:.40}")
        return cls(**given)


@dataclass(frozen=True, kw_only=True)
class Ask(Said):
    """Server to sites: run a task of your algorithm."""

    run: str
    fingerprint: str
    nonce: str  # of this exchange and attempt, never used twice
    round: int
    exchange: int
    task: str
    starts: dict[str, str]  # client -> the version of its memory to start from; left out: none
    keep: dict[str, list[str]]  # client -> versions that may still be needed


@dataclass(frozen=True, kw_only=True)
class Errand(Said):
    """Server to sites: something other than a task, such as telling facts or measuring a model."""

    do: str
    run: str
    fingerprint: str
    nonce: str


@dataclass(frozen=True, kw_only=True)
class Answer(Said):
    """Site to server: what became of it. A reason names no data."""

    nonce: str
    version: str | None  # of the memory as the task left it; None: it remembers nothing
    samples: int = 0
    failure: str = ""  # empty where the task ran


def failure_of(reason: Exception) -> str:
    """What a site tells of an error: all of what it refuses or cannot read, of anything else the kind alone."""
    if isinstance(reason, Refused):
        return f"{REFUSED}{reason}"
    return str(reason) if isinstance(reason, BadMessage) else type(reason).__name__

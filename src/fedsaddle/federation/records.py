"""What crosses between server and clients: frozen records of tensors whose fields say how they may be seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor


class Visibility(Enum):
    """How the server may see a field of a reply."""

    AVERAGED = "averaged"  # only the weighted mean over the clients that answered
    POOLED = "pooled"  # all clients' rows in one heap, without their names
    PER_CLIENT = "per client"  # each client's own value


class Layout(Enum):
    """How a field of a client's memory is laid out."""

    PER_SAMPLE = "per sample"  # the first axis runs over the client's own rows


Averaged = Annotated[Tensor, Visibility.AVERAGED]
Pooled = Annotated[Tensor, Visibility.POOLED]
PerClient = Annotated[Tensor, Visibility.PER_CLIENT]
PerSample = Annotated[Tensor, Layout.PER_SAMPLE]


@cache
def field_marks(record: Any) -> dict[str, Visibility | Layout]:
    """The mark of every marked field: `{"final": Seen.AVERAGED, ...}`."""
    found: dict[str, Visibility | Layout] = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        for option in options:
            for mark in getattr(option, "__metadata__", ()):
                if isinstance(mark, Visibility | Layout):
                    found[name] = mark
    return found


def visibility(record: type) -> dict[str, Visibility]:
    """How the server may see each field of a reply; every field must say."""
    marked = field_marks(record)
    unsaid = [f.name for f in fields(record) if not isinstance(marked.get(f.name), Visibility)]
    if unsaid:
        raise TypeError(f"{record.__name__}.{unsaid[0]} must be Averaged, Pooled or PerClient")
    return {name: mark for name, mark in marked.items() if isinstance(mark, Visibility)}


def tensors(record: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensor fields of a record, by name, in order."""
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Tensor):
            yield f.name, value


def nbytes(record: Any) -> int:
    """What the record weighs on a wire: its tensors, and eight bytes for each number."""
    total = 0
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Tensor):
            total += value.numel() * value.element_size()
        elif isinstance(value, int | float):
            total += 8
    return total


def same(a: Any, b: Any) -> bool:
    """Whether two records are equal to the bit."""
    if type(a) is not type(b):
        return False
    for f in fields(a):
        u, v = getattr(a, f.name), getattr(b, f.name)
        if isinstance(u, Tensor) != isinstance(v, Tensor):
            return False
        if not (torch.equal(u, v) if isinstance(u, Tensor) else u == v):
            return False
    return True

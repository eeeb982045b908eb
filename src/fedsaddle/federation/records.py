"""Records of tensors that server and clients exchange; the type of a reply's field states what the server may see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor


class Visibility(Enum):
    """How the server may see a field of a reply."""

    AVERAGED = "averaged"  # only the weighted mean over the clients that answered
    POOLED = "pooled"  # the rows of all clients concatenated, without client names
    PER_CLIENT = "per client"  # each client's own value


class Layout(Enum):
    """The layout of a field of a client's state."""

    PER_SAMPLE = "per sample"  # the first axis runs over the client's own rows


@dataclass(frozen=True)
class From:
    """A mark of an averaged field: the value began as that field of what was sent, such as the model `w`.

    A reply's update is then the difference of the two. Without the mark the value itself is the update, as is right for
    gradients and differences.
    """

    field: str


class Kept(Enum):
    """A mark of a field that robust aggregation leaves as it is, because it has exact bounds."""

    COUNT = "count"  # a number of rows, or whether there are any: between 0 and the client's rows; averaged as it is
    WIDE = "wide"  # a number between 0 and the client's rows times the number of clients; averaged as it is
    WEIGHTS_FIRST = "weights first"  # rows whose first column is a weight; its mean is at most the client's rows


Averaged = Annotated[Tensor, Visibility.AVERAGED]
Pooled = Annotated[Tensor, Visibility.POOLED]
PerClient = Annotated[Tensor, Visibility.PER_CLIENT]
PerSample = Annotated[Tensor, Layout.PER_SAMPLE]


@cache
def field_marks(record: Any) -> dict[str, Visibility | Layout]:
    """The visibility or layout of each annotated field: `{"final": Visibility.AVERAGED, ...}`."""
    found: dict[str, Visibility | Layout] = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        for option in options:
            for mark in getattr(option, "__metadata__", ()):
                if isinstance(mark, Visibility | Layout):
                    found[name] = mark
    return found


def bounds_marks(record: type) -> dict[str, From | Kept]:
    """What is known about the values of each marked field."""
    return _bounds_marks(record)


@cache
def _bounds_marks(record: Any) -> dict[str, From | Kept]:
    found: dict[str, From | Kept] = {}
    for name, hint in get_type_hints(record, include_extras=True).items():
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        for option in options:
            for mark in getattr(option, "__metadata__", ()):
                if isinstance(mark, From | Kept):
                    found[name] = mark
    return found


def visibility(record: type) -> dict[str, Visibility]:
    """What the server may see of each field of a reply; every field must be annotated."""
    marked = field_marks(record)
    missing = [f.name for f in fields(record) if not isinstance(marked.get(f.name), Visibility)]
    if missing:
        raise TypeError(f"{record.__name__}.{missing[0]} must be Averaged, Pooled or PerClient")
    return {name: mark for name, mark in marked.items() if isinstance(mark, Visibility)}


def tensors(record: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensor fields of a record, by name, in order."""
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Tensor):
            yield f.name, value


def only(record: Any, kept: Tensor) -> Any:
    """The same record of some of its clients: `kept (C,)` says which."""
    return type(record)(
        **{f.name: v[kept] if isinstance(v := getattr(record, f.name), Tensor) else v for f in fields(record)}
    )


def nbytes(record: Any) -> int:
    """The size of a record on the wire: its tensors, and eight bytes for each number."""
    total = 0
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Tensor):
            total += value.numel() * value.element_size()
        elif isinstance(value, int | float):
            total += 8
    return total


def same(a: Any, b: Any) -> bool:
    """Whether two records are equal bit for bit."""
    if type(a) is not type(b):
        return False
    for f in fields(a):
        u, v = getattr(a, f.name), getattr(b, f.name)
        if isinstance(u, Tensor) != isinstance(v, Tensor):
            return False
        if not (torch.equal(u, v) if isinstance(u, Tensor) else u == v):
            return False
    return True

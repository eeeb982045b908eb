"""Records of tensors that server and clients exchange; the type of a reply's field states what the server may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from types import UnionType
from typing import Annotated, ClassVar, Protocol, TypeGuard, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor


class Record(Protocol):
    """A dataclass of tensors and numbers that crosses the seam: what is sent, a reply, a client's memory."""

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]


def is_record(value: object) -> TypeGuard[Record]:
    """Whether it is a record, not the class of one."""
    return is_dataclass(value) and not isinstance(value, type)


T = TypeVar("T")


def replaced(value: T, **changes: object) -> T:
    """The same with other fields, where nothing but its class says that it is a dataclass."""
    return cast(T, replace(cast(Record, value), **changes))


R = TypeVar("R", bound=Record)
Known = TypeVar("Known")


def cached_by_class(of: Callable[[type], Known]) -> Callable[[type], Known]:
    """A function of a class that is computed once for each."""
    return cache(of)


class Visibility(Enum):
    """How the server may see a field of a reply."""

    AVERAGED = "averaged"  # only the weighted mean over the clients that answered
    POOLED = "pooled"  # the rows of all clients concatenated, without client names
    PER_CLIENT = "per client"  # each client's own value


class Layout(Enum):
    """The layout of a field of a client's state."""

    PER_SAMPLE = "per sample"  # the first axis runs over the client's own rows


@dataclass(frozen=True)
class UpdateOf:
    """Marks an averaged field as an updated copy of a field that the server sent, such as the model `w`.

    A client's update is the difference of the two. Without the mark the value itself is the update, as for gradients
    and differences.

    Args:
        field: the name of the field that was sent.
    """

    field: str


class Holds(Enum):
    """Marks a tensor by whether it holds parameters of the network, some layers of which may stay at the clients.

    Used in what is sent, in a client's state and, for `OTHER`, in a reply, whose models are marked by `UpdateOf`.
    """

    PARAMETERS = "parameters"  # all of them, in one flat vector; a task reads what was sent by `site.broadcast`
    OTHER = "other"  # nothing of them, nor a gradient: a loss, a dual variable, a count


class ExactBounds(Enum):
    """Marks a field with exact bounds: it is clipped to them, and exempt from robust aggregation."""

    COUNT = "count"  # a number of rows, or whether there are any: between 0 and the client's rows
    WIDE = "wide"  # a number between 0 and the client's rows times the number of clients
    WEIGHTS_FIRST = "weights first"  # rows whose first column is a weight; its mean is at most the client's rows


Averaged = Annotated[Tensor, Visibility.AVERAGED]
Pooled = Annotated[Tensor, Visibility.POOLED]
PerClient = Annotated[Tensor, Visibility.PER_CLIENT]
PerSample = Annotated[Tensor, Layout.PER_SAMPLE]
Parameters = Annotated[Tensor, Holds.PARAMETERS]


@cached_by_class
def field_marks(record: type) -> dict[str, Visibility | Layout]:
    """The visibility or layout of each annotated field: `{"final": Visibility.AVERAGED, ...}`."""
    return {name: mark for name, mark in _marks(record) if isinstance(mark, Visibility | Layout)}


@cached_by_class
def bounds_marks(record: type) -> dict[str, UpdateOf | ExactBounds]:
    """What is known about the values of each marked field."""
    return {name: mark for name, mark in _marks(record) if isinstance(mark, UpdateOf | ExactBounds)}


@cached_by_class
def parameters_in(record: type) -> tuple[str, ...]:
    """The fields that are models."""
    return tuple(name for name, mark in _marks(record) if mark is Holds.PARAMETERS)


def undeclared(record: type) -> list[str]:
    """The fields without a default that hold tensors, or records, and do not declare whether these are models."""
    hints = get_type_hints(record)
    declared = {name for name, mark in _marks(record) if isinstance(mark, Holds | UpdateOf | ExactBounds)}
    needed = [f.name for f in fields(record) if f.default is MISSING and f.name not in declared]
    return [name for name in needed if not _is_plain(hints[name])]


def _marks(record: type) -> Iterator[tuple[str, object]]:
    """Each field's name with each of its marks."""
    for name, hint in get_type_hints(record, include_extras=True).items():
        for option in _options(hint):
            for mark in getattr(option, "__metadata__", ()):
                yield name, mark


def _is_plain(hint: object) -> bool:
    return all(option in (bool, int, float, str, type(None)) for option in _options(hint))


def _options(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def visibility(record: type) -> dict[str, Visibility]:
    """What the server may see of each field of a reply; every field must be annotated."""
    marked = field_marks(record)
    missing = [f.name for f in fields(record) if not isinstance(marked.get(f.name), Visibility)]
    if missing:
        raise TypeError(f"{record.__name__}.{missing[0]} must be Averaged, Pooled or PerClient")
    return {name: mark for name, mark in marked.items() if isinstance(mark, Visibility)}


def tensors(record: Record) -> Iterator[tuple[str, Tensor]]:
    """The tensor fields of a record, by name, in order."""
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Tensor):
            yield f.name, value


def select_clients(record: R, mask: Tensor) -> R:
    """The record of the clients at which `mask (C,)` is true, or of the clients whose positions `mask` lists."""
    return type(record)(
        **{f.name: v[mask] if isinstance(v := getattr(record, f.name), Tensor) else v for f in fields(record)}
    )


def nbytes(record: Record) -> int:
    """The size of a record on the wire: its tensors, and eight bytes for each number."""
    total = 0
    for f in fields(record):
        value = getattr(record, f.name)
        if isinstance(value, Tensor):
            total += value.numel() * value.element_size()
        elif isinstance(value, int | float):
            total += 8
    return total


def same(a: Record, b: Record) -> bool:
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

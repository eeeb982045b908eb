"""The tasks of an algorithm and their records, read from the types of its methods."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from fedsaddle.errors import BadInput, BadMessage
from fedsaddle.federation.clients import Task


@dataclass(frozen=True)
class TaskType:
    """A client's task: a public method with the arguments (own, sent, site) that returns (own, reply)."""

    name: str
    sent: tuple[type, ...]  # the records that the server may send
    replies: tuple[type, ...]  # the records that a client may reply with
    own: tuple[type, ...]  # the records of a client's memory


@cache
def tasks_of(kind: type) -> dict[str, TaskType]:
    """The tasks of an algorithm's class by name.

    Example:
        >>> import fedsaddle as fs
        >>> [reply.__name__ for task in tasks_of(fs.Drfa).values() for reply in task.replies]
        ['LocalLoss', 'LocalModels']
    """
    found: dict[str, TaskType] = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and _takes_a_site(method):
            hints = _hints(kind, method)
            own, reply = (*get_args(hints.get("return")), None, None)[:2]
            sent, memory = _records(hints.get("sent")), (*_records(hints.get("own")), *_records(own))
            found[name] = TaskType(name, sent, _records(reply), tuple(dict.fromkeys(memory)))
    return found


def records_of(algorithm: Any) -> dict[str, type]:
    """The records of an algorithm by their names on the wire: of its tasks, its clients' memory, and what it wraps.

    Raises:
        TypeError: if two records of one algorithm have the same name.
    """
    wrapped = getattr(algorithm, "algorithm", None)
    inner = records_of(wrapped) if is_dataclass(wrapped) else {}
    kind: Any = type(algorithm)
    return _by_name(kind, (*inner.values(), *_own_records(kind)))


@cache
def _own_records(kind: type) -> tuple[type, ...]:
    tasks = tasks_of(kind).values()
    found = [record for task in tasks for record in (*task.own, *task.sent, *task.replies)]
    if not all(task.sent and task.replies for task in tasks):  # without types: the records of its own module
        found += [one for each in kind.__mro__[:-1] for one in _defined_with(each)]
    if inspect.isfunction(fresh := getattr(kind, "fresh", None)):
        found += _records(_hints(kind, fresh).get("return"))
    return tuple(dict.fromkeys(part for record in found for part in _with_parts(record)))


def _by_name(kind: type, records: Iterable[type]) -> dict[str, type]:
    found: dict[str, type] = {}
    for record in records:
        if found.setdefault(record.__qualname__, record) is not record:
            raise TypeError(f"{kind.__name__} has two records called {record.__qualname__}; rename one of them")
    return found


def task_of(algorithm: Any, name: str) -> Task[Any]:
    """The algorithm's task of that name."""
    method = getattr(type(algorithm), name, None) if name.isidentifier() and not name.startswith("_") else None
    if not inspect.isfunction(method) or not _takes_a_site(method):
        raise BadMessage(f"{type(algorithm).__name__} has no task {name!r:.40}")
    task: Callable[[Any, Any, Any], tuple[Any, Any]] = getattr(algorithm, name)
    return task


@cache
def _takes_a_site(method: Callable[..., Any]) -> bool:
    return [*inspect.signature(method).parameters][1:] == ["own", "sent", "site"]


def _hints(kind: type, method: Callable[..., Any]) -> dict[str, Any]:
    """The types of a method; where it has none, those of the method that it overrides."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if inspect.isfunction(one := vars(each).get(method.__name__)):
            try:
                found |= get_type_hints(one)
            except NameError as reason:
                remedy = f"the types of {one.__name__} cannot be read: {reason}; import them outside of TYPE_CHECKING"
                raise BadInput("algorithm", kind.__name__, remedy) from None
    return found


def _defined_with(kind: type) -> list[type]:
    """The dataclasses that its module defines; what it imports is none of them."""
    module = sys.modules.get(kind.__module__)
    every = [] if module is None else list(vars(module).values())
    return [one for one in every if isinstance(one, type) and is_dataclass(one) and one.__module__ == kind.__module__]


def _records(hint: Any) -> tuple[type, ...]:
    """The dataclasses that a type names: itself, or options of a union."""
    if isinstance(hint, type) and is_dataclass(hint):
        return (hint,)
    return tuple(record for part in get_args(hint) for record in _records(part))


def _with_parts(record: type) -> Iterator[type]:
    """A record, and the records that its fields hold."""
    yield record
    for hint in get_type_hints(record).values():
        for part in _records(hint):
            yield from _with_parts(part)

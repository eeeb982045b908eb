"""A client's task as a value: its name, its records, and what it releases about the client's rows.

`@task` marks a method `(own, sent, site) -> (own, reply)` of an algorithm. Its records are read from the types of the
method, so that the wire, secure aggregation, ledger and dry run know them for any algorithm.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast, get_args, get_type_hints, runtime_checkable

from fedsaddle.errors import BadInput, BadMessage
from fedsaddle.federation.clients import Sent, Site, Task
from fedsaddle.federation.records import R, Record, cached_by_class

Method = TypeVar("Method", bound=Callable[..., object])
AnyTask = Task[Record | None, Record, Record]  # one whose records only its `TaskType` knows
MARK = "__task__"


class Release(NamedTuple):
    """Noisy sums that are released from one sample of a client's rows.

    Args:
        size: expected rows or patients of the sample; None is all.
        fields: sums of one sample: 1 for a gradient or a loss, 2 for the gradients of two players.
    """

    size: int | None
    fields: int


Releases = Counter[Release]
ReleasedBy = Callable[[Any, Any], Releases]  # of an algorithm and what was sent


@dataclass(frozen=True)
class Mark:
    """What `@task` notes of a method."""

    releases: ReleasedBy | None = None
    reason: str = ""


def task(*, releases: ReleasedBy | None = None, reason: str = "") -> Callable[[Method], Method]:
    """Mark a method `(own, sent, site) -> (own, reply)` as a task that the server may ask of clients.

    Args:
        releases: what one call releases about the client's rows, a function of the algorithm and of what was sent;
            `per_step()` for a gradient in each of `local_steps` minibatches. A task with it can run with differential
            privacy: it may use rows only through the gradients and values of its `problem`, which clip and add noise.
            None: it has no private form.
        reason: why it has no private form, for the error message.

    Examples:
        >>> class Sgd:
        ...     batch_size, local_steps = 32, 5
        ...     @task(releases=per_step())
        ...     def local_sgd(self, own, sent, site): ...
        >>> tasks_of(Sgd)["local_sgd"].releases(Sgd(), None)
        Counter({Release(size=32, fields=1): 5})
    """

    def mark(method: Method) -> Method:
        setattr(method, MARK, Mark(releases, reason))
        return method

    return mark


def per_step(fields: int = 1) -> ReleasedBy:
    """A minibatch of `batch_size` rows in each of `local_steps` steps.

    Args:
        fields: noisy sums of each minibatch: 1 for a gradient, 2 for the gradients of two players.
    """
    return lambda algorithm, sent: Counter({Release(algorithm.batch_size, fields): algorithm.local_steps})


def per_minibatch(fields: int = 1) -> ReleasedBy:
    """One minibatch of `batch_size` rows."""
    return lambda algorithm, sent: Counter({Release(algorithm.batch_size, fields): 1})


def of_all_rows(fields: int = 1) -> ReleasedBy:
    """All rows, once."""
    return lambda algorithm, sent: Counter({Release(None, fields): 1})


def step_count(first: object, last: object) -> int:
    """The number of local steps that a server asks for; it is not trusted: a negative one would refund privacy."""
    if type(first) is not int or type(last) is not int or not 0 <= first < last:
        raise BadInput("steps", f"{first!r} to {last!r}"[:60], "ask for one local step or more")
    return last - first


@dataclass(frozen=True)
class PlannedExchange:
    """Exchanges planned for a run: their number, what a client in all of them releases, and the clients asked.

    Args:
        times: number of exchanges.
        releases: what a client that takes part in all of them releases.
        clients: clients asked in each.
    """

    times: int
    releases: Releases
    clients: int


@runtime_checkable
class PlansExchanges(Protocol):
    """An algorithm whose rounds do not all ask for each of its tasks once."""

    def planned_exchanges(self, rounds: int, clients: int) -> Iterable[PlannedExchange]:
        """Upper bounds on the exchanges of the first `rounds` rounds, with that number of clients."""
        ...


@runtime_checkable
class AsksAgain(Protocol):
    """An algorithm that asks for a task several times in a round, as the answers decide."""

    @property
    def asks_again(self) -> Mapping[str, int]:
        """Task -> how often a round may have it beyond once, at most."""
        ...


def planned_exchanges(algorithm: object, rounds: int, clients: int) -> list[PlannedExchange]:
    """The exchanges of `rounds` rounds: the algorithm's own plan, or each of its tasks once a round."""
    if isinstance(algorithm, PlansExchanges):
        return list(algorithm.planned_exchanges(rounds, clients))
    sampled: int | None = getattr(algorithm, "sampled_clients", None)
    asked, planned = clients if sampled is None else sampled, []
    for each in tasks_of(type(algorithm)).values():
        once: Releases = Counter() if each.releases is None else each.releases(algorithm, None)
        planned.append(PlannedExchange(rounds, Counter({kind: rounds * n for kind, n in once.items()}), asked))
    return planned


@dataclass(frozen=True)
class TaskType:
    """A client's task: a public method with the arguments (own, sent, site) that returns (own, reply)."""

    name: str
    sent: tuple[type[Record], ...]  # the records that the server may send
    replies: tuple[type[Record], ...]  # the records that a client may reply with
    own: tuple[type[Record], ...]  # the records of a client's memory
    releases: ReleasedBy | None = None  # None: it has no private form
    reason: str = ""


@runtime_checkable
class RunsTasks(Protocol):
    """A wrapper around an algorithm: its tasks are those of the algorithm, run in another way."""

    @property
    def algorithm(self) -> object:
        """The wrapped algorithm."""
        ...

    def run_task(self, name: str, own: Record | None, sent: Record, site: Site) -> tuple[Record | None, Record]:
        """Run the task of that name."""
        ...


class WrappedTask(Generic[Sent, R]):
    """A task of a wrapped algorithm; it looks like a method of the wrapper. It replies with the task's own record."""

    def __init__(self, wrapper: RunsTasks, name: str) -> None:
        self.__self__, self.__name__ = wrapper, name

    def __call__(self, own: Record | None, sent: Sent, site: Site) -> tuple[Record | None, R]:
        """Have the wrapper run it."""
        return cast(tuple[Record | None, R], self.__self__.run_task(self.__name__, own, sent, site))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WrappedTask) and (self.__self__, self.__name__) == (other.__self__, other.__name__)

    def __hash__(self) -> int:
        return hash((id(self.__self__), self.__name__))


@cached_by_class
def tasks_of(kind: type) -> dict[str, TaskType]:
    """The tasks of an algorithm's class by name.

    Examples:
        >>> import fedsaddle as fs
        >>> [reply.__name__ for task in tasks_of(fs.Drfa).values() for reply in task.replies]
        ['LocalLoss', 'LocalModels']
    """
    by_name: dict[str, TaskType] = {}
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_") and _takes_a_site(method):
            hints = _hints(kind, method)
            own, reply = (*get_args(hints.get("return")), None, None)[:2]
            sent, memory = _records(hints.get("sent")), (*_records(hints.get("own")), *_records(own))
            mark = getattr(method, MARK, Mark())
            own_records = tuple(dict.fromkeys(memory))
            by_name[name] = TaskType(name, sent, _records(reply), own_records, mark.releases, mark.reason)
    return by_name


def records_of(algorithm: object) -> dict[str, type[Record]]:
    """The records of an algorithm by their names on the wire: of its tasks, its clients' memory, and what it wraps.

    Raises:
        TypeError: if two records of one algorithm have the same name.
    """
    kind = type(algorithm)
    if not isinstance(algorithm, RunsTasks):
        return _by_name(kind, _own_records(kind))
    memory: tuple[type[Record], ...] = getattr(
        algorithm, "memory_records", ()
    )  # of a wrapper whose clients remember more
    return _by_name(kind, (*records_of(algorithm.algorithm).values(), *_own_records(kind), *memory))


@cached_by_class
def _own_records(kind: type) -> tuple[type[Record], ...]:
    tasks = tasks_of(kind).values()
    records = [record for task in tasks for record in (*task.own, *task.sent, *task.replies)]
    if not all(task.sent and task.replies for task in tasks):  # without types: the records of its own module
        records += [one for each in kind.__mro__[:-1] for one in _defined_with(each)]
    if inspect.isfunction(fresh := getattr(kind, "fresh", None)):
        records += _records(_hints(kind, fresh).get("return"))
    return tuple(dict.fromkeys(part for record in records for part in _with_parts(record)))


def _by_name(kind: type, records: Iterable[type[Record]]) -> dict[str, type[Record]]:
    by_name: dict[str, type[Record]] = {}
    for record in records:
        if by_name.setdefault(record.__qualname__, record) is not record:
            raise TypeError(f"{kind.__name__} has two records called {record.__qualname__}; rename one of them")
    return by_name


def task_of(algorithm: object, name: str) -> AnyTask:
    """The algorithm's task of that name."""
    if isinstance(algorithm, RunsTasks):
        task_of(algorithm.algorithm, name)
        return WrappedTask[Record, Record](algorithm, name)
    method = getattr(type(algorithm), name, None) if name.isidentifier() and not name.startswith("_") else None
    if not inspect.isfunction(method) or not _takes_a_site(method):
        raise BadMessage(f"{type(algorithm).__name__} has no task {name!r:.40}")
    task: AnyTask = getattr(algorithm, name)
    return task


@cache
def _takes_a_site(method: Callable[..., object]) -> bool:
    return [*inspect.signature(method).parameters][1:] == ["own", "sent", "site"]


def _hints(kind: type, method: Callable[..., object]) -> dict[str, object]:
    """The types of a method; where it has none, those of the method that it overrides."""
    hints: dict[str, object] = {}
    for each in reversed(kind.__mro__):
        if inspect.isfunction(one := vars(each).get(method.__name__)):
            try:
                hints |= get_type_hints(one)
            except NameError as reason:
                remedy = f"the types of {one.__name__} cannot be read: {reason}; import them outside of TYPE_CHECKING"
                raise BadInput("algorithm", kind.__name__, remedy) from None
    return hints


def _defined_with(kind: type) -> list[type[Record]]:
    """The dataclasses that its module defines; what it imports is none of them."""
    module = sys.modules.get(kind.__module__)
    every = [] if module is None else list(vars(module).values())
    return [one for one in every if isinstance(one, type) and is_dataclass(one) and one.__module__ == kind.__module__]


def _records(hint: object) -> tuple[type[Record], ...]:
    """The dataclasses that a type names: itself, or options of a union."""
    if isinstance(hint, type) and is_dataclass(hint):
        return (hint,)
    return tuple(record for part in get_args(hint) for record in _records(part))


def _with_parts(record: type[Record]) -> Iterator[type[Record]]:
    """A record, and the records that its fields hold."""
    yield record
    for hint in get_type_hints(record).values():
        for part in _records(hint):
            yield from _with_parts(part)

"""Callbacks of a run: its beginning, each round, its result, warnings and its end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fedsaddle.arguments import function
from fedsaddle.errors import BadInput
from fedsaddle.files import Json, Record
from fedsaddle.text import shortened, visible

if TYPE_CHECKING:
    from fedsaddle.runs.result import Result

Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Beginning:
    """How a run begins, or continues after `done` rounds.

    Args:
        name: of the algorithm.
        rounds: of the whole run.
        done: rounds of earlier processes.
        resumed: whether an earlier process began the run.
        folder: where the run writes; None: nowhere.
        clients: their names, in the order of a record's figures.
        parameters: the algorithm's fields and the run's settings.
    """

    name: str
    rounds: int
    done: int = 0
    resumed: bool = False
    folder: Path | None = None
    clients: tuple[str, ...] = ()
    parameters: Mapping[str, Json] = field(default_factory=dict)


class Callback:
    """Called as a run proceeds: inherit from it and define the methods that you need.

    A callback that raises an exception is removed with a warning, and the run continues. The exceptions of one that is
    `required` end the run instead.

    Examples:
        >>> import fedsaddle as fs
        >>> class Early(fs.Callback):
        ...     def on_round(self, done, record):
        ...         return record is not None and record["test"]["accuracy"]["worst"] > 0.5
    """

    required: bool = False

    def on_begin(self, beginning: Beginning) -> None:
        """Called before the first round, when all arguments are checked and the folder exists."""

    def on_round(self, done: int, record: Record | None) -> bool | None:
        """Called after each round with the number of rounds that are done; return True to save and end the run.

        `record` is the evaluation, a line of metrics.jsonl, or None where the round was not evaluated.
        """

    def on_result(self, result: Result) -> Record | None:
        """Called when the rounds are done, before anything is written; return more entries for the summary."""

    def on_warning(self, text: str) -> bool | None:
        """Called with each warning; return True if it was shown, or else Python's `warnings` shows it."""

    def on_end(self, summary: Record) -> None:
        """Called at the end, whatever it is: `summary["stopped"]` is "finished", "target", "patience", "interrupted",
        "diverged" or "failed"."""


class LambdaCallback(Callback):
    """A callback made of functions.

    Args:
        on_begin: called with the `fs.Beginning`.
        on_round: called with the number of rounds and the evaluation or None; True ends the run.
        on_result: called with the `fs.Result`; returns more entries for the summary.
        on_warning: called with each warning, instead of Python's `warnings`.
        on_end: called with the summary.
        required: whether an exception ends the run; otherwise the callback is removed with a warning.

    Examples:
        >>> import fedsaddle as fs
        >>> data = fs.load("iris", split="iid", clients=5)
        >>> fedavg = fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3)))
        >>> two = fs.LambdaCallback(on_round=lambda done, record: done == 2)
        >>> fs.run(fedavg, data, rounds=9, callbacks=[two]).summary["rounds"]
        2
    """

    def __init__(
        self,
        *,
        on_begin: Callable[[Beginning], object] | None = None,
        on_round: Callable[[int, Record | None], object] | None = None,
        on_result: Callable[[Result], Record | None] | None = None,
        on_warning: Callable[[str], object] | None = None,
        on_end: Callable[[Record], object] | None = None,
        required: bool = True,
    ) -> None:
        given = (("on_begin", on_begin), ("on_result", on_result), ("on_warning", on_warning), ("on_end", on_end))
        for key, call in given:
            if call is not None:
                function(key, call, 1)
        if on_round is not None:
            function("on_round", on_round, 2)
        self.required = required
        self._begin, self._round, self._result, self._warning, self._end = (
            on_begin,
            on_round,
            on_result,
            on_warning,
            on_end,
        )

    def on_begin(self, beginning: Beginning) -> None:
        """Call the function for the beginning."""
        if self._begin is not None:
            self._begin(beginning)

    def on_round(self, done: int, record: Record | None) -> bool | None:
        """Call the function for a round."""
        return None if self._round is None else self._round(done, record) is True

    def on_result(self, result: Result) -> Record | None:
        """Call the function for the result."""
        return None if self._result is None else self._result(result)

    def on_warning(self, text: str) -> bool | None:
        """Call the function for warnings."""
        if self._warning is None:
            return None
        self._warning(text)
        return True

    def on_end(self, summary: Record) -> None:
        """Call the function for the end."""
        if self._end is not None:
            self._end(summary)


QUIET = LambdaCallback(on_warning=lambda text: None)  # for runs without warnings
REMEDY = "must be a list of objects that inherit from fs.Callback, such as fs.trackers.TensorBoard()"


@dataclass
class CallbackRunner:
    """Calls the callbacks of a run. One that fails is removed with a warning, or ends the run if it is required."""

    callbacks: Sequence[Callback] = ()
    removed: set[int] = field(default_factory=set)

    def begin(self, beginning: Beginning) -> None:
        """The run begins or continues."""
        self._each("on_begin", lambda one: one.on_begin(beginning))

    def round(self, done: int, record: Record | None) -> bool:
        """A round is done; whether a callback ends the run. Each one that is not required gets a copy of the record."""
        return True in self._each("on_round", lambda one: one.on_round(done, _own(one, record)))

    def result(self, result: Result) -> Record:
        """The rounds are done: the callbacks' entries for the summary."""
        found: Record = {}
        for more in self._each("on_result", lambda one: _entries(one.on_result(result))):
            found |= more
        return found

    def warn(self, text: str) -> None:
        """A warning: for the callbacks that show it, or else Python's `warnings`."""
        if True not in [one.on_warning(text) for one in self.callbacks]:
            warnings.warn(text, stacklevel=2)

    def end(self, summary: Record) -> None:
        """The run has ended."""
        self._each("on_end", lambda one: one.on_end(deepcopy(summary)))

    def _each(self, method: str, call: Callable[[Callback], Returned]) -> list[Returned]:
        """What the callbacks return. An exception that ends the run is raised when all have been called."""
        found, failure = list[Returned](), None
        for number, one in enumerate(self.callbacks):
            if number in self.removed:
                continue
            try:
                found.append(call(one))
            except BaseException as reason:
                if one.required or not isinstance(reason, Exception):
                    failure = failure or reason
                    continue
                self.removed.add(number)  # of others: a server that is down, a full disk, a bug
                said = shortened(f"{type(reason).__name__}: {visible(reason)}", 300)
                name = type(one.callback if isinstance(one, DeferredEnd) else one).__name__
                self.warn(f"{name}.{method} failed ({said}); it is removed, and the run continues")
        if failure is not None:
            raise failure
        return found


def _own(one: Callback, record: Record | None) -> Record | None:
    return record if one.required else deepcopy(record)


def _entries(found: object) -> Record:
    """What `on_result` returned, which must be entries for the summary."""
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadInput("on_result", type(found).__name__, "must return a dictionary for the summary, or None")
    return found


class DeferredEnd(Callback):
    """A callback whose `on_end` is called later, when the pictures of the run are there as well."""

    def __init__(self, callback: Callback) -> None:
        self.callback, self.required = callback, callback.required
        self.summary: Record | None = None

    def on_begin(self, beginning: Beginning) -> None:
        """The run begins or continues."""
        self.callback.on_begin(beginning)

    def on_round(self, done: int, record: Record | None) -> bool | None:
        """A round is done."""
        return self.callback.on_round(done, record)

    def on_result(self, result: Result) -> Record | None:
        """The rounds are done."""
        return self.callback.on_result(result)

    def on_warning(self, text: str) -> bool | None:
        """A warning."""
        return self.callback.on_warning(text)

    def on_end(self, summary: Record) -> None:
        """Remember the end."""
        self.summary = summary


def check_callbacks(given: object) -> tuple[Callback, ...]:
    """The callbacks that a user gave; raise `BadInput` for anything else."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadInput("callbacks", type(given).__name__, REMEDY)
    for one in given:
        if not isinstance(one, Callback):
            raise BadInput("callbacks", one.__name__ if isinstance(one, type) else type(one).__name__, REMEDY)
    return tuple(given)

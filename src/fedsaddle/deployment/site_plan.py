"""What a site can be asked in a run: the tasks of a round in their order, from a rehearsal of the agreed algorithm.

The site runs the server's part of the algorithm against clients whose replies are made up, and notes which tasks it
asks for. A server that keeps to the algorithm asks for nothing else.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.array_types import Ints
from fedsaddle.data.store import Stacked
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.errors import FedSaddleError
from fedsaddle.federation.clients import Own, Sent, Task, merge_repeats
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.records import R, Record, Visibility, tensors, visibility
from fedsaddle.federation.tasks import AsksAgain, tasks_of
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.privacy.private import Private
from fedsaddle.runs.cost_probe import Kind

MOST_ROUNDS = 1000  # that are rehearsed; later ones ask for the same tasks
MOST_NUMBERS = 20_000_000  # rounds times parameters, likewise
SPARE = 3  # times that a task may come again which is not one of every round: rounds without an answer are repeated
UNKNOWN = 3  # tasks of each name in a round, where the algorithm cannot be rehearsed

log = logging.getLogger("fedsaddle.site")


@dataclass(frozen=True)
class Plan:
    """The tasks that a site answers in a run.

    Args:
        rounds: rounds of the run.
        patterns: tasks of a round in the order of their exchanges; a round follows one of them. Empty: not known.
        names: all tasks of the algorithm.
        totals: task -> exchanges with it in the run, of tasks that not every round has.
        again: task -> how often it may come in a round beyond the pattern, as the answers decide.
        everyone: whether the first exchange of every round asks all clients.
        carries: whether the first exchange of every round carries the model that is measured before it.
        weights: task -> how its replies are weighted: "uniform", "size" (by the rows of each client) or "own". Empty:
            by fields of replies that the server sees of each client.
        rehearsed: rounds that were rehearsed; in later ones each known task may come as often as in any of these, and
            any other task once.
    """

    rounds: int
    patterns: frozenset[tuple[str, ...]] = frozenset()
    names: frozenset[str] = frozenset()
    totals: Mapping[str, int] = field(default_factory=dict)
    again: Mapping[str, int] = field(default_factory=dict)
    everyone: bool = False
    carries: bool = False
    weights: Mapping[str, frozenset[str]] = field(default_factory=dict)
    rehearsed: int = 0

    def shares_objection(self, task: str, shares: Mapping[int, float], sizes: Sequence[int]) -> str:
        """Why a sum with these shares is not the algorithm's; empty if it is, or if it chooses weights of its own.

        Args:
            task: the task whose replies are summed.
            shares: of each client of the cohort.
            sizes: rows of each client; empty: not known.
        """
        kinds, values = self.weights.get(task, frozenset({"own"})), np.array(list(shares.values()))
        usual = {"uniform": np.ones(len(values))}
        if sizes:
            usual["size"] = np.array([sizes[i] for i in shares], dtype=np.float64)
        if "own" in kinds or ("size" in kinds and not sizes):
            return ""
        if any(np.allclose(values / values.sum(), usual[kind] / usual[kind].sum(), rtol=1e-9) for kind in kinds):
            return ""
        return f"the shares of this sum are not those of the algorithm ({' or '.join(sorted(kinds))})"

    def objection(self, task: str, at: tuple[int, int], before: Mapping[int, str], times: int) -> str:
        """Why a task is not part of the plan; empty if it is.

        Args:
            task: its name.
            at: its round and exchange.
            before: the tasks of this round that were answered, by exchange.
            times: how often the task was answered in the run.
        """
        round, exchange = at
        asked = {**before, exchange: task}
        exact = round < self.rehearsed and not self.again
        if not (any(_follows(each, asked) for each in self.patterns) if exact else self._within(asked)):
            return f"the algorithm has no {task!r:.40} as exchange {exchange + 1} of a round"
        most = self.totals.get(task)
        if most is not None and times >= most + SPARE:
            return f"the run has {most} exchanges with {task!r:.40}, and this would be number {times + 1}"
        return ""

    def _within(self, asked: Mapping[int, str]) -> bool:
        """Whether a round has these tasks, by exchange, in any order."""
        most: Counter[str] = Counter()
        for pattern in self.patterns:
            most |= Counter(pattern)
        other = 1 if self.patterns else UNKNOWN
        most |= Counter(dict.fromkeys(self.names - most.keys(), other))
        most += Counter(self.again)
        return max(asked) < most.total() and all(n <= most[name] for name, n in Counter(asked.values()).items())


def _follows(pattern: tuple[str, ...], asked: Mapping[int, str]) -> bool:
    """Whether these tasks, by exchange, are some of the pattern's."""
    return all(e < len(pattern) and pattern[e] == name for e, name in asked.items())


def plan_of(algorithm: Algorithm[Any], rows: Stacked, count: int, rounds: int, seed: int) -> Plan:
    """The plan of a run.

    Args:
        algorithm: as the config of the site builds it.
        rows: placeholder rows of one client, of each class one.
        count: clients of the run.
        rounds: rounds of the run.
        seed: the seed of the run.
    """
    inner = algorithm.algorithm if isinstance(algorithm, Private) else algorithm  # the same tasks
    own = getattr(inner, "algorithm", inner)
    names = frozenset(tasks_of(type(own)))
    again = dict(own.asks_again) if isinstance(own, AsksAgain) else {}
    told: list[_Round] = []
    for numbers in (False, True):  # whole numbers that are sent seldom decide the form of a reply
        clients = _Rehearsed(SerialEngine(_copies(rows, count), seed), numbers)
        try:
            told = _rehearse(inner, clients, rounds, seed)
            break
        except (FedSaddleError, ArithmeticError, ValueError, RuntimeError, LookupError, TypeError) as reason:
            log.info("the rehearsal of the algorithm ended: %s", type(reason).__name__)
    if not told:
        log.info("the algorithm could not be rehearsed; its tasks may come in any order")
        return Plan(rounds, names=names, again=again)
    done = len(told)
    rounds_with = [each for each in told if each.tasks]
    patterns = frozenset(each.tasks for each in rounds_with)
    times: Counter[str] = Counter(name for each in rounds_with for name in each.tasks)
    return Plan(
        rounds,
        patterns,
        names | {*times},
        {name: -(-n * rounds // done) for name, n in times.items() if n < len(rounds_with)},
        again,
        all(each.asked == count for each in rounds_with),
        getattr(own, "output", "last") == "last" and all(each.carries for each in rounds_with),
        {} if clients.tells_apart else {name: frozenset(kinds) for name, kinds in clients.weights.items()},
        done,
    )


@dataclass
class _Round:
    """A round of the rehearsal.

    Args:
        model: the model before it.
        tasks: what was asked.
        asked: clients of the first exchange.
        carries: whether that carried the model.
    """

    model: Tensor
    tasks: tuple[str, ...] = ()
    asked: int = 0
    carries: bool = False


def _rehearse(algorithm: Algorithm[Any], clients: _Rehearsed, rounds: int, seed: int) -> list[_Round]:
    """The rounds."""
    told: list[_Round] = []
    server = algorithm.start(clients)
    most = min(rounds, MOST_ROUNDS, max(1, MOST_NUMBERS // max(algorithm.model(server).numel(), 1)))
    for round in range(most):
        clients.now = _Round(algorithm.model(server))
        clients.begin(round)
        server = algorithm.round(server, clients, server_generator(seed, round))
        clients.commit()
        told.append(clients.now)
    return told


def _copies(rows: Stacked, count: int) -> Stacked:
    """Rows of made-up features at each of so many clients."""
    y = rows.y.repeat(count, *[1] * (rows.y.ndim - 1))
    made = torch.randn(len(y), *rows.x.shape[1:], generator=torch.Generator().manual_seed(0))
    x = made.to(rows.x.dtype) if rows.x.is_floating_point() else rows.x.repeat(count, *[1] * (rows.x.ndim - 1))
    return Stacked(x, y, np.arange(count + 1, dtype=np.int64) * len(rows.x), positives=rows.positives)


@dataclass
class _Rehearsed(Wrapper):
    """Clients of whom one answers once to each kind of message; afterwards all say the same again."""

    numbers: bool = False  # whether messages with other whole numbers are of another kind
    known: dict[str, Kind] = field(default_factory=dict)
    now: _Round = field(default_factory=lambda: _Round(torch.zeros(0)))
    weights: dict[str, set[str]] = field(default_factory=dict)
    tells_apart: bool = False  # whether the server sees fields of each client, by which it may weigh them

    @property
    def sizes(self) -> Ints:
        """Made up, and different, to recognise weights that are sizes."""
        return 100 + np.arange(self.count, dtype=np.int64)

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Note the task, and answer."""
        clients, total = merge_repeats(cohort, weights, self.count)
        same = {"uniform": np.ones(len(total)), "size": self.sizes[clients]}
        kind = next((k for k, v in same.items() if np.ptp(total / v) <= 1e-9 * abs(total).max()), "own")
        self.weights.setdefault(task.__name__, set()).add(kind)
        if not self.now.tasks:
            self.now.asked = len(clients)
            self.now.carries = any(torch.equal(value, self.now.model) for _, value in tensors(sent))
        self.now.tasks += (task.__name__,)
        key = f"{task.__name__} {_form(sent, self.numbers)}"
        if key not in self.known:
            with torch.no_grad():
                reply = self.inner.ask(clients[:1], task, sent)[1]
            self.known[key] = Kind(reply, 1, 0.0, 0.0)
            self.tells_apart |= any(seen is not Visibility.AVERAGED for seen in visibility(type(reply)).values())
        return clients, cast(R, self.known[key].answer(len(clients)))


def _form(sent: Record, numbers: bool) -> str:
    """What of a record decides the form of its reply: shapes, what is there at all, and perhaps whole numbers."""
    shown = (bool, str, int) if numbers else (bool, str)
    values = [getattr(sent, each.name) for each in fields(sent)]
    plain = [v if v is None or isinstance(v, shown) else type(v).__name__ for v in values]
    return repr([tuple(v.shape) if isinstance(v, Tensor) else p for v, p in zip(values, plain, strict=True)])

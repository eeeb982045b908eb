"""What a run will cost: its first exchanges are run on a throwaway engine, the others are counted without clients.

The algorithm's own code decides whom it asks and what it sends in every round, so that bytes are those of the run,
unless whom it asks depends on what clients answer.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.algorithms.protocols import AnyAlgorithm, dual_of, iterations_of, mixture_of
from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.federated import FederatedData
from fedsaddle.errors import Diverged, FedSaddleError, NobodyAnswered
from fedsaddle.federation.clients import Own, Sent, Task, merge_repeats
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.records import R, Record, Visibility, tensors, visibility
from fedsaddle.federation.wrappers import Ledger, Lossy, Metered, Wrapper
from fedsaddle.metrics.measures import Measure
from fedsaddle.runs.engines import EngineJob, EngineSettings, Processes, Ray, Vectorised
from fedsaddle.runs.evaluation import LocalEvaluator, Solution
from fedsaddle.runs.run import check_algorithm, check_rows

TIMED = 2  # exchanges of a kind that are really run; the first one warms up
EXCHANGE = 1.0  # seconds for one of them; a part of the cohort has to do if it would take longer
COUNTING = 2.0  # seconds for the rounds that are only counted; the rest is extrapolated


@dataclass
class Kind:
    """What is known of the exchanges with one task."""

    reply: Record
    clients: int  # that were really asked
    seconds: float  # of one client
    samples: float  # of one client
    times: int = 1

    def answer(self, count: int) -> Record:
        """A reply of that many clients: averages as they are, and as many rows as they would send."""
        if count == self.clients:
            return self.reply
        seen = visibility(type(self.reply))
        changed = {
            name: _resized(value, round(len(value) / self.clients * count))
            for name, value in tensors(self.reply)
            if seen[name] is not Visibility.AVERAGED and value.ndim
        }
        return replace(self.reply, **changed)


def _resized(rows: Tensor, count: int) -> Tensor:
    """The rows, repeated or cut to that many."""
    return rows[torch.arange(count) % max(len(rows), 1)] if len(rows) else rows


@dataclass
class CostProbe(Wrapper):
    """Clients that really answer the first exchanges of a kind, and later repeat what they said."""

    known: dict[str, Kind] = field(default_factory=dict)
    spent: float = 0.0  # seconds in real exchanges
    seconds: float = 0.0  # that all exchanges so far would take
    processed: float = 0.0  # samples, likewise

    @property
    def samples(self) -> int:
        """Samples that clients would have processed."""
        return round(self.processed)

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask really, or say again what was said before."""
        clients, total = merge_repeats(cohort, weights, self.count)
        name = getattr(task, "__name__", type(task).__name__)
        kind = self.known.get(name)
        if kind is None or kind.times < TIMED:
            began = time.perf_counter()
            times = 1 if kind is None else kind.times + 1
            kind = self.known[name] = replace(self._measured(clients, task, sent, total, kind), times=times)
            self.spent += time.perf_counter() - began
        self.seconds += kind.seconds * len(clients)
        self.processed += kind.samples * len(clients)
        return clients, cast(R, kind.answer(len(clients)))

    def _measured(
        self, clients: Ints, task: Task[Own, Sent, R], sent: Sent, weights: Floats, before: Kind | None
    ) -> Kind:
        most = len(clients)
        if before is None:  # one client alone, to see how long it takes
            began = time.perf_counter()
            self.inner.ask(clients[:1], task, sent, weights=weights[:1])
            most = max(1, int(EXCHANGE / max(time.perf_counter() - began, 1e-9)))
        elif before.seconds * most > EXCHANGE:
            most = max(1, int(EXCHANGE / before.seconds))
        asked, samples = clients[:most], self.inner.samples
        began = time.perf_counter()
        answered, reply = self.inner.ask(asked, task, sent, weights=weights[:most])
        seconds, count = time.perf_counter() - began, len(asked)
        return Kind(reply, len(answered), seconds / count, (self.inner.samples - samples) / count)


@dataclass(frozen=True)
class Estimate:
    """What a run costs."""

    ledger: Ledger
    clients: int
    parameters: int
    local_steps: int | None
    seconds: float
    seconds_of_evaluation: float
    exact: bool  # of bytes and exchanges
    note: str


@dataclass(frozen=True)
class Length:
    """How long a run is, and what else its cost depends on."""

    rounds: int
    seed: int = 0
    evaluate_every: int = 1
    lost_replies: float = 0.0
    engine: EngineSettings = field(default_factory=Vectorised)


def rehearse(
    algorithm: AnyAlgorithm, data: FederatedData, length: Length, measures: Sequence[Measure] = ()
) -> Estimate:
    """Estimate the cost of a run in some seconds; nothing is written.

    Raises:
        BadInput: if the run itself would refuse its arguments.
    """
    check_algorithm(algorithm)
    train = check_rows(algorithm, data.train, data.test, data.validation)
    device = length.engine.evaluation_device()
    job = EngineJob(algorithm, train, None, length.seed, length.lost_replies, "")
    probe = CostProbe(length.engine.in_process().engine(job, lambda text: None))
    lossy = Lossy(probe, length.lost_replies, length.seed) if length.lost_replies else probe
    clients = Metered(lossy, Ledger())
    server = algorithm.start(clients)
    began = time.perf_counter()
    server, done, failure = _rounds(algorithm, clients, probe, length, server)
    own = time.perf_counter() - began - probe.spent
    share = length.rounds / max(done, 1)
    model = algorithm.model(server)
    evaluation = _evaluation(algorithm, data, Solution(model, dual_of(algorithm, server), done), measures, device)
    adaptive = mixture_of(algorithm, server) is not None
    return Estimate(
        _scaled(clients.ledger, share),
        data.count,
        model.numel(),
        iterations_of(algorithm, server, length.rounds) if done == length.rounds else None,
        (probe.seconds + own) * share,
        evaluation * -(-length.rounds // length.evaluate_every),
        done == length.rounds and not adaptive,
        _note(done, length.rounds, adaptive, failure, device, length),
    )


def _rounds(
    algorithm: AnyAlgorithm, clients: Metered, probe: CostProbe, length: Length, server: Any
) -> tuple[Any, int, str]:
    """Rounds as far as there is time: the server's last state, how many, and why they ended early."""
    began, done = time.perf_counter(), 0
    while done < length.rounds and (done < TIMED or time.perf_counter() - began - probe.spent < COUNTING):
        clients.begin(done)
        try:
            server = algorithm.round(server, clients, server_generator(length.seed, done))
        except NobodyAnswered:
            pass
        except (FedSaddleError, ArithmeticError, ValueError, RuntimeError) as reason:
            if isinstance(reason, Diverged) or done < TIMED:
                raise
            return server, done, "the answers were repeated too often"
        clients.commit()
        done += 1
    return server, done, ""


def _note(done: int, rounds: int, adaptive: bool, failure: str, device: torch.device, length: Length) -> str:
    where = "this machine" if device.type == "cpu" else str(device)
    timed = f"seconds: from {min(TIMED, rounds)} timed rounds and one evaluation on {where}"
    if isinstance(length.engine, Processes | Ray):
        timed += ", in one process; workers share the rounds, but not the evaluation"
        if device.type == "cpu" and length.engine.device not in ("auto", "cpu"):
            timed += f"; without the {length.engine.device} of the workers"
    if done < rounds:
        counted = f"bytes: extrapolated from {done:,} of {rounds:,} rounds{f' ({failure})' if failure else ''}"
    elif adaptive:
        counted = "bytes: about, because the algorithm draws clients by what they answer"
    else:
        counted = "bytes: counted round by round, exact"
    return f"{counted}; {timed}"


def _evaluation(
    algorithm: AnyAlgorithm, data: FederatedData, at: Solution, measures: Sequence[Measure], device: torch.device
) -> float:
    """Seconds of one evaluation; on a device of the second one, when the rows are there."""
    evaluator = LocalEvaluator(
        algorithm.problem, data.train, data.test, tuple(measures), lambda _: None, data.validation, device
    )
    part = evaluator.parts[0]
    if device.type != "cpu":
        evaluator.measure(part, at)
    began = time.perf_counter()
    evaluator.measure(part, at)
    evaluator.pool(part, at)
    return time.perf_counter() - began


def _scaled(ledger: Ledger, share: float) -> Ledger:
    counts = ("exchanges", "bytes_down", "bytes_up", "asked", "answered", "samples")
    return replace(ledger, **{key: round(getattr(ledger, key) * share) for key in counts})

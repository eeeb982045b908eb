"""Rounds, evaluation, checkpoints, resume, early stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.engines.choose import Engine
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput, Diverged, NobodyAnswered, within
from fedsaddle.federation.clients import Clients
from fedsaddle.federation.ledger import Ledger, Metered
from fedsaddle.federation.lossy import Lossy
from fedsaddle.federation.randomness import server_generator
from fedsaddle.metrics.evaluation import Measured, evaluate
from fedsaddle.metrics.measures import Position
from fedsaddle.runs.checkpoints import Checkpoint, restored
from fedsaddle.runs.evaluation import Measures
from fedsaddle.runs.fingerprint import fingerprint
from fedsaddle.runs.folder import Output
from fedsaddle.runs.interruption import Interruption
from fedsaddle.runs.result import Result, mixture_of
from fedsaddle.runs.target import Target

MOST_LISTED = 200  # clients whose own figures are kept in the history
MOST_EMPTY = 20  # rounds in a row without an answer before giving up

Watch = Callable[[int, dict[str, Any] | None], None]
Rows = Stacked | Lazy


@dataclass
class Loop:
    """One run and all that changes while it runs."""

    algorithm: Any
    engine: Engine
    train: Rows
    test: Stacked | None
    rounds: int
    seed: int
    evaluate_every: int
    evaluate_train: bool
    measures: Measures
    target: Target | None
    lost_replies: float
    watch: Watch | None
    done: int = 0
    seconds: float = 0.0
    empty_rounds: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        inner: Clients = Lossy(self.engine, self.lost_replies, self.seed) if self.lost_replies else self.engine
        self.clients = Metered(inner, Ledger())
        with within("algorithm"):
            self.server = self.algorithm.start(self.clients)
        self.measures.check(self._position())
        if self.target is not None:
            pooled = self.target.statistic is None
            self.target.check([*self._pooled(), *self.measures.names] if pooled else self._measured_at_first_row())
        self.fingerprint = fingerprint(self.algorithm, self.train, self.seed, self.lost_replies)

    def go(self, output: Output) -> Result:
        """Run to the end, to the target or to an interruption."""
        stopped = self._already()
        with Interruption() as interruption:
            while stopped is None:
                self._round()
                record = self._record() if self._due(self.done) else None
                if self.watch is not None:
                    self.watch(self.done, record)
                if record is not None:
                    output.record(record)
                    if self.target is not None and self.target.met(record):
                        stopped = "target"
                if self.done >= self.rounds:
                    stopped = stopped or "finished"
                if interruption.asked:
                    stopped = stopped or "interrupted"
                if stopped is not None or output.due(self.done):
                    output.save(self.done, self.server, self.engine.memory.kept, self._notes())
                    self._saved()
        result = Result(self.algorithm, self.server, self.history, self._summary(stopped or "finished"))
        output.finish(result)
        return result

    def _round(self) -> None:
        began = time.perf_counter()
        self.clients.begin(self.done)
        try:
            server = self.algorithm.round(self.server, self.clients, server_generator(self.seed, self.done))
            self.empty_rounds = 0
        except NobodyAnswered as reason:
            server, self.empty_rounds = self.server, self.empty_rounds + 1
            self.clients.begin(self.done)
            if self.empty_rounds >= MOST_EMPTY:
                raise NobodyAnswered(f"{self.empty_rounds} rounds in a row: {reason}") from reason
        except Diverged as reason:
            raise Diverged(reason.client, reason.field, self.done + 1) from None
        self.clients.commit()
        self.server = server
        self.done += 1
        self.seconds += time.perf_counter() - began

    def _due(self, done: int) -> bool:
        return done % self.evaluate_every == 0 or done >= self.rounds

    def _record(self) -> dict[str, Any]:
        ledger = self.clients.ledger
        record: dict[str, Any] = {
            "round": self.done,
            "exchanges": ledger.exchanges,
            "bytes_down": ledger.bytes_down,
            "bytes_up": ledger.bytes_up,
            "samples": ledger.samples,
            "local_steps": self._iterations(),
            "seconds": round(self.seconds, 6),
        }
        clients: dict[str, Any] = {}
        for name, rows in (("test", self.test), ("train", self.train if self.evaluate_train else None)):
            if rows is not None:
                measured = self._measure(rows)
                record[name] = measured.spread()
                if len(measured.sizes) <= MOST_LISTED:
                    clients[name] = {k: _listed(v) for k, v in measured.values.items()}
        record |= self._all_pooled()
        lam = mixture_of(self.algorithm, self.server)
        if lam is not None and len(lam) <= MOST_LISTED:
            record["mixture"] = lam.tolist()
        self.history.append({**record, "clients": clients})
        return self.history[-1]

    def _iterations(self) -> int:
        """Local steps so far; an algorithm whose rounds are not all alike counts them itself."""
        if hasattr(self.algorithm, "iterations"):
            return int(self.algorithm.iterations(self.server))
        return int(self.done * self.algorithm.local_steps)

    def _solution(self) -> tuple[Tensor, Tensor | None]:
        dual = self.algorithm.dual(self.server) if hasattr(self.algorithm, "dual") else None
        return self.algorithm.model(self.server), dual

    def _pooled(self) -> dict[str, float]:
        """Measures of all clients' rows together, such as AUROC, where the problem has any."""
        rows = self.train if self.test is None else self.test
        if not hasattr(self.algorithm.problem, "pooled_measures") or not isinstance(rows, Stacked):
            return {}
        found: dict[str, float] = self.algorithm.problem.pooled_measures(*self._solution(), rows)
        return found

    def _position(self) -> Position:
        return Position(self.algorithm.problem, *self._solution(), self.train, self.test)

    def _all_pooled(self) -> dict[str, Any]:
        """The problem's own pooled measures and those that were asked for."""
        if self.history and self.history[-1]["round"] == self.done:  # measured already
            return {k: v for k, v in self.history[-1].items() if k in ("pooled", "not_reached")}
        return self.measures.record(self._pooled(), self._position(), self.done)

    def _measured_at_first_row(self) -> dict[str, Tensor]:
        w, dual = self._solution()
        x, y = self.train.client(0)
        with torch.no_grad():
            found: dict[str, Tensor] = self.algorithm.problem.row_measures(w, x[:1], y[:1], dual)
        return found

    def _measure(self, rows: Rows) -> Measured:
        w, dual = self._solution()
        measured = evaluate(self.algorithm.problem, w, rows, dual)
        bad = np.flatnonzero(~np.isfinite(measured.values["loss"]) & (measured.sizes > 0))
        if len(bad):
            raise Diverged(int(bad[0]), "loss", self.done)
        return measured

    def _notes(self) -> dict[str, Any]:
        return {
            "ledger": self.clients.ledger.to_dict(),
            "seconds": self.seconds,
            "empty_rounds": self.empty_rounds,
            "engine": self._engine(),
        }

    def _engine(self) -> dict[str, Any]:
        fast = {k: getattr(self.engine, k) for k in ("chunk", "workers") if hasattr(self.engine, k)}
        return {"name": type(self.engine).__name__.lower(), **fast}

    def resume(self, output: Output) -> None:
        """Go on from the newest checkpoint, if there is one."""
        checkpoint = output.resumed(self._due)
        if checkpoint is None:
            return
        self.server = restored(self.server, checkpoint.server)
        self.done, self.seconds = checkpoint.rounds, checkpoint.notes["seconds"]
        self.empty_rounds = checkpoint.notes["empty_rounds"]
        self.clients.ledger = Ledger(**checkpoint.notes["ledger"])
        self.history = output.kept_history(self.done)
        before, now = checkpoint.notes["engine"], self._engine()
        if before != now:
            raise BadInput("engine", now, f"the run began with {before}; resume with the same")
        self._restore(checkpoint)

    def _saved(self) -> None:
        """A checkpoint was written."""

    def _restore(self, checkpoint: Checkpoint) -> None:
        """What clients remember, as it was."""
        self.engine.memory.restore(self.algorithm, lambda i: LocalSite.alone(self.train, i), checkpoint.memory)

    def _already(self) -> str | None:
        """Whether a resumed run had reached its end before."""
        if self.target is not None and self.history and self.history[-1]["round"] == self.done:
            last = self.history[-1]
            if self.target.met(last):
                return "target"
        return "finished" if self.done >= self.rounds else None

    def _summary(self, stopped: str) -> dict[str, Any]:
        summary: dict[str, Any] = {
            "algorithm": type(self.algorithm).__name__,
            "stopped": stopped,
            "rounds": self.done,
            "target": None if self.target is None else str(self.target),
            "target_round": self.done if stopped == "target" else None,
        }
        for name, rows in (("test", self.test), ("train", self.train)):
            if rows is not None:
                summary[name] = self._measure(rows).spread()
        summary |= self._all_pooled()
        if hasattr(self.algorithm, "guarantee") and (said := self.algorithm.guarantee(self.done)):
            summary["privacy"] = said
        return {**summary, "seconds": round(self.seconds, 3), "ledger": self.clients.ledger.to_dict(),
                "engine": self._engine(), "fingerprint": self.fingerprint}  # fmt: skip


def _listed(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[float | None]:
    return [None if np.isnan(v) else float(v) for v in values]

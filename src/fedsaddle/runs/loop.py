"""The loop of simulated and deployed runs: rounds, evaluation, checkpoints, resume and early stopping."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsaddle.algorithms.protocols import (
    AnyAlgorithm,
    Guarantees,
    HasCautions,
    KeepsLayers,
    dual_of,
    iterations_of,
    mixture_of,
)
from fedsaddle.arguments import instance
from fedsaddle.documents.files import RunFiles
from fedsaddle.documents.summary import BadEnd, DivergedSummary, RunSummary, extended
from fedsaddle.errors import NOBODY, BadInput, Diverged, NobodyAnswered, NotFinite, within
from fedsaddle.federation.clients import Clients
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.wrappers import Ledger, Lossy, Metered
from fedsaddle.files import Json, JsonObject, Record
from fedsaddle.metrics.evaluation import Measured, to_json
from fedsaddle.metrics.selection import main_part_name
from fedsaddle.privacy.settings import Privacy
from fedsaddle.problems.protocols import HasModel
from fedsaddle.processes import one_torch_thread
from fedsaddle.robust.attacks import Attacked
from fedsaddle.robust.reduction import Guarded
from fedsaddle.runs.callbacks import Beginning, CallbackRunner
from fedsaddle.runs.checkpoints import (
    RunIdentity,
    cut_by_workers,
    measured_loss,
    on_another_device,
    restore_record,
    rounding_of,
)
from fedsaddle.runs.closing import bad_ends
from fedsaddle.runs.evaluation import BestRound, Evaluator, Solution, require_same_selection
from fedsaddle.runs.folder import ProgressFile, RunFolder
from fedsaddle.runs.result import Result
from fedsaddle.runs.settings import Settings
from fedsaddle.secure.secured import Secured

if TYPE_CHECKING:
    from fedsaddle.privacy.client_level import ClientPrivate
    from fedsaddle.privacy.private import Accounted

PRIVACY = "give fs.Privacy(epsilon=8), or None"


def apply_privacy(
    algorithm: AnyAlgorithm, privacy: Privacy | None, rounds: int, resumed: RunFolder | None
) -> tuple[AnyAlgorithm, Privacy | None]:
    """The algorithm as its clients run it, and the privacy mechanism of the server, planned for a number of rounds.

    A resumed run keeps the plan that it began with.
    """
    if privacy is not None:
        instance("privacy", privacy, Privacy, PRIVACY)
    if privacy is None or not privacy.noisy:
        own = getattr(algorithm, "privacy", None)
        if isinstance(own, Privacy):
            _enough(own, rounds)
        return algorithm, None
    before = None if resumed is None or privacy.rounds is not None else _planned_before(resumed.path)
    planned = replace(privacy, rounds=privacy.rounds or before or rounds, secure_aggregation=False)
    _enough(planned, rounds)
    if planned.unit == "client":
        return algorithm, planned
    from fedsaddle.privacy.private import Private

    return Private(algorithm=algorithm, privacy=planned), None


def track_budget(
    algorithm: AnyAlgorithm,
    clients: Clients,
    engine: Clients,
    settings: Settings,
    folder: RunFolder | None,
    warn: Callable[[str], None],
) -> Accounted | ClientPrivate | None:
    """The clients of a private run, with an account of its budget; None if the run is not private."""
    if settings.privacy is not None:
        from fedsaddle.privacy.client_level import ClientPrivate, ServerLedger, few_clients

        simulated = hasattr(engine, "rows")
        ledger = None if simulated else ServerLedger.of(None if folder is None else folder.path)
        found = ClientPrivate(clients, settings.privacy, algorithm, settings.seed if simulated else None, ledger)
        if told := few_clients(found):
            warn(told)
        return found
    if not isinstance(getattr(algorithm, "privacy", None), Privacy):
        return None
    from fedsaddle.privacy.private import Accounted, Private, large_delta, units_of

    if not isinstance(algorithm, Private):
        return None
    kept = Accounted(clients, algorithm, units_of(algorithm, getattr(engine, "rows", None), clients.sizes))
    if told := large_delta(kept):
        warn(told)
    return kept


def _enough(privacy: Privacy, rounds: int) -> None:
    if privacy.rounds is not None and rounds > privacy.rounds:
        remedy = f"the budget of privacy is planned for {privacy.rounds} rounds; more would exceed epsilon"
        raise BadInput("rounds", rounds, remedy)


def _planned_before(folder: Path) -> int | None:
    """The rounds that the run in a folder was planned for, by its newest checkpoint; None if there is none."""
    for about in sorted(RunFiles(folder).checkpoints_folder.glob("*.json"), reverse=True):
        try:
            return int(json.loads(about.read_text())["notes"]["clients"]["privacy"]["rounds"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def wrap_clients(
    given: Clients,
    algorithm: AnyAlgorithm,
    settings: Settings,
    folder: RunFolder | None,
    warn: Callable[[str], None],
) -> tuple[Clients, Clients]:
    """The engine whose state is saved, and the clients that are asked, some of whose replies may be lost."""
    engine = given
    if settings.robust is not None and settings.robust.active:
        engine = Guarded(engine, settings.robust)
    if settings.attack is not None:
        engine = Attacked(engine, settings.attack)
    asked = Lossy(engine, settings.lost_replies, settings.seed) if settings.lost_replies else engine
    if settings.secure_aggregation:
        engine = asked = Secured(asked)
    private = track_budget(algorithm, asked, given, settings, folder, warn)
    if private is not None:
        engine = asked = private  # outside of what loses replies: they were made, and count
    return engine, asked


_ENDS = {KeyboardInterrupt: "interrupted", Diverged: "diverged"}


def progress_of(loop: Loop) -> ProgressFile | None:
    """Where the loop writes its progress; None without a folder."""
    if loop.folder is None:
        return None
    sites = getattr(loop.given_engine, "standing", None)  # real sites are up or lost
    return ProgressFile(loop.folder.progress, loop.settings.rounds, loop.done, loop.resumed, sites)


MAX_LISTED_CLIENTS = 200  # no per-client figures in the history for more clients
MAX_EMPTY_ROUNDS = 20  # rounds in a row without a reply, after which the run ends


@dataclass
class Loop:
    """One run and its progress."""

    algorithm: AnyAlgorithm
    engine: Clients
    evaluator: Evaluator
    settings: Settings
    identity: RunIdentity
    name: str  # the algorithm's name in the summary
    folder: RunFolder | None = None
    callbacks: CallbackRunner = field(default_factory=CallbackRunner)
    clients_named: tuple[str, ...] = ()
    features_named: tuple[str, ...] = ()
    parameters: Record = field(default_factory=dict)  # for the callbacks
    resumed: bool = False  # whether an earlier process began the run
    done: int = 0
    seconds: float = 0.0
    empty_rounds: int = 0
    history: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.given_engine = self.engine
        self.engine, asked = wrap_clients(self.engine, self.algorithm, self.settings, self.folder, self.callbacks.warn)
        self.clients = Metered(asked, Ledger())
        with within("algorithm"):
            self.server = self.algorithm.start(self.clients)
        self._committing = False
        self._warned: set[str] = set()  # clients of whom the user was warned
        self._ledger_before: Ledger | None = None  # at the start of an unfinished round
        self._progress: ProgressFile | None = None
        at = self._solution()
        self._began = at._replace(model=at.model.clone(), dual=None if at.dual is None else at.dual.clone())
        self.best = None if self.settings.select is None else BestRound(self.settings.select)
        if self.best is not None and "validation" not in self.evaluator.parts:
            remedy = "needs validation rows; set data.validation_share = 0.16, or give data with validation_share"
            raise BadInput("select", str(self.best.selection), remedy)
        self.evaluator.check(at)
        for watched in (self.settings.target, self.settings.select):
            if watched is not None:
                pooled = watched.statistic is None
                watched.check(self.evaluator.pooled_measures(at) if pooled else self.evaluator.row_measures(at))

    def run(self) -> Result:
        """Run to the last round, the target or a callback's stop, and notify the callbacks of how the run ends.

        Ctrl-C saves the finished rounds and raises KeyboardInterrupt.
        """
        folder = None if self.folder is None else self.folder.path
        self.callbacks.begin(
            Beginning(
                self.name, self.settings.rounds, self.done, self.resumed, folder, self.clients_named, self.parameters
            )
        )
        try:
            result = self._run()
        except BaseException as reason:
            stopped = next((word for kind, word in _ENDS.items() if isinstance(reason, kind)), "failed")
            ended = {"algorithm": self.name, "stopped": stopped, "rounds": self.done, "reason": str(reason)}
            self.callbacks.end(ended)
            raise
        self.callbacks.end(result.summary)
        return result

    def _run(self) -> Result:
        self._progress = progress_of(self)
        if self._progress is not None:
            self._progress(self.done, self.seconds, now=True)
        try:
            with nullcontext() if self.clients.count == 1 else one_torch_thread():
                stopped = self._rounds()
        except (KeyboardInterrupt, OSError):  # such as a terminal that has been closed
            self._save_interrupted()
            raise
        except Diverged as reason:
            if self.folder is not None:
                self.folder.write_summary(
                    DivergedSummary(algorithm=self.name, stopped="diverged", round=reason.round, client=reason.client)
                )
            raise
        at, best = self._chosen(), self.best is not None and self.best.best is not None
        result = Result(
            self.algorithm,
            self.server,
            self.history,
            self._summary(stopped),
            at.model if best else None,
            at.own,
            self.features_named,
        )
        if entries := self.callbacks.result(result):
            result = replace(result, document=extended(result.document, entries))
        if self.folder is not None:
            self.folder.write_model(result.state_dict())
            self.folder.write_summary(result.document)
        return result

    def _rounds(self) -> str:
        stopped = self._stopped_before()
        while stopped is None:
            self._round()
            if self._progress is not None:
                self._progress(self.done, self.seconds)
            record = self._record() if self.settings.due(self.done) else None
            if record is not None and self.folder is not None:
                self.folder.append(record, self.clients_named)
            stopped = self._stop_reason(record, self.callbacks.round(self.done, record))
            if stopped is not None or self.done % self.settings.checkpoint_every == 0:
                self._save()
        if self._progress is not None:
            self._progress(self.done, self.seconds, now=True)
        return stopped

    def _stop_reason(self, record: Record | None, stop: bool) -> str | None:
        """Why the run ends after this round; None if it continues."""
        target = self.settings.target
        if record is not None and target is not None and target.met(record):
            return "target"
        if record is not None and self._out_of_patience():
            return "patience"
        if self.done >= self.settings.rounds:
            return "finished"
        return "interrupted" if stop else None

    def _out_of_patience(self) -> bool:
        patience = self.settings.patience
        return self.best is not None and patience is not None and self.best.worse_since(self.history) >= patience

    def _round(self) -> None:
        began, self._ledger_before = time.perf_counter(), self.clients.ledger.copy()
        self.clients.begin(self.done)
        try:
            server = self.algorithm.round(self.server, self.clients, server_generator(self.settings.seed, self.done))
            self.empty_rounds = 0
        except NobodyAnswered as reason:
            server, self.empty_rounds = self.server, self.empty_rounds + 1
            self.clients.begin(self.done)
            if self.empty_rounds >= MAX_EMPTY_ROUNDS:
                raise NobodyAnswered(
                    f"no reply in {self.empty_rounds} rounds in a row; the last one: {reason}"
                ) from reason
        except Diverged as reason:
            raise Diverged(reason.client, reason.field, self.done + 1) from None
        self._committing = True
        self.clients.commit()
        self.server = server
        self.done += 1
        self._ledger_before = None
        self.seconds += time.perf_counter() - began
        self._committing = False
        self._warn_of_left_out()

    def _warn_of_left_out(self) -> None:
        """Warn once of each simulated client whose replies are left out."""
        for client, reasons in JsonObject(self.given_engine.report()).get("left_out", {}).items():
            if client not in self._warned:
                self._warned.add(client)
                reason = f"client {client} {next(iter(reasons))}"
                self.callbacks.warn(f"round {self.done}: {reason}; such replies are left out, and the run goes on")

    def _record(self) -> Record:
        """Evaluate and append the record to the history."""
        ledger, at = self.clients.ledger, self._solution()
        record: Record = {
            "round": self.done,
            "exchanges": ledger.exchanges,
            "bytes_down": ledger.bytes_down,
            "bytes_up": ledger.bytes_up,
            "samples": ledger.samples,
            "local_steps": iterations_of(self.algorithm, self.server, self.done),
            "seconds": round(self.seconds, 6),
        }
        clients: dict[str, dict[str, Json]] = {}
        first, *others = self.evaluator.parts
        for part in (first, *(others[-1:] if self.settings.evaluate_train else ())):
            measured = self._measure(part, at)
            record[part] = measured.spread()
            if len(measured.sizes) <= MAX_LISTED_CLIENTS:
                clients[part] = {k: to_json(v) for k, v in measured.values.items()}
        record |= self._pool(first, at)
        lam = mixture_of(self.algorithm, self.server) if self.clients.count <= MAX_LISTED_CLIENTS else None
        if lam is not None:
            record["mixture"] = lam.tolist()
        if self.best is not None:
            self.best.offer(record, at, self.done % self.settings.evaluate_every == 0)
        self.history.append({**record, "clients": clients})
        return self.history[-1]

    def _solution(self) -> Solution:
        dual, own = dual_of(self.algorithm, self.server), None
        if isinstance(self.algorithm, KeepsLayers):
            own = self.algorithm.own_layers(self.engine.state().records)
        return Solution(self.algorithm.model(self.server), dual, self.done, own)

    def _measure(self, part: str, at: Solution) -> Measured:
        measured = self.evaluator.measure(part, at)
        bad = np.flatnonzero(~np.isfinite(measured.values["loss"]) & (measured.sizes > 0))
        if len(bad):
            raise Diverged(int(bad[0]), "loss", self.done)
        return measured

    def _pool(self, part: str, at: Solution) -> Record:
        try:
            return self.evaluator.pool(part, at)
        except NotFinite:
            raise Diverged(NOBODY, "score", self.done) from None

    def _save(self) -> None:
        """Write a checkpoint."""
        if self.folder is None:
            return
        kept = self.engine.state()
        notes = {
            "ledger": self.clients.ledger.to_dict(),
            "seconds": self.seconds,
            "empty_rounds": self.empty_rounds,
            "engine": self.engine.settings(),
            "clients": kept.notes,
            "conditions": self._conditions(),
            "evaluations": self._evaluations(),
        }
        selected = None
        if self.best is not None:
            notes["selected"], selected = self.best.notes(), self.best.tensors()
        self.folder.checkpoints(self.identity).save(self.done, self.server, kept.records, notes, selected)
        self.engine.checkpointed()

    def _evaluations(self) -> Record:
        """How many regular evaluations there are; one of the last round alone goes when the run continues."""
        every = self.settings.evaluate_every
        return {"every": every, "count": sum(record["round"] % every == 0 for record in self.history)}

    def _save_interrupted(self) -> None:
        """Save the finished rounds: discard an unfinished round, repeat an unfinished evaluation."""
        if self.folder is None or self._committing or not self.done:
            return
        self.clients.begin(self.done)
        self.clients.ledger = self._ledger_before or self.clients.ledger
        if self.settings.due(self.done) and not (self.history and self.history[-1]["round"] == self.done):
            self._record()
        written = self.folder.history()
        if self.history and (not written or written[-1]["round"] < self.history[-1]["round"]):
            self.folder.append(self.history[-1], self.clients_named)
            self.callbacks.round(self.done, self.history[-1])
        self._save()

    def resume(self) -> list[str]:
        """Restore the newest checkpoint of the folder, if any; return warnings of what is damaged."""
        if self.folder is None:
            return []
        checkpoint, refused = self.folder.resume(
            self.identity, self.settings.evaluate_every, self.settings.due, self.clients_named
        )
        if checkpoint is None:
            return refused
        before, now = checkpoint.notes["engine"], self.engine.settings()
        if rounding_of(before) != rounding_of(now):
            raise BadInput("engine", now, f"the run started with {before}; resume with the same")
        if (began := checkpoint.notes.get("conditions", self._conditions())) != self._conditions():
            remedy = f"the run started with {began or 'none'}; resume with the same"
            raise BadInput("robust, attack", self._conditions() or None, remedy)
        require_same_selection(self.best, checkpoint)
        if self.best is not None:
            self.best.restore(checkpoint, self.settings.due)
        self.server = restore_record(self.server, checkpoint.server)
        self.done, self.seconds = checkpoint.rounds, checkpoint.notes["seconds"]
        self.empty_rounds = checkpoint.notes["empty_rounds"]
        self.clients.ledger = Ledger(**checkpoint.notes["ledger"])
        self.history = self.folder.history(self.done)
        self.engine.restore(checkpoint.memory, checkpoint.notes["clients"], self.algorithm)
        return [*refused, *cut_by_workers(before), *on_another_device(before, now)]

    def _conditions(self) -> Record:
        """What else affects the trajectory: robust aggregation and hostile clients."""
        robust, attack = self.settings.robust, self.settings.attack
        found: Record = {} if robust is None or not robust.active else {"robust": robust.to_dict()}
        if self.settings.privacy is not None:
            found["privacy"] = self.settings.privacy.to_dict()
        return found if attack is None else {**found, "attack": attack.to_dict(self.engine.count)}

    def _stopped_before(self) -> str | None:
        """Why a resumed run had already ended; None if it continues."""
        target, last = self.settings.target, self.history[-1] if self.history else {"round": None}
        if target is not None and last["round"] == self.done and target.met(last):
            return "target"
        if last["round"] == self.done and self._out_of_patience():
            return "patience"
        return "finished" if self.done >= self.settings.rounds else None

    def _summary(self, stopped: str) -> RunSummary:
        target, at = self.settings.target, self._chosen()
        summary: Record = {
            "algorithm": self.name,
            "problem": measured_loss(self.algorithm.problem),
            "stopped": stopped,
            "rounds": self.done,
            "target": None if target is None else str(target),
            "target_round": self.done if stopped == "target" else None,
        }
        if self.best is not None:
            summary["select"] = str(self.best.selection)
            summary["selected_round"] = at.rounds
            summary["selected"] = None if self.best.best is None else self.best.best.figure
        if isinstance(self.algorithm, KeepsLayers):  # of which the saved model has the initial ones
            summary["local_layers"] = list(self.algorithm.local_names)
        start = self.evaluator.start_loss(self._began) if self.done and stopped != "interrupted" else None
        summary |= self._figures(at, stopped)
        if self.done and stopped != "interrupted" and (warnings := self._bad_ends(at, start, summary)):
            summary["warnings"] = warnings
        if isinstance(self.algorithm, Guarantees) and (guarantee := self.algorithm.guarantee(self.done)):
            summary["privacy"] = guarantee
        content = {
            **summary,
            "seconds": round(self.seconds, 3),
            "ledger": self.clients.ledger.to_dict(),
            "engine": self.engine.settings(),
            "fingerprint": self.identity.fingerprint,
            **self.engine.report(),
        }
        return RunSummary.model_validate(content)

    def _bad_ends(self, at: Solution, start: dict[str, float] | None, figures: Record) -> list[BadEnd]:
        """Warn if the final model is useless."""
        end = figures["train" if "train" in figures else self.evaluator.parts[0]]["loss"]
        problem, moved = self.algorithm.problem, None
        answered = at.own is None and not self.empty_rounds
        if answered and isinstance(problem, HasModel) and problem.model is not None:
            network = sum(p.numel() for p in problem.model.parameters())  # the first part of the vector
            moved = float((at.model - self._began.model)[:network].abs().max()) if network else None
        found = bad_ends(problem, start, end, moved, self.done, self.evaluator.scores_vary(at))
        if isinstance(self.algorithm, HasCautions):
            cautions = self.algorithm.cautions(self.server, self.features_named)
            found += [BadEnd(kind="caution", text=text) for text in cautions]
        for each in found:
            self.callbacks.warn(each.text)
        return found

    def _chosen(self) -> Solution:
        """The solution of the best round, or of the last."""
        return self._solution() if self.best is None or self.best.best is None else self.best.best.at

    def _figures(self, at: Solution, stopped: str) -> Record:
        """The figures of the summary. With validation rows, the test rows are measured here only, when all is done."""
        first, *others = self.evaluator.parts
        if first == "validation" and stopped == "interrupted":
            others = [part for part in others if part != "test"]
        measured = {part: self._measure(part, at) for part in (first, *others)}
        figures: Record = {part: found.spread() for part, found in measured.items()}
        shown = main_part_name(figures)
        figures["clients"] = {shown: measured[shown].listed(MAX_LISTED_CLIENTS)}
        known = next((r for r in self.history[::-1] if r["round"] == at.rounds), None)
        pooled = self.evaluator.pool(first, at) if known is None else known
        figures |= {k: v for k, v in pooled.items() if k in ("pooled", "pooled_validation", "not_reached")}
        return figures | (self.evaluator.pool("test", at) if first == "validation" and "test" in others else {})

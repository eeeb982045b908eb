"""What a site has answered in a run, on its disk: each question of the plan once, and nothing else.

The same question again has the same answer: after a crash the server goes on from its last checkpoint and repeats what
it asked. Another question in the place of an answered one, and all that the run does not need, is refused.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError
from torch import Tensor

from fedsaddle.deployment.messages import Ask, MessagePart
from fedsaddle.deployment.site_plan import Plan
from fedsaddle.errors import CannotWrite, Refused
from fedsaddle.files import write_atomically
from fedsaddle.privacy.site import digest_of
from fedsaddle.runs.folder import only_writer

FILE, SECRET = "questions.jsonl", "draws-secret"
OWNER = 0o600
WAIT = 60.0  # seconds for another process of this site that writes here
MOST_REFUSALS = 5  # after so many the site answers nothing more in the run
UNCHECKED = 5  # models that may be measured without a task that carries them
MONTH = 31 * 24 * 3600.0


class OffPlan(Refused):
    """A question that the run does not need."""


class LoggedQuestion(MessagePart):
    """A line of the file.

    Args:
        what: "task", "measure", "refused", "stopped", or a request such as "facts".
        given: a digest of the question; of "measure" that of the model.
        trial: which of several runs in one job; empty: the only one.
        round: of a task; of "measure" the rounds that were done.
        exchange: of a task.
        task: its name; of "measure" the part of the rows; of a request a digest of the config here;
            of "stopped" the reason.
        carried: digests of what a task carried; of "measure" that of the dual.
        cuts: of "measure", where tables were made.
    """

    what: str
    given: str = ""
    trial: str = ""
    round: int = 0
    exchange: int = 0
    task: str = ""
    carried: list[str] = Field([], max_length=100)
    cuts: list[int] = Field([], max_length=10_000)


class Measurement(NamedTuple):
    """A model that the server wants to have measured.

    Args:
        w: digest of the model.
        dual: digest of its dual; empty: it has none.
        part: the rows, such as "test".
        rounds: that were done before, as the server says.
    """

    w: str
    dual: str
    part: str
    rounds: int


@dataclass
class Questions:
    """The questions of one run, in the site's folder of that run.

    Args:
        folder: the folder.
        entries: what was asked, as read from the disk.
    """

    folder: Path
    entries: list[LoggedQuestion] = field(default_factory=list)
    _end: int = 0  # of what was read
    _tasks: dict[tuple[str, int, int], LoggedQuestion] = field(default_factory=dict, repr=False)
    _measurements: dict[Measurement, list[int]] = field(default_factory=dict, repr=False)

    @property
    def new(self) -> bool:
        """Whether nothing was asked yet."""
        return not (self.folder / FILE).exists()

    def request(self, do: str, given: str, config: str) -> None:
        """Note a request such as "facts", which a run makes once; refuse another one of its kind.

        Args:
            do: its kind.
            given: digest of its content.
            config: digest of the site's own config; who changes that there may begin the run again.
        """
        with self._open():
            before = next((each.given for each in self.entries if (each.what, each.task) == (do, config)), None)
            if before is None:
                self._add(LoggedQuestion(what=do, given=given, task=config))
            elif before != given:
                self._refuse(f"this run has asked for {do!r} before, with other content; begin a new run")

    def task(self, ask: Ask, plan: Plan, given: str, carried: Sequence[str] = ()) -> None:
        """Note a task before it is run; refuse one that the plan does not have.

        Args:
            ask: the header of the task.
            plan: of the run.
            given: digest of all that the reply depends on, besides the rows.
            carried: digests of the tensors that came with it.
        """
        with self._open():
            key, at = ("", ask.round, ask.exchange), (ask.round, ask.exchange)
            before = self._tasks.get(key)
            if before is not None and (before.task, before.given) == (ask.task, given):
                return
            where = f"round {ask.round + 1}, exchange {ask.exchange + 1}"
            if before is not None:
                self._refuse(f"{where} was answered before, and this is another question")
            if self._tasks and at < max(self._tasks)[1:]:
                self._refuse(f"{where} is before what was answered last")
            in_round = {e: each.task for (_, r, e), each in self._tasks.items() if r == ask.round}
            times = Counter(each.task for each in self._tasks.values())[ask.task]
            if reason := plan.objection(ask.task, at, in_round, times):
                self._refuse(reason)
            if ask.exchange == 0:
                model = next((each.w for each in self._measurements if each.rounds == ask.round), None)
                if plan.carries and model is not None and model not in carried:
                    self._stop(f"a model measured after round {ask.round} is not the one that its next task carries")
            self._add(
                LoggedQuestion(
                    what="task", given=given, round=ask.round, exchange=ask.exchange, task=ask.task,
                    carried=list(carried) if ask.exchange == 0 else [],
                )
            )  # fmt: skip

    def measure(self, model: Measurement, plan: Plan, most: int, cuts: Sequence[int] = ()) -> list[int]:
        """Note a measurement before it happens; refuse one of a model that is not the run's, or one too many.

        Args:
            model: what is measured.
            plan: of the run.
            most: models, times parts of the rows, that may be measured.
            cuts: where the server asks for tables of the scores.

        Returns:
            The cuts to count at: those asked for first, as tables at two sets of them could be subtracted.
        """
        with self._open():
            if model in self._measurements:
                return self._measurements[model]
            rounds, same = model.rounds, [each for each in self._measurements if each.rounds == model.rounds]
            if any((each.w, each.dual) != (model.w, model.dual) for each in same):
                self._stop(f"another model was measured after round {rounds}")
            if rounds > plan.rounds:
                self._refuse(f"the run has {plan.rounds} rounds, and this model is said to be of round {rounds}")
            shown = self._tasks.get(("", rounds, 0))
            if plan.carries and shown is not None and model.w not in shown.carried:
                self._stop(f"the model said to be of round {rounds} is not the one that the next task carried")
            if plan.carries and plan.everyone and shown is None and not same and self._unchecked() >= UNCHECKED:
                self._refuse(f"{UNCHECKED} models were measured that no task has carried")
            if len({each[:3] for each in (*self._measurements, model)}) > most:
                raise Refused(f"this site's policy says most_evaluations = {most}; so many models were measured")
            given = {"given": model.w, "round": rounds, "task": model.part, "carried": [model.dual]}
            self._add(LoggedQuestion.model_validate({"what": "measure", **given, "cuts": list(cuts)}))
            return list(cuts)

    def refuse(self, reason: str) -> None:
        """Note a question that the run does not need, and refuse it."""
        with self._open():
            self._refuse(reason)

    def secret(self) -> bytes:
        """The secret that the site's rows are drawn with in this run; made once, and needed as long as the run is."""
        path = self.folder / SECRET
        with self._open():
            if not path.exists():
                if self._tasks:
                    raise Refused("the secret that this site draws its rows with is gone; begin a new run")
                write_atomically(path, secrets.token_bytes(32), OWNER)
            return path.read_bytes()

    def _unchecked(self) -> int:
        """Models that were measured without a task that carries them."""
        return sum(("", rounds, 0) not in self._tasks for rounds in {each.rounds for each in self._measurements})

    def _refuse(self, reason: str) -> None:
        self._add(LoggedQuestion(what="refused"))
        raise OffPlan(f"{reason} (a site answers what the plan of its run has, once)")

    def _stop(self, reason: str) -> None:
        """Answer nothing more in this run."""
        self._add(LoggedQuestion(what="stopped", task=reason))
        raise _stopped(reason)

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Hold the folder, with what other processes of the site have noted; refuse if there was too much to refuse."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_writer(self.folder, WAIT):
            self._catch_up()
            if reason := next((each.task for each in self.entries if each.what == "stopped"), ""):
                raise _stopped(reason)
            if sum(each.what == "refused" for each in self.entries) >= MOST_REFUSALS:
                told = (
                    f"this site refused {MOST_REFUSALS} questions that the run does not need, and answers nothing more"
                )
                raise Refused(f"{told}; ask who runs the server, then begin a new run")
            yield

    def _catch_up(self) -> None:
        try:
            with (self.folder / FILE).open("rb") as file:
                file.seek(self._end)
                content = file.read()
        except FileNotFoundError:
            if self._end:
                raise Refused("this site's notes of what it answered are gone; begin a new run") from None
            return
        whole = content[: content.rfind(b"\n") + 1]
        self._end += len(whole)
        for line in whole.splitlines():
            try:
                self._take(LoggedQuestion.model_validate_json(line))
            except ValidationError:
                raise Refused("this site's notes of what it answered are damaged; begin a new run") from None

    def _take(self, entry: LoggedQuestion) -> None:
        self.entries.append(entry)
        if entry.what == "task":
            self._tasks[entry.trial, entry.round, entry.exchange] = entry
        elif entry.what == "measure":
            self._measurements[Measurement(entry.given, entry.carried[0], entry.task, entry.round)] = entry.cuts

    def _add(self, entry: LoggedQuestion) -> None:
        """Append a line to the disk, in place of one that is incomplete."""
        path = self.folder / FILE
        line = json.dumps(entry.model_dump(exclude_defaults=True)).encode() + b"\n"
        try:
            number = os.open(path, os.O_RDWR | os.O_CREAT, OWNER)
            try:
                os.ftruncate(number, self._end)
                os.lseek(number, self._end, os.SEEK_SET)
                if os.write(number, line) != len(line):
                    raise OSError(0, "the disk is full")
                os.fsync(number)
            finally:
                os.close(number)
        except OSError as reason:
            raise CannotWrite(path, reason) from None
        self._end += len(line)
        self._take(entry)


def _stopped(reason: str) -> Refused:
    return Refused(f"{reason}; this site answers no more in this run")


def digest(value: Tensor) -> str:
    """A short digest of the type, the shape and the numbers."""
    return digest_of(value).hex()[:24]


def runs_of_month(folder: Path) -> int:
    """The runs that began to ask in the last 31 days, of a site's folder."""
    now = time.time()
    return sum(now - began(path) < MONTH for path in folder.glob(f"*/{FILE}"))


def began(path: Path) -> float:
    """When a run asked first: the time of its first notes."""
    first = path.parent / SECRET
    return (first if first.exists() else path).stat().st_mtime

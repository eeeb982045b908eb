"""Submit a run to NVFlare and supervise it: if the job ends early, submit the run again, and it resumes.

A job consists of JSON files and contains no code.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fedsaddle.config.schema import Config
from fedsaddle.deployment.project import RUNS, Project
from fedsaddle.errors import FedSaddleError, TooFewAnswered
from fedsaddle.files import write_json
from fedsaddle.runs.folder import RunFolder
from fedsaddle.studies.study_plan import StudyPlan
from fedsaddle.text import visible

FIRST, LONGEST = 10.0, 300.0  # seconds: the first line about something, and the longest time between two
NAMED = 5  # sites that a line names


@dataclass
class Waiting:
    """Says what is waited for: after 10 s, then after twice as long each time, at most every 5 minutes.

    Args:
        say: shows a line.
        what: what is waited for.
        next: when to say it again.
    """

    say: Callable[[str], None]
    what: str = ""
    next: float = FIRST

    def tell(self, what: str, seconds: float) -> None:
        """It has been waited for `what` for so long."""
        if what != self.what:
            self.what, self.next = what, FIRST
        if seconds >= self.next:
            self.say(f"waiting for {what} since {seconds:.0f} s")
            self.next = seconds + min(max(self.next, FIRST), LONGEST)

    def sites(self, waiting: Mapping[str, float]) -> None:
        """These sites have not answered for so many seconds."""
        if waiting:
            self.tell(names_of(list(waiting)), max(waiting.values()))

    def over(self) -> None:
        """Nothing is waited for."""
        self.what, self.next = "", FIRST


def names_of(sites: list[str]) -> str:
    """The first names, and how many more.

    Examples:
        >>> names_of([f"site-{i}" for i in range(8)])
        'site-0, site-1, site-2, site-3, site-4 and 3 more'
    """
    more = f" and {len(sites) - NAMED} more" if len(sites) > NAMED else ""
    return ", ".join(sites[:NAMED]) + more


APP = "fedsaddle.deployment.nvflare.app"
STATUS = "fedsaddle.status"  # the query for new records
MAX_LOST_CONNECTIONS = 100  # before the run fails
# Time after its first missed answer at which a connected site is readmitted: without the job, and with it.
RETURN_SECONDS, SLOW_SECONDS = 3.0, 120.0
SCHEDULING_SECONDS = 30.0  # for NVFlare to start a job, in addition to the patience for sites


class Session(Protocol):
    """The interface that the supervisor needs; every method may raise `ServerLost`."""

    def submit(self, job: Path) -> str: ...  # noqa: D102
    def find(self, run: str) -> str | None: ...  # noqa: D102
    def status(self, job: str) -> str: ...  # noqa: D102
    def sites(self) -> dict[str, float]: ...  # noqa: D102
    def runs(self, job: str, site: str) -> bool: ...  # noqa: D102
    def query(self, job: str, topic: str, data: dict[str, object]) -> dict[str, Any]: ...  # noqa: D102
    def abort(self, job: str) -> None: ...  # noqa: D102
    def results(self, job: str, folder: Path) -> Path: ...  # noqa: D102


def write_job(path: Path, run: str, config: str, minimum: int, poll: float) -> Path:
    """Write the job of a run; `config` is JSON, `poll` is the interval at which sites ask for tasks, in seconds."""
    app = path / "app" / "config"
    app.mkdir(parents=True, exist_ok=True)
    meta = {"name": run, "resource_spec": {}, "min_clients": minimum, "deploy_map": {"app": ["@ALL"]}}
    write_json(path / "meta.json", meta)
    flow = {"id": "fedsaddle", "path": f"{APP}.ServerApp", "args": {"run": run, "config": config}}
    server: dict[str, Any] = {"format_version": 2, "server": {"task_request_interval": poll}}
    write_json(app / "config_fed_server.json", {**server, "workflows": [flow], "components": []})
    executor = {"tasks": ["fedsaddle"], "executor": {"path": f"{APP}.SiteApp", "args": {}}}
    client = {"format_version": 2, "executors": [executor], "components": []}
    write_json(app / "config_fed_client.json", client)
    return path


class ServerLost(Exception):
    """The server cannot be reached any more."""


class JobGone(Exception):
    """The job does not answer."""


class JobFailed(FedSaddleError):
    """The run ended early more often than `resubmit` allows."""

    exit_code = 3


@dataclass
class Supervisor:
    """One run, from its submission to its results.

    Args:
        project: the deployment.
        connect: opens a session with the server.
        config: of the run.
        run: name of the run.
        say: shows a line.
        on_record: called once with each record.
        resumed: whether the run started in an earlier process.
        records_seen: records of the history that were shown.
        resubmitted: how often the job was submitted again.
        poll: seconds between two looks.
        now: the time in seconds, which tests replace.
        sleep: waits for so many seconds, which tests replace.
        job: submitted, and not yet finished.
        on_progress: called with the rounds and the sites that are up.
        attached: to a run of somebody else: an interruption leaves it running.
        lost_connections: how often the server could not be reached.
        noted: whether the user was told what the facts of the sites gave cause to say.
        ended: the status of the last job that ended early.
        readmitting: whether the job was aborted to readmit a site.
        readmissions: how often a job was aborted to readmit a site.
    """

    project: Project
    connect: Callable[[], AbstractContextManager[Session]]
    config: Config | StudyPlan
    run: str
    say: Callable[[str], None]
    on_record: Callable[[dict[str, Any]], None]
    resumed: bool = False
    records_seen: int = 0
    resubmitted: int = 0
    poll: float = 1.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    job: str | None = None
    on_progress: Callable[[dict[str, Any]], None] | None = None
    attached: bool = False
    lost_connections: int = 0
    noted: bool = False
    ended: str = ""
    readmitting: bool = False
    readmissions: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.waiting = Waiting(self.say)

    def go(self, out: Path) -> dict[str, Any]:
        """Submit until the run is finished; copy its files to `out` and return the outcome."""
        while True:
            try:
                with self.connect() as session:
                    outcome = self._once(session, out)
            except ServerLost as reason:  # the job may still run: connect again and check
                self.lost_connections += 1
                if self.lost_connections > MAX_LOST_CONNECTIONS:
                    raise JobFailed(f"{reason}, {self.lost_connections} times; see the server's log") from None
                self.sleep(self.poll)
                continue
            if outcome is not None:
                return outcome
            if self.readmitting:  # not a failure
                self.readmitting = False
                continue
            self.resubmitted += 1
            most = self.project.deployment.resubmit
            if self.resubmitted > most:
                raise JobFailed(
                    f"the run was submitted {self.resubmitted} times and ended early each time ({self.ended}); see the "
                    "logs of the server and of the sites: a full disk or too little memory ends a job, for example"
                )
            self.say(f"the job ended early; submitting it again ({self.resubmitted} of {most})")

    def _once(self, session: Session, out: Path) -> dict[str, Any] | None:
        """Run one job; return its outcome, or None if it ended early."""
        with tempfile.TemporaryDirectory() as folder:
            job = self.job = self.job or self._submit(session, Path(folder))
            try:
                status = self._follow(session, job)
            except KeyboardInterrupt:
                if not self.attached:
                    session.abort(job)
                raise
            if status != "FINISHED:COMPLETED":
                self.job, self.ended = None, status
                return None
            results = session.results(job, Path(folder) / "results") / RUNS
            outcome: dict[str, Any] = json.loads((results / "outcome.json").read_text())
            shutil.copytree(results, out, dirs_exist_ok=True)
            if (agreed := RunFolder(out).agreed).exists():
                agreed.chmod(0o600)  # facts of all sites; the archive that it came in has no rights
            return outcome

    def _submit(self, session: Session, folder: Path) -> str:
        self._wait_for_sites(session)
        plan, d = self.config, self.project.deployment
        config = json.dumps(plan.content() if isinstance(plan, StudyPlan) else plan.model_dump(mode="json"))
        return session.submit(write_job(folder / self.run, self.run, config, d.minimum, d.poll))

    def _wait_for_sites(self, session: Session) -> None:
        """Wait for all sites before the first round, and for the minimum when the run resumes."""
        begun = self.resumed or self.records_seen or self.resubmitted or self.readmissions
        least = self.project.deployment.minimum if begun else len(self.project.names)
        began = self.now()
        while True:
            there = set(session.sites()) & set(self.project.names)
            if len(there) >= least:
                return self.waiting.over()
            missing = [name for name in self.project.names if name not in there]
            seconds, patience = self.now() - began, self.project.deployment.patience
            if seconds > patience:
                raise TooFewAnswered(
                    f"{len(there)} of at least {least} sites are connected; start {', '.join(sorted(missing))}"
                )
            self.waiting.tell(f"{names_of(missing)} to connect (at most {patience:g} s)", seconds)
            self.sleep(self.poll)

    def _follow(self, session: Session, job: str) -> str:
        """Pass on the records of a job until it ends; return its status."""
        began, silent, submitted = 0.0, 0.0, self.now()
        patience = self.project.deployment.patience + SCHEDULING_SECONDS
        while True:
            status = session.status(job)
            if status.startswith("FINISHED"):
                return status
            if status != "RUNNING" and self.now() - submitted > patience:
                session.abort(job)
                least = self.project.deployment.minimum
                raise TooFewAnswered(
                    f"fewer than {least} sites started within {patience:g} s; start the missing ones and resume"
                )
            if status != "RUNNING":
                self.waiting.tell("the server to start the job", self.now() - submitted)
            if status == "RUNNING":
                submitted = self.now()
                try:
                    status_reply = session.query(job, STATUS, {"seen": self.records_seen, "noted": self.noted})
                    began, silent = began or self.now(), 0.0
                    for note in () if self.noted else status_reply.get("notes", ()):
                        self.say(f"note: {visible(note)}")
                    self.noted = self.noted or "notes" in status_reply
                    waiting = status_reply.get("waiting", {})
                    if self.on_progress is not None and "progress" in status_reply:
                        self.on_progress({**status_reply["progress"], "waiting": waiting})
                    for record in status_reply["records"]:
                        self.records_seen += 1
                        self.on_record(record)
                    self.waiting.sites(waiting)
                    self._readmit(session, job, status_reply.get("silent", {}))
                except JobGone:  # listed as running, but it does not answer: the server was restarted
                    silent = silent or self.now()
                    if self.now() - silent > (20 if began else 120):
                        session.abort(job)
                        return "LOST"
            self.sleep(self.poll if began else 3 * self.poll)

    def _readmit(self, session: Session, job: str, silent: dict[str, float]) -> None:
        """Abort the job if a silent site is up again, since NVFlare does not readmit sites to a running job.

        A site that is up and still has the job may only be slow, and gets more time. The required silence grows with
        each readmission of the site.
        """
        last_seen = session.sites() if silent else {}
        for name, since in silent.items():
            factor = 8 ** self.readmissions[name]
            if last_seen.get(name, 0.0) > since + RETURN_SECONDS * factor and (
                last_seen[name] > since + SLOW_SECONDS * factor or not session.runs(job, name)
            ):
                self.readmissions[name] += 1
                self.say(f"{name} is back; submitting the run again to readmit it")
                self.readmitting = True
                session.abort(job)
                return

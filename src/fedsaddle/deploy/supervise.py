"""Submits a run to NVFlare and stays with it: whatever ends the job early, the run is submitted again and resumes."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsaddle.config import Config
from fedsaddle.deploy.jobs import write_job
from fedsaddle.deploy.nvflare_app import FOLDER, STATUS
from fedsaddle.deploy.nvflare_session import Gone, Lost, NVFlareSession
from fedsaddle.deploy.project import Project
from fedsaddle.errors import FedSaddleError, TooFewAnswered

log = logging.getLogger("fedsaddle.supervisor")


class JobFailed(FedSaddleError):
    """A run that ended early more often than it may be submitted."""

    exit_code = 3


@dataclass
class Supervisor:
    """One run, from its submission to its results."""

    project: Project
    kit: Path  # of the one who submits
    config: Config
    run: str
    say: Callable[[str], None]
    heard: Callable[[dict[str, Any]], None]  # each record, once
    seen: int = 0
    again: int = 0
    poll: float = 1.0
    returned: set[str] = field(default_factory=set)  # sites that came back once: for them a job is not ended twice

    def go(self, out: Path) -> dict[str, Any]:
        """Submit until it comes to its end; the outcome, and the run's files in `out`."""
        while True:
            try:
                with NVFlareSession(self.project.admin, self.kit, self.project.deployment.patience) as session:
                    outcome = self._once(session, out)
            except Lost as reason:
                outcome, why = None, str(reason)
            else:
                why = "the job ended early"
            if outcome is not None:
                return outcome
            self.again += 1
            if self.again > self.project.deployment.resubmit:
                raise JobFailed(
                    f"the run was submitted {self.again} times and ended early each time ({why}); see the logs"
                )
            self.say(f"{why}; submitting it again ({self.again} of {self.project.deployment.resubmit})")

    def _once(self, session: NVFlareSession, out: Path) -> dict[str, Any] | None:
        """One job: its outcome, or None if it ended early."""
        self._wait_for_sites(session)
        d = self.project.deployment
        with tempfile.TemporaryDirectory() as folder:
            config = json.dumps(self.config.model_dump(mode="json"))
            job = session.submit(write_job(Path(folder) / self.run, self.run, config, d.minimum, d.poll))
            try:
                status = self._follow(session, job)
            except KeyboardInterrupt:
                session.abort(job)
                raise
            if status != "FINISHED:COMPLETED":
                return None
            results = session.results(job, Path(folder) / "results") / FOLDER
            outcome: dict[str, Any] = json.loads((results / "outcome.json").read_text())
            shutil.copytree(results, out, dirs_exist_ok=True)
            return outcome

    def _wait_for_sites(self, session: NVFlareSession) -> None:
        """All of them at first, later the minimum: a run that goes on need not wait for a site that is lost."""
        least = len(self.project.names) if not self.seen and not self.again else self.project.deployment.minimum
        until = time.monotonic() + self.project.deployment.patience
        while True:
            there = set(session.sites()) & set(self.project.names)
            if len(there) >= least:
                return
            if time.monotonic() > until:
                missing = ", ".join(sorted(set(self.project.names) - there))
                raise TooFewAnswered(f"{len(there)} of at least {least} sites are connected; start {missing}")
            time.sleep(self.poll)

    def _follow(self, session: NVFlareSession, job: str) -> str:
        """Pass on the records until the job ends."""
        began, silent = 0.0, 0.0
        while True:
            status = session.status(job)
            if status.startswith("FINISHED"):
                return status
            if status == "RUNNING":
                try:
                    told = session.tell(job, STATUS, {"seen": self.seen})
                    began, silent = began or time.monotonic(), 0.0
                    for record in told["records"]:
                        self.seen += 1
                        self.heard(record)
                    self._let_return(session, job, told.get("silent", {}))
                except Gone:  # said to run, but nobody is there: the server was started anew
                    silent = silent or time.monotonic()
                    if time.monotonic() - silent > (20 if began else 120):
                        session.abort(job)
                        return "LOST"
            time.sleep(self.poll if began else 3 * self.poll)

    def _let_return(self, session: NVFlareSession, job: str, silent: dict[str, float]) -> None:
        """NVFlare lets no site back into a running job: where a silent one is up again, another job takes over."""
        seen = session.sites() if silent else {}
        for name, since in silent.items():
            if name not in self.returned and seen.get(name, 0.0) > since + 3.0:
                self.returned.add(name)
                self.say(f"{name} is back")
                self.again -= 1  # this one is no failure
                session.abort(job)
                return

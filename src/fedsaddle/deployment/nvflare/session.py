"""The admin session of NVFlare, with its exceptions reduced to `ServerLost` and `JobGone`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from nvflare.fuel.flare_api.api_spec import AuthenticationError, AuthorizationError, InvalidJobDefinition, JobNotFound
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session
from nvflare.fuel.hci.proto import MetaKey, MetaStatusValue

from fedsaddle.deployment.nvflare.supervise import JobGone, ServerLost
from fedsaddle.errors import MissingData, Refused, TooFewAnswered

T = TypeVar("T")


class NVFlareSession:
    """One connection of the user who submits runs."""

    def __init__(self, user: str, kit: Path, patience: float) -> None:
        if not (kit / "startup" / "fed_admin.json").is_file():
            raise MissingData(f"{kit}: no kit for submitting runs there; `fedsaddle deploy provision` makes it")
        self.user, self.kit, self.patience = user, kit, patience
        self.session: Session | None = None

    def __enter__(self) -> NVFlareSession:
        until = time.monotonic() + max(self.patience, 30.0)
        while True:
            try:
                with redirect_stdout(StringIO()):
                    self.session = new_secure_session(self.user, str(self.kit.resolve()), timeout=30.0)
                return self
            except (AuthenticationError, AuthorizationError) as reason:
                raise Refused(f"the server does not know {self.user}: {reason}") from None
            except Exception as reason:
                if time.monotonic() > until:
                    remedy = "start it: fedsaddle deploy start-server"
                    raise TooFewAnswered(f"the server cannot be reached ({type(reason).__name__}); {remedy}") from None
                time.sleep(1.0)

    def __exit__(self, *_: object) -> None:
        try:
            if self.session is not None:
                self.session.close()
        except Exception:  # the connection was lost before
            self.session = None

    def submit(self, job: Path) -> str:
        """Submit a job; return its ID."""
        try:
            return str(self._call(lambda s: s.submit_job(str(job))))
        except InvalidJobDefinition as reason:
            raise Refused(f"the server refused the job: {reason}") from None

    def find(self, run: str) -> str | None:
        """The newest job of the run with that name; None if the server knows none."""
        found = [job for job in self._call(lambda s: s.list_jobs(name_prefix=run)) if _meta(job, "name") == run]
        return max(found, key=lambda job: _meta(job, "submit_time"))["job_id"] if found else None

    def run_names(self) -> list[str]:
        """The names of the runs that the server knows."""
        return sorted({_meta(job, "name") for job in self._call(lambda s: s.list_jobs())} - {""})

    def status(self, job: str) -> str:
        """The status of a job, in NVFlare's terms."""
        try:
            return str(self._call(lambda s: s.get_job_meta(job)).get("status", ""))
        except JobNotFound:
            return "FINISHED:FORGOTTEN"

    def sites(self) -> dict[str, float]:
        """The connected sites, and the time of each one's last message."""
        found = self._call(lambda s: s.get_system_info()).client_info
        return {client.name: float(client.last_connect_time or 0.0) for client in found}

    def runs(self, job: str, site: str) -> bool:
        """Whether a site takes part in the job; a restarted site does not. True if unknown."""
        found = self._call(lambda s: s.get_client_job_status([site])) or []
        if any(line.get(MetaKey.STATUS) == MetaStatusValue.NO_JOBS for line in found):
            return False
        numbers = [line[MetaKey.JOB_ID] for line in found if MetaKey.JOB_ID in line]
        return not numbers or job in numbers

    def query(self, job: str, topic: str, data: dict[str, object]) -> dict[str, Any]:
        """Send a query to the running job."""
        if self.session is None:
            raise ServerLost("the server is lost")
        try:
            reply: dict[str, Any] = self.session.do_app_command(job, topic, data)
            return reply
        except ConnectionError:
            raise ServerLost("the server is lost") from None
        except Exception as reason:
            raise JobGone(str(reason)) from None

    def abort(self, job: str) -> None:
        """Abort the job, if it still runs."""
        try:
            self._call(lambda s: s.abort_job(job))
        except Exception:
            return

    def results(self, job: str, folder: Path) -> Path:
        """Download the results of the job."""
        return Path(self._call(lambda s: s.download_job_result(job, str(folder)))) / "workspace"

    def _call(self, request: Callable[[Session], T]) -> T:
        if self.session is None:
            raise ServerLost("the server is lost")
        try:
            return request(self.session)
        except (InvalidJobDefinition, AuthorizationError, JobNotFound):
            raise
        except Exception as reason:
            raise ServerLost(f"the server is lost ({type(reason).__name__})") from None


def _meta(job: dict[str, object], key: str) -> str:
    """A word of a job's description; NVFlare writes some keys in two ways."""
    return str(job.get(key) or job.get(f"job_{key}") or "")

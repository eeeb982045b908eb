"""The two classes that NVFlare runs and every site allows: the server's workflow and the sites' executor."""

from __future__ import annotations

import json
import shutil
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fedsaddle.config.schema import validate_config
from fedsaddle.deployment.courier import Arrival, Patience
from fedsaddle.deployment.deployed_study import DeployedStudy
from fedsaddle.deployment.messages import Answer, Fault, FaultKind
from fedsaddle.deployment.nvflare.supervise import STATUS
from fedsaddle.deployment.project import KIT_SETTINGS, RUNS
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site import SiteService
from fedsaddle.deployment.site_policy import read_policy
from fedsaddle.deployment.site_worker import safe_name
from fedsaddle.deployment.study_site import service_of
from fedsaddle.documents.files import CHECKPOINTS
from fedsaddle.errors import BadMessage, FedSaddleError, Refused
from fedsaddle.federation.wire import Message, about, pack
from fedsaddle.files import read_object, write_json
from fedsaddle.own_code import only_modules
from fedsaddle.runs.folder import LOCK, FolderInUse, RunFolder
from fedsaddle.studies.study_plan import plan_of

TASK = "fedsaddle"
KEY = "fedsaddle.message"
QUICK = "fedsaddle.quick"  # the topic of small messages, which do not wait until a site asks for work


class Aborted(Exception):
    """The job was aborted."""


class NVFlareTransport:
    """Sends by `broadcast_and_wait` from inside a controller; NVFlare authenticates sites by their certificates."""

    def __init__(
        self, controller: Controller, names: Sequence[str], context: FLContext, abort: Signal, grace: float
    ) -> None:
        self.controller, self.context, self.abort, self.grace = controller, context, abort, grace
        self.names = list(names)
        self.silent: dict[str, float] = {}  # site -> time since which it has not answered
        self.asked: dict[
            str, float
        ] = {}  # site of the last exchange that has not answered -> time at which it was asked

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Broadcast to the clients; those without an answer at the timeout are left out."""
        if self.abort.triggered:
            raise Aborted
        number = {self.names[i]: i for i in clients}
        self.asked = dict.fromkeys(number, time.time())
        there = {client.name for client in self.controller._engine.get_clients()}
        targets = [name for name in number if name in there]
        away = [i for name, i in number.items() if name not in there]
        arrivals = [Arrival(i, None, Fault(FaultKind.NOT_CONNECTED, i)) for i in away]
        if not targets:
            self._update_silent(number, arrivals)
            return arrivals

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:  # NVFlare passes these by name
            arrivals.append(arrival(number[client_task.client.name], client_task.result))
            client_task.result = None
            self.asked.pop(client_task.client.name, None)

        task = Task(
            name=TASK, data=Shareable({KEY: content}), timeout=max(1, round(timeout)), result_received_cb=received
        )
        self.controller.broadcast_and_wait(
            task=task,
            fl_ctx=self.context,
            targets=targets,
            min_responses=min(least, len(targets)),
            wait_time_after_min_received=round(self.grace),
            abort_signal=self.abort,
        )
        if self.abort.triggered:
            raise Aborted
        self._update_silent(number, arrivals)
        return list(arrivals)

    def quick(self, clients: Sequence[int], content: bytes, timeout: float) -> list[Arrival]:
        """Send by NVFlare's auxiliary messages, which reach a site at once."""
        if self.abort.triggered:
            raise Aborted
        number = {self.names[i]: i for i in clients}
        found = self.controller._engine.send_aux_request(
            list(number), QUICK, Shareable({KEY: content}), timeout, self.context, optional=True
        )
        return [arrival(number[name], reply) for name, reply in (found or {}).items() if name in number]

    def waiting(self) -> dict[str, float]:
        """The sites that the last exchange waits for, and the seconds since which they have not answered."""
        now = time.time()
        return {name: now - self.silent.get(name, since) for name, since in list(self.asked.items())}

    def _update_silent(self, asked: dict[str, int], arrivals: list[Arrival]) -> None:
        answered = {a.client for a in arrivals if a.content is not None}
        for name, i in asked.items():
            if i in answered:
                self.silent.pop(name, None)
            else:
                self.silent.setdefault(name, time.time())


def arrival(client: int, result: object) -> Arrival:
    """Convert a reply to an arrival."""
    if not isinstance(result, Shareable) or result.get_return_code() != ReturnCode.OK:
        code = result.get_return_code() if isinstance(result, Shareable) else "no reply"
        told = f"NVFlare there reports {code!s:.60}; see the log of that site (is its disk full, its memory too small?)"
        return Arrival(client, None, Fault(FaultKind.FAILED, client, told))
    content = result.get(KEY)
    if isinstance(content, bytearray | memoryview):
        content = bytes(content)
    if not isinstance(content, bytes):
        return Arrival(client, None, Fault(FaultKind.BAD_MESSAGE, client, "the reply has no content"))
    return Arrival(client, content)


LAST_JOB = 60.0  # seconds that a job waits for the end of the one before it


class ServerApp(Controller):  # type: ignore[misc]
    """Runs the loop inside NVFlare's server, in a folder that persists after the job."""

    def __init__(self, run: str, config: str) -> None:
        super().__init__()
        content = json.loads(config)
        self.plan = plan_of(content) if "candidates" in content else None
        self.run, self.config = safe_name(run), validate_config(content) if self.plan is None else self.plan.base
        self.out: Path | None = None
        self.transport: NVFlareTransport | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Called once before the flow."""
        fl_ctx.get_engine().register_app_command(STATUS, self._status)

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Called once after the flow."""

    def process_result_of_unknown_task(self, client: object, task_name: str, client_task_id: str, result: object,
                                       fl_ctx: FLContext) -> None:  # fmt: skip
        """Ignore a late reply."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run to the end; a `FedSaddleError` becomes the outcome of the run, any other error fails the job."""
        workspace = fl_ctx.get_workspace()
        kit = Path(workspace.get_root_dir())
        settings = json.loads((kit / KIT_SETTINGS).read_text(encoding="utf-8"))
        self.out = kit / RUNS / self.run
        names = tuple(settings["sites"])
        self.transport = NVFlareTransport(self, names, fl_ctx, abort_signal, settings["grace"])
        patience = Patience(**settings["patience"])
        deployed: DeployedRun | DeployedStudy = DeployedRun(self.config, self.run, names, self.out, patience)
        if self.plan is not None:
            deployed = DeployedStudy(self.plan, self.run, names, self.out, patience)
        outcome: dict[str, Any] = {"code": 0, "message": ""}
        try:
            with only_modules(read_policy(kit).modules, "the server's policy"):  # a job brings no code
                deployed.go(self.transport, wait=LAST_JOB)
        except Aborted:
            return
        except FolderInUse as reason:  # an earlier job still writes: fail this one, so that it is submitted again
            self.system_panic(str(reason), fl_ctx)
            return
        except FedSaddleError as reason:
            outcome = {"code": reason.exit_code, "message": str(reason)}
        except Exception as reason:
            self.log_error(fl_ctx, traceback.format_exc(), fire_event=False)
            self.system_panic(f"{type(reason).__name__}", fl_ctx)
            return
        results = Path(workspace.get_run_dir(fl_ctx.get_job_id())) / RUNS
        if self.out.is_dir():
            shutil.copytree(self.out, results, dirs_exist_ok=True, ignore=shutil.ignore_patterns(CHECKPOINTS, LOCK))
        results.mkdir(parents=True, exist_ok=True)
        write_json(results / "outcome.json", outcome)

    def _status(self, topic: str, data: Any, fl_ctx: FLContext, *_: Any, **__: Any) -> dict[str, Any]:
        """The records that the caller has not seen, the silent sites, those waited for, and the config if asked."""
        seen = int((data or {}).get("seen", 0))
        records = [] if self.out is None else RunFolder(self.out).history()
        silent, waiting = ({}, {}) if self.transport is None else (self.transport.silent, self.transport.waiting())
        told = self.config.model_dump(mode="json") if self.plan is None else self.plan.content()
        config = {"config": told} if (data or {}).get("config") else {}
        progress = {} if self.out is None else _progress(RunFolder(self.out))
        notes = {} if self.out is None or (data or {}).get("noted") else _notes(RunFolder(self.out))
        return {"records": records[seen:], "silent": dict(silent), "waiting": waiting, **progress, **config, **notes}


def _notes(folder: RunFolder) -> dict[str, Any]:
    """What the facts of the sites gave cause to say; nothing before they have agreed."""
    try:
        return {"notes": list(read_object(folder.agreed)["notes"])}
    except (ValueError, KeyError, TypeError):
        return {}


def _progress(folder: RunFolder) -> dict[str, Any]:
    """The rounds that are done and the sites that are up; nothing before the first round."""
    try:
        return {"progress": read_object(folder.progress)}
    except ValueError:
        return {}


@dataclass
class OneRun:
    """A site's service in one job, which is one run: messages of other runs are refused.

    Args:
        answers: answers the messages of the run.
        run: its name; empty: that of the first message.
    """

    answers: Callable[[bytes], bytes]
    run: str = ""

    def answer(self, content: bytes) -> bytes:
        """Answer one message."""
        try:
            run = str(about(content).get("run", "")).partition(".")[0]  # a trial of a study is of its run
        except BadMessage:
            return self.answers(content)  # which says what is wrong with it
        self.run = self.run or run
        if run == self.run:
            return self.answers(content)
        reason = Refused(f"this job is run {self.run:.60}, and not {run:.60}; submit each run as a job of its own")
        return pack(Message(Answer.failed("", reason).to_dict()))


class SiteApp(Executor):  # type: ignore[misc]
    """Passes messages to the site's service; it has no arguments, so a job cannot configure it."""

    def __init__(self) -> None:
        super().__init__()
        self.service: OneRun | None = None
        self.one_at_a_time = threading.Lock()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Be ready for small messages before the first task."""
        if event_type == EventType.START_RUN:
            fl_ctx.get_engine().register_aux_message_handler(QUICK, self._quick)

    def _quick(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        return self._answered(request, fl_ctx)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer one message."""
        return self._answered(shareable, fl_ctx)

    def _answered(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        content = shareable.get(KEY)
        if not isinstance(content, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        reply = make_reply(ReturnCode.OK)
        with self.one_at_a_time:
            if self.service is None:
                name = fl_ctx.get_prop(FLContextKey.CLIENT_NAME) or fl_ctx.get_identity_name()
                try:
                    self.service = OneRun(service_of(Path(fl_ctx.get_workspace().get_root_dir()), name).answer)
                except Exception as reason:  # NVFlare would tell the server no more than EXECUTION_EXCEPTION
                    reply[KEY] = SiteService.unusable_kit(reason)
                    return reply
            reply[KEY] = self.service.answer(content)
        return reply

"""The transport over NVFlare: one exchange is one broadcast of its task API."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from fedsaddle.deployment.messages import Fault, FaultKind
from fedsaddle.deployment.transport import Arrival

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


def arrival(client: int, result: Any) -> Arrival:
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

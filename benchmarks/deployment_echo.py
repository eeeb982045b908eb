"""What the benchmark of deployments runs inside NVFlare: sites that send back what they get, a server with a watch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from deployment_work import echo, seconds, vector
from nvflare.apis.controller_spec import Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

from fedsaddle.deployment.nvflare.app import KEY, NVFlareTransport
from fedsaddle.federation.wire import unpack


class EchoController(Controller):
    def __init__(self, names: list[str], sizes: list[int], times: int, out: str) -> None:
        super().__init__()
        self.names, self.sizes, self.times, self.out = names, sizes, times, out

    def start_controller(self, fl_ctx: Any) -> None:
        pass

    def stop_controller(self, fl_ctx: Any) -> None:
        pass

    def process_result_of_unknown_task(self, client, task_name, client_task_id, result, fl_ctx) -> None:
        pass

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        transport = NVFlareTransport(self, self.names, fl_ctx, abort_signal, 60.0)

        def empty() -> None:
            """The engine's own floor: a task with nothing in it."""
            self.broadcast_and_wait(
                task=Task(name="fedsaddle", data=Shareable(), timeout=600),
                fl_ctx=fl_ctx, targets=self.names, min_responses=len(self.names), abort_signal=abort_signal,
            )  # fmt: skip

        def exchange(size: int) -> None:
            everyone = range(len(self.names))
            arrivals = transport.exchange(everyone, vector(size), len(self.names), 600.0)
            for arrival in arrivals:
                unpack(arrival.content or b"", {})
            assert len(arrivals) == len(self.names)

        found: dict[str, list[float]] = {}
        for size in self.sizes:
            found[f"floor beside {size}"] = seconds(empty, self.times)
            found[str(size)] = seconds(lambda n=size: exchange(n), self.times)
        Path(self.out).write_text(json.dumps(found))


class EchoExecutor(Executor):
    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        reply = make_reply(ReturnCode.OK)
        content = shareable.get(KEY)
        if content is not None:
            reply[KEY] = echo(content)
        return reply

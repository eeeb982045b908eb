"""What the benchmark of deployments runs inside NVFlare: sites that send back what they get, a server with a watch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.controller_spec import Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply

from fedsaddle.engines.nvflare import KEY, NVFlareTransport
from fedsaddle.federation.wire import Message, pack, unpack


def seconds(once: Callable[[], object], times: int) -> list[float]:
    """Of each call, the first one left out."""
    once()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        once()
        found.append(time.perf_counter() - began)
    return found


def echo(content: bytes) -> bytes:
    """A site's work: read the message, write it again."""
    return pack(unpack(content, {}))


def vector(size: int) -> bytes:
    """A message with so many float32 numbers."""
    return pack(Message({}, {"v": torch.randn(size)} if size else None))


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

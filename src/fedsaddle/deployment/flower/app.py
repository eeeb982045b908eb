"""The ServerApp and the ClientApp of a Flower run; they are part of the installed library, so a run ships no code.

`client` reads `kit = "..."` from the node's config: a folder with `local/fedsaddle.toml` and `local/fedsaddle.json`, as
`fedsaddle deploy flower` writes it. `server` reads `project`, `run` and `out` from the run's config.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from fedsaddle.config.schema import read_config
from fedsaddle.deployment.courier import Arrival
from fedsaddle.deployment.messages import Fault, FaultKind
from fedsaddle.deployment.project import read_project
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site import SiteService
from fedsaddle.deployment.site_worker import safe_name
from fedsaddle.errors import TooFewAnswered

RECORD, KEY = "fedsaddle", "message"
TYPE = "query.fedsaddle"
WHO = "query.fedsaddle_who"


def to_record(content: bytes) -> RecordDict:
    """Wrap bytes in a record of Flower."""
    return RecordDict({RECORD: ConfigRecord({KEY: content})})


def content_of(message: Message) -> bytes:
    """The bytes of a message."""
    content = message.content[RECORD][KEY]
    if not isinstance(content, bytes):
        raise TypeError("the message holds no bytes")
    return content


class FlowerTransport:
    """Sends through Flower's grid; `nodes[i]` is the node of client i."""

    def __init__(self, grid: Any, nodes: Sequence[int]) -> None:
        self.grid, self.nodes = grid, list(nodes)

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Send to all clients and wait for all answers or for the timeout."""
        number = {self.nodes[i]: i for i in clients}
        asks = [Message(to_record(content), dst_node_id=node, message_type=TYPE) for node in number]
        arrivals = []
        for reply in self.grid.send_and_receive(asks, timeout=timeout):
            client = number.get(reply.metadata.src_node_id)
            if client is not None:
                arrivals.append(arrival(client, reply))
        return arrivals


def arrival(client: int, reply: Message) -> Arrival:
    """Convert a reply to an arrival."""
    if reply.has_error():
        return Arrival(client, None, Fault(FaultKind.FAILED, client, f"Flower's error {reply.error.code}"))
    try:
        return Arrival(client, content_of(reply))
    except (KeyError, TypeError):
        return Arrival(client, None, Fault(FaultKind.BAD_MESSAGE, client, "the reply has no content"))


def client_app(answer_of: Callable[[Context], Callable[[bytes], bytes]], name: Callable[[Context], str]) -> ClientApp:
    """The ClientApp of a site: it answers messages and reports its site name."""
    app = ClientApp()

    @app.query("fedsaddle")  # type: ignore[untyped-decorator]
    def answer(message: Message, context: Context) -> Message:
        return Message(to_record(answer_of(context)(content_of(message))), reply_to=message)

    @app.query("fedsaddle_who")  # type: ignore[untyped-decorator]
    def who(message: Message, context: Context) -> Message:
        return Message(to_record(name(context).encode()), reply_to=message)

    return app


def find_nodes(grid: Any, names: Sequence[str], timeout: float) -> dict[str, int]:
    """Map site names to nodes: each node reports its own name, and a name that two nodes report is ignored."""
    asks = [Message(to_record(b""), dst_node_id=node, message_type=WHO) for node in grid.get_node_ids()]
    found: dict[str, list[int]] = {}
    for reply in grid.send_and_receive(asks, timeout=timeout) if asks else []:
        answer = arrival(0, reply)
        if answer.content is not None:
            found.setdefault(answer.content.decode(errors="replace"), []).append(reply.metadata.src_node_id)
    return {name: nodes[0] for name, nodes in found.items() if name in names and len(nodes) == 1}


log = logging.getLogger("fedsaddle.server")


@cache
def _service(kit: Path) -> SiteService:
    return SiteService.from_kit(kit, kit.name)


def _kit(context: Context) -> Path:
    return Path(str(context.node_config["kit"]))


client = client_app(lambda context: _service(_kit(context)).answer, lambda context: _kit(context).name)
server = ServerApp()


@server.main()  # type: ignore[untyped-decorator]
def main(grid: Any, context: Context) -> None:
    """Find the sites and run; continue from the newest checkpoint in the folder, if there is one."""
    settings = context.run_config
    folder = Path(str(settings["project"]))
    project = read_project(folder)
    config = read_config(folder / project.deployment.config)
    nodes = _nodes(grid, project.names, project.deployment.patience, project.deployment.timeout)
    run = safe_name(str(settings["run"]))
    deployed = DeployedRun(config, run, project.names, Path(str(settings["out"])), project.patience)
    deployed.go(FlowerTransport(grid, [nodes[name] for name in project.names]))


def _nodes(grid: Any, names: tuple[str, ...], patience: float, timeout: float) -> dict[str, int]:
    until = time.monotonic() + patience
    while True:
        found = find_nodes(grid, names, timeout)
        if len(found) == len(names):
            return found
        if time.monotonic() > until:
            missing = ", ".join(sorted(set(names) - set(found)))
            raise TooFewAnswered(f"{len(found)} of {len(names)} sites are connected; start {missing}")
        time.sleep(1.0)

"""What the benchmark of deployments runs inside Flower: sites that send back what they get, a server with a watch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from deployment_work import echo, seconds, vector
from flwr.serverapp import ServerApp

from fedsaddle.deployment.flower.app import FlowerTransport, client_app, find_nodes
from fedsaddle.federation.wire import unpack

client = client_app(lambda context: echo, lambda context: Path(str(context.node_config["kit"])).name)
server = ServerApp()


@server.main()
def main(grid: Any, context: Any) -> None:
    given = context.run_config
    names, sizes = json.loads(given["names"]), json.loads(given["sizes"])
    nodes: dict[str, int] = {}
    while len(nodes) < len(names):
        time.sleep(1.0)
        nodes = find_nodes(grid, names, 120.0)
    transport = FlowerTransport(grid, [nodes[name] for name in names])

    def empty() -> None:
        """The engine's own floor: a message with nothing in it."""
        assert len(find_nodes(grid, names, 600.0)) == len(names)

    def exchange(size: int) -> None:
        arrivals = transport.exchange(range(len(names)), vector(size), len(names), 600.0)
        for arrival in arrivals:
            unpack(arrival.content or b"", {})
        assert len(arrivals) == len(names)

    found: dict[str, list[float]] = {}
    for size in sizes:
        found[f"floor beside {size}"] = seconds(empty, given["times"])
        found[str(size)] = seconds(lambda n=size: exchange(n), given["times"])
    Path(str(given["out"])).write_text(json.dumps(found))

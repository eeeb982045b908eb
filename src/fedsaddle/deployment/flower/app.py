"""The two Flower apps that a run names: they lie in the installed library, so that a run ships no code.

`client` reads `kit = "..."` of the node's own config: a folder with `local/fedsaddle.toml` and `local/fedsaddle.json`,
as `fedsaddle deploy provision` writes them. `server` reads `project`, `run` and `out` of the run's config.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import ServerApp

from fedsaddle.config.schema import read_config
from fedsaddle.deployment.flower.transport import FlowerTransport, client_app, find_nodes
from fedsaddle.deployment.project import read_project
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site import Place, SiteSide
from fedsaddle.deployment.site_memory import safe_name
from fedsaddle.errors import TooFewAnswered

log = logging.getLogger("fedsaddle.server")


@cache
def _side(kit: str, name: str) -> SiteSide:
    local = Path(kit) / "local"
    settings = json.loads((local / "fedsaddle.json").read_text())
    test = settings.get("test_data")
    place = Place(name, Path(settings["data"]), Path(kit) / "fedsaddle", None if test is None else Path(test))
    return SiteSide(read_config(local / "fedsaddle.toml"), place)


def _answering(context: Context) -> Callable[[bytes], bytes]:
    return _side(str(context.node_config["kit"]), _name(context)).answer


def _name(context: Context) -> str:
    return Path(str(context.node_config["kit"])).name


client = client_app(_answering, _name)
server = ServerApp()


@server.main()  # type: ignore[untyped-decorator]
def main(grid: Any, context: Context) -> None:
    """Find the sites, then run as on any engine; goes on from the newest checkpoint of that folder."""
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

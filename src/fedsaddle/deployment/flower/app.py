"""The ServerApp and the ClientApp of a Flower run; they are part of the installed library, so a run ships no code.

`client` reads `kit = "..."` from the node's config: a folder with `local/fedsaddle.toml` and `local/fedsaddle.json`, as
`fedsaddle deploy flower` writes it. `server` reads `project`, `run` and `out` from the run's config.
"""

from __future__ import annotations

import logging
import time
from functools import cache
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import ServerApp

from fedsaddle.config.schema import read_config
from fedsaddle.deployment.flower.transport import FlowerTransport, client_app, find_nodes
from fedsaddle.deployment.project import read_project
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site import SiteService
from fedsaddle.deployment.site_memory import safe_name
from fedsaddle.errors import TooFewAnswered

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

"""Runs as NVFlare jobs: two JSON files each, and no code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedsaddle.atomic import write_json

APP = "fedsaddle.deployment.nvflare.app"
STATUS = "fedsaddle.status"  # what a running job is asked
FOLDER = "fedsaddle"  # of runs, in a workspace; and of the results, in a job


class Lost(Exception):
    """The server cannot be reached any more."""


class Gone(Exception):
    """A job that does not answer."""


def write_job(path: Path, run: str, config: str, minimum: int, poll: float) -> Path:
    """The job of a run; `config` is its config as JSON, `poll` the seconds between a site's questions for work."""
    app = path / "app" / "config"
    app.mkdir(parents=True, exist_ok=True)
    meta = {"name": run, "resource_spec": {}, "min_clients": minimum, "deploy_map": {"app": ["@ALL"]}}
    write_json(path / "meta.json", meta)
    flow = {"id": "fedsaddle", "path": f"{APP}.ServerApp", "args": {"run": run, "config": config}}
    server: dict[str, Any] = {"format_version": 2, "server": {"task_request_interval": poll}}
    write_json(app / "config_fed_server.json", {**server, "workflows": [flow], "components": []})
    executor = {"tasks": ["fedsaddle"], "executor": {"path": f"{APP}.SiteApp", "args": {}}}
    client = {"format_version": 2, "executors": [executor], "components": []}
    write_json(app / "config_fed_client.json", client)
    return path

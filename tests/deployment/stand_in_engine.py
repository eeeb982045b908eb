"""An engine in place of NVFlare: kits without certificates, and a session that runs a submitted job in this process."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import OPEN

from fedsaddle.config.schema import validate_config
from fedsaddle.deployment.courier import InProcess
from fedsaddle.deployment.project import Project, read_project
from fedsaddle.deployment.server import DeployedRun
from fedsaddle.deployment.site import SiteService
from fedsaddle.errors import FedSaddleError

RESOURCES = {
    "format_version": 2,
    "components": [
        {"id": "resource_manager"},
        {"id": "log_receiver"},
        {"id": "job_manager", "args": {"uri_root": "/"}},
    ],
    "snapshot_persistor": {"args": {"storage": {"args": {"root_dir": "/"}}}},
}


def made(project: Project, folder: Path) -> Path:
    """What NVFlare's provisioning leaves, without keys."""
    new = folder / "made"
    for name in (project.deployment.server, *project.names, project.admin):
        for part in ("local", "startup"):
            (new / name / part).mkdir(parents=True, exist_ok=True)
        (new / name / "local" / "resources.json.default").write_text(json.dumps(RESOURCES))
        if name in project.names:
            (new / name / "startup" / "fed_client.json").write_text(json.dumps({"client": {"fqsn": name}}))
        elif name == project.deployment.server:
            d = project.deployment
            about = {"name": d.name, "service": {"target": f"{d.server}:{d.port}"}, "admin_port": d.admin_port}
            (new / name / "startup" / "fed_server.json").write_text(json.dumps({"servers": [about]}))
    return new


class Session:
    """Runs a job when it is submitted, from the project's own files."""

    out = Path()
    looks: Iterator[str] = iter(())

    def __init__(self, user: str, kit: Path, patience: float) -> None:
        self.folder = kit.parent.parent

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, job: Path) -> str:
        told = json.loads((job / "app" / "config" / "config_fed_server.json").read_text())["workflows"][0]["args"]
        project, kits = read_project(self.folder), self.folder / "kits"
        sites = {}
        for i, name in enumerate(project.names):
            sites[i] = SiteService.from_kit(kits / name, name)
            sites[i].policy = OPEN.model_copy(update={"most_rounds": 100})
        config = validate_config(json.loads(told["config"]))
        self.out = kits / project.deployment.server / "fedsaddle" / told["run"]
        deployed = DeployedRun(config, told["run"], project.names, self.out, project.patience)
        outcome: dict[str, Any] = {"code": 0, "message": ""}
        try:
            deployed.go(InProcess({i: site.answer for i, site in sites.items()}))
        except FedSaddleError as reason:
            outcome = {"code": reason.exit_code, "message": str(reason)}
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "outcome.json").write_text(json.dumps(outcome))
        self.looks = iter(["RUNNING"])
        return "1"

    def find(self, run: str) -> str | None:
        """A job that another session submitted."""
        type(self).out = self.folder / "kits" / read_project(self.folder).deployment.server / "fedsaddle" / run
        return "1" if self.out.exists() else None

    def run_names(self) -> list[str]:
        folder = self.folder / "kits" / read_project(self.folder).deployment.server / "fedsaddle"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def status(self, job: str) -> str:
        return next(self.looks, "FINISHED:COMPLETED")

    def sites(self) -> dict[str, float]:
        return dict.fromkeys(read_project(self.folder).names, 0.0)

    def query(self, job: str, topic: str, data: dict[str, Any]) -> dict[str, Any]:
        told = {"config": json.loads((self.out / "config.json").read_text())} if data.get("config") else {}
        path = self.out / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return {"records": [json.loads(line) for line in lines[data["seen"] :]], **told}

    def results(self, job: str, folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "fedsaddle").symlink_to(self.out)
        return folder


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands find this engine where they look for NVFlare."""
    module = types.ModuleType("fedsaddle.deployment.nvflare.session")
    module.NVFlareSession = Session  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fedsaddle.deployment.nvflare.session", module)
    monkeypatch.setattr("fedsaddle.deployment.project.find_spec", lambda name: object())
    monkeypatch.setattr("fedsaddle.deployment.nvflare.provision._run_provisioning", made)

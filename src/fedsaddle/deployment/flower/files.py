"""What a run over Flower needs on disk: an app without code, and a folder for each site."""

from __future__ import annotations

import json
from pathlib import Path

from fedsaddle.atomic import write_atomically
from fedsaddle.deployment.project import Project, write_site_kit

APP = """\
[project]
name = "fedsaddle-run"
version = "1.0.0"
description = "Names apps of the installed library; holds no code."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedsaddle"

[tool.flwr.app.components]
serverapp = "fedsaddle.deployment.flower.app:server"
clientapp = "fedsaddle.deployment.flower.app:client"

[tool.flwr.app.config]
project = {project}
run = "run-1"                    # another name is another run; the same goes on from its checkpoint
out = {out}
"""


def write_flower(project: Project, folder: Path) -> Path:
    """The app's folder; the sites' folders lie beside it."""
    flower = folder / "flower"
    for name in project.names:
        write_site_kit(project, name, folder, flower / name)
    app = flower / "app"
    app.mkdir(exist_ok=True)
    here = folder.resolve()
    text = APP.format(project=json.dumps(str(here)), out=json.dumps(str(here / "runs" / "run-1")))
    write_atomically(app / "pyproject.toml", text.encode())
    return app

"""The files of a Flower run: an app without code, and a folder for each site."""

from __future__ import annotations

from pathlib import Path

from fedsaddle.atomic import write_atomically
from fedsaddle.config.schema import read_config
from fedsaddle.config.toml_files import toml_string
from fedsaddle.deployment.private_files import only_for_owner
from fedsaddle.deployment.project import Project, write_site_kit
from fedsaddle.deployment.site_keys import write_site_keys

APP = """\
[project]
name = "fedsaddle-run"
version = "1.0.0"
description = "Names the apps of the installed library; contains no code."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "fedsaddle"

[tool.flwr.app.components]
serverapp = "fedsaddle.deployment.flower.app:server"
clientapp = "fedsaddle.deployment.flower.app:client"

[tool.flwr.app.config]
project = {project}
run = "run-1"                    # a new name starts a new run; the same name resumes
out = {out}
"""


def write_flower(project: Project, folder: Path) -> Path:
    """Write the app and the sites' folders; return the app's folder."""
    flower = folder / "flower"
    for name in project.names:
        write_site_kit(project, name, folder, flower / name)
    if read_config(folder / project.deployment.config).privacy.secure_aggregation:
        with only_for_owner():
            write_site_keys({name: flower / name for name in project.names}, project.names)
    app = flower / "app"
    app.mkdir(exist_ok=True)
    here = folder.resolve()
    text = APP.format(project=toml_string(str(here)), out=toml_string(str(here / "runs" / "run-1")))
    write_atomically(app / "pyproject.toml", text.encode())
    return app

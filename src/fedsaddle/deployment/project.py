"""A deployment as a TOML file: the server, the sites and where each has its rows."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsaddle.atomic import write_json
from fedsaddle.config.validate import to_bad_input
from fedsaddle.deployment.courier import Patience
from fedsaddle.errors import BadInput, MissingData

FILE = "deployment.toml"
KIT_CONFIG = "local/fedsaddle.toml"  # of a kit: the run's config,
KIT_SETTINGS = "local/fedsaddle.json"  # where a site has its rows, or what the server must know,
RUNS = "fedsaddle"  # and the folder of its runs
_STRICT = ConfigDict(extra="forbid", strict=True)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")

EXAMPLE = """\
# fedsaddle deploy provision     makes a start-up kit for the server, each site and the one who submits runs

[deployment]
name = "{name}"
config = "fedsaddle.toml"        # the run; the same file simulates it: fedsaddle run fedsaddle.toml
server = "{server}"              # the host name by which sites reach the server
port = {port}                      # sites connect to this port
admin_port = {admin_port}                # runs are submitted at this one
minimum = {minimum}                      # sites that must be up for the run to go on
timeout = 60.0                   # seconds for one exchange
grace = 60.0                     # seconds for the slower ones, once the minimum has answered
patience = 300.0                 # seconds to wait while fewer than the minimum answer
resubmit = 5                     # times that a run which ended early is submitted again

# One section for each site. `data` is a path at that site: CSV, Parquet or .npz, as under [data] of the config.
{sites}"""


class Site(BaseModel):
    """One site."""

    model_config = _STRICT
    data: str
    test_data: str | None = None


class Deployment(BaseModel):
    """The server, and how long to wait."""

    model_config = _STRICT
    name: str
    config: str = "fedsaddle.toml"
    server: str = "localhost"
    port: int = Field(8002, ge=1, le=65535)
    admin_port: int = Field(8003, ge=1, le=65535)
    minimum: int = Field(1, ge=1)
    timeout: float = Field(60.0, gt=0)
    grace: float = Field(60.0, ge=0)
    patience: float = Field(300.0, ge=0)
    resubmit: int = Field(5, ge=0)
    poll: float = Field(0.1, gt=0)
    most_bytes: int = Field(1 << 30, ge=1)
    certificate_days: int = Field(360, ge=1)


class Project(BaseModel):
    """The whole file, and the folder it lies in."""

    model_config = _STRICT
    deployment: Deployment
    sites: dict[str, Site]

    @property
    def names(self) -> tuple[str, ...]:
        """Site names, in the order of the file: that of client i is `names[i]`."""
        return tuple(self.sites)

    @property
    def patience(self) -> Patience:
        """How long the server waits."""
        d = self.deployment
        return Patience(timeout=d.timeout, minimum=d.minimum, patience=d.patience, most_bytes=d.most_bytes)

    @property
    def admin(self) -> str:
        """Who submits runs."""
        return f"lead@{self.deployment.name}.local"


def write_site_kit(project: Project, name: str, folder: Path, kit: Path) -> None:
    """Put into a site's kit where it has its rows, and the run's config; `folder` is the project's."""
    site = project.sites[name]
    (kit / KIT_SETTINGS).parent.mkdir(parents=True, exist_ok=True)
    write_json(kit / KIT_SETTINGS, {"data": _path(folder, site.data), "test_data": _path(folder, site.test_data)})
    shutil.copyfile(folder / project.deployment.config, kit / KIT_CONFIG)


def _path(folder: Path, given: str | None) -> str | None:
    """An absolute path as it stands; a relative one from the project's folder, where that is on this machine."""
    if given is None or Path(given).is_absolute():
        return given
    return str((folder / given).resolve())


def read_project(folder: Path) -> Project:
    """The deployment of a folder, or one plain complaint."""
    path = folder / FILE
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingData(f"{path}: there is no such file; `fedsaddle deploy init` writes one") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInput("deployment", str(path), f"is not valid TOML: {error}") from None
    try:
        project = Project(**content)
    except ValidationError as error:
        raise to_bad_input("", error.errors()[0], Deployment.model_fields) from None
    for key, name in (("deployment.name", project.deployment.name), *(("sites", name) for name in project.names)):
        if not _NAME.fullmatch(name):
            raise BadInput(key, name, "use small letters, digits and '-'")
    if len(project.sites) < 2:
        raise BadInput("sites", list(project.names), "a federation has two sites or more")
    if project.deployment.minimum > len(project.sites):
        raise BadInput("deployment.minimum", project.deployment.minimum, f"there are {len(project.sites)} sites")
    if project.deployment.server in project.sites:
        raise BadInput("deployment.server", project.deployment.server, "is the name of a site; name one of them anew")
    return project

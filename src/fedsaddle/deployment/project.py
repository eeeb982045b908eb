"""The schema of deployment.toml: the server, the sites and the paths of their data."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsaddle.atomic import write_json
from fedsaddle.config.toml_files import read_toml
from fedsaddle.config.validate import to_bad_input
from fedsaddle.deployment.courier import Patience
from fedsaddle.deployment.site_policy import write_default_policy
from fedsaddle.errors import BadInput, MissingData

FILE = "deployment.toml"
KIT_CONFIG = "local/fedsaddle.toml"  # in a kit: the config of the run,
KIT_SETTINGS = "local/fedsaddle.json"  # the data paths of a site or the settings of the server,
RUNS = "fedsaddle"  # and the folder of the runs
_STRICT = ConfigDict(extra="forbid", strict=True)
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._:-]{0,251}[A-Za-z0-9_])?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")

EXAMPLE = """\
# fedsaddle deploy provision     makes a start-up kit for the server, each site and the user who submits runs

[deployment]
name = "{name}"
config = "fedsaddle.toml"        # the run; the same file simulates it: fedsaddle run fedsaddle.toml
server = {server}              # the host name by which sites reach the server
port = {port}                      # sites connect to this port
admin_port = {admin_port}                # users submit runs at this port
minimum = {minimum}                      # sites that must be up for the run to continue
timeout = 60.0                   # seconds for one exchange
grace = 60.0                     # more seconds for slow sites, once the minimum has answered
patience = 300.0                 # seconds to wait while fewer than the minimum answer
resubmit = 5                     # how often to resubmit a run that ended early

# One section for each site. `data` is a path at that site: CSV, Parquet or .npz, as under [data] of the config.
{sites}"""


class Site(BaseModel):
    """[sites.NAME]: the data of one site."""

    model_config = _STRICT
    data: str
    test_data: str | None = None


class Deployment(BaseModel):
    """[deployment]: the server, and how long it waits."""

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
    """A deployment.toml file."""

    model_config = _STRICT
    deployment: Deployment
    sites: dict[str, Site]

    @property
    def names(self) -> tuple[str, ...]:
        """Site names in the order of the file; client i is `names[i]`."""
        return tuple(self.sites)

    @property
    def files(self) -> list[Path]:
        """The files of all sites; they need not be on this machine."""
        return [Path(path) for site in self.sites.values() for path in (site.data, site.test_data) if path]

    @property
    def patience(self) -> Patience:
        """How long the server waits."""
        d = self.deployment
        return Patience(timeout=d.timeout, minimum=d.minimum, patience=d.patience, most_bytes=d.most_bytes)

    @property
    def admin(self) -> str:
        """The user who submits runs."""
        return f"lead@{self.deployment.name}.local"


def write_site_kit(project: Project, name: str, folder: Path, kit: Path) -> None:
    """Write the site's data paths and the config into its kit; `folder` is the project's folder."""
    site = project.sites[name]
    (kit / KIT_SETTINGS).parent.mkdir(parents=True, exist_ok=True)
    write_json(kit / KIT_SETTINGS, {"data": _path(folder, site.data), "test_data": _path(folder, site.test_data)})
    shutil.copyfile(folder / project.deployment.config, kit / KIT_CONFIG)
    write_default_policy(kit)


def _path(folder: Path, given: str | None) -> str | None:
    """An absolute path unchanged; a relative path resolved from the project's folder."""
    if given is None or Path(given).is_absolute():
        return given
    return str((folder / given).resolve())


def check_server(key: str, name: str) -> None:
    """Refuse what can be no host name or address."""
    if not _HOST.fullmatch(name):
        raise BadInput(key, name, "give a host name or an address, such as fl.hospital.org")


def read_project(folder: Path) -> Project:
    """Read the deployment.toml of a folder; raise `BadInput` for the first error."""
    path = folder / FILE
    try:
        content = read_toml("deployment", path)
    except FileNotFoundError:
        raise MissingData(f"{path}: the file does not exist; `fedsaddle deploy init` writes one") from None
    try:
        project = Project(**content)
    except ValidationError as error:
        raise to_bad_input("", error.errors()[0], Deployment.model_fields) from None
    for key, name in (("deployment.name", project.deployment.name), *(("sites", name) for name in project.names)):
        if not _NAME.fullmatch(name):
            raise BadInput(key, name, "use lower-case letters, digits and '-'")
    check_server("deployment.server", project.deployment.server)
    if len(project.sites) < 2:
        raise BadInput("sites", list(project.names), "add sites; a federation needs at least two")
    if project.deployment.minimum > len(project.sites):
        raise BadInput(
            "deployment.minimum",
            project.deployment.minimum,
            f"must be at most {len(project.sites)}, the number of sites",
        )
    if project.deployment.server in project.sites:
        raise BadInput("deployment.server", project.deployment.server, "is also the name of a site; rename one of them")
    return project

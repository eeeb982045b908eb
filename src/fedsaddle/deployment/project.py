"""deployment.toml with its server and sites, checks before a deployment, private files, and certificates' ends."""

from __future__ import annotations

import os
import re
import shutil
import stat
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedsaddle.config.arguments import to_bad_input
from fedsaddle.config.build import GROUP_FAIR, check_keys
from fedsaddle.config.schema import Config, NoiseSection
from fedsaddle.config.toml_files import read_toml
from fedsaddle.deployment.courier import Patience
from fedsaddle.deployment.site_policy import write_default_policy
from fedsaddle.deployment.withdrawals import read_withdrawals
from fedsaddle.errors import BadInput, MissingData, install
from fedsaddle.files import write_json

OTHERS = 0o077  # the rights of the group and of everybody else
_one_at_a_time = threading.RLock()  # the mask is that of the whole process


@contextmanager
def only_for_owner() -> Iterator[None]:
    """Make all files and folders that are created inside for the owner alone: 0600 and 0700."""
    with _one_at_a_time:
        before = os.umask(OTHERS)
        try:
            yield
        finally:
            os.umask(before)


def take_from_others(folder: Path) -> list[Path]:
    """Take the rights of others from a folder and all in it; return the files and folders where they had some.

    Symbolic links are not followed. Windows has other rights, which are not looked at.
    """
    if os.name != "posix" or not folder.exists():
        return []
    found = []
    for path in (folder, *sorted(folder.rglob("*"))):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & OTHERS:
            found.append(path)
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)
    return found


FILE = "deployment.toml"
KIT_CONFIG = "local/fedsaddle.toml"  # in a kit: the config of the run,
KIT_SETTINGS = "local/fedsaddle.json"  # the data paths of a site or the settings of the server,
RUNS = "fedsaddle"  # and the folder of the runs
_STRICT = ConfigDict(extra="forbid", strict=True)
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._:-]{0,251}[A-Za-z0-9_])?")
SITE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,60}[a-z0-9])?")

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


class ProjectSite(BaseModel):
    """[sites.NAME]: the data of one site.

    Args:
        data: path of its table, at the site.
        test_data: path of a table with test rows.
    """

    model_config = _STRICT
    data: str
    test_data: str | None = None


class Deployment(BaseModel):
    """[deployment]: the server, and how long it waits.

    Args:
        name: of the deployment.
        config: file of the run.
        server: host name by which sites reach the server.
        port: that sites connect to.
        admin_port: that users connect to.
        minimum: sites that must be up.
        timeout: seconds for an exchange.
        grace: more seconds for slow sites, once the minimum has answered.
        patience: seconds to wait while fewer answer.
        resubmit: how often a job is submitted again.
        poll: seconds between two looks of a site for work.
        most_bytes: of one reply.
        certificate_days: how long a new root lasts.
    """

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
    """A deployment.toml file.

    Args:
        deployment: the server, and how long it waits.
        sites: the sites by name, without those that have left.
    """

    model_config = _STRICT
    deployment: Deployment
    sites: dict[str, ProjectSite]

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
    """Read the deployment.toml of a folder, without sites that have left; raise `BadInput` for the first error."""
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
        if not SITE_NAME.fullmatch(name):
            raise BadInput(key, name, "use lower-case letters, digits and '-'")
    check_server("deployment.server", project.deployment.server)
    gone = {each.site for each in read_withdrawals(folder)}
    project = project.model_copy(update={"sites": {k: v for k, v in project.sites.items() if k not in gone}})
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


def require_nvflare() -> None:
    """Raise `MissingData` if NVFlare is not installed."""
    if find_spec("nvflare") is None:
        raise MissingData(f"NVFlare is not installed; {install('nvflare')}")


def require_deployable(config: Config) -> None:
    """Raise `BadInput` if a config uses a feature that only simulations have.

    Noise is drawn over all rows at once. For a named data set that happens before the rows are assigned to sites.
    """
    check_keys(config)
    if config.problem.name == GROUP_FAIR:
        remedy = "works in simulations only; real sites can train with class-fair, or DRFA for the worst site"
        raise BadInput("problem.name", GROUP_FAIR, remedy)
    if config.run.measures:
        raise BadInput(
            "run.measures",
            config.run.measures,
            "work in simulations only, because they need all rows in one place; leave them out",
        )
    if config.attack.name != "none":
        remedy = "works in simulations only; leave [attack] out"
        raise BadInput("attack.name", config.attack.name, remedy)
    if config.data.test_clients:
        remedy = "works in simulations only: every site of a deployment trains; leave it out"
        raise BadInput("data.test_clients", config.data.test_clients, remedy)
    if config.data.name == "file" and config.noise != NoiseSection():
        noise = {k: v for k, v in config.noise.model_dump().items() if v}
        raise BadInput(
            "noise", noise, "works in simulations only, because it needs all rows in one place; leave it out"
        )


def require_named_columns(config: Config, files: Iterable[Path]) -> None:
    """Raise `BadInput` if sites with these files would have to read columns that nobody has named."""
    options = config.data.options()
    named = any(options.get(key) for key in ("features", "numeric", "categorical", "categories"))
    if config.data.name == "file" and not named and any(path.suffix.lower() != ".npz" for path in files):
        remedy = (
            'name the columns that sites may read: features = ["age", "sex"] in [data]; '
            "`fedsaddle deploy init --sample TABLE` writes them from a table"
        )
        raise BadInput("data.features", options.get("features"), remedy)


SOON = timedelta(days=30)
NAMES = ("*.crt", "rootCA.pem")


class Ends(NamedTuple):
    """The end of the first certificate that ends.

    Args:
        path: of the certificate.
        at: when it ends.
        begins: when it begins.
    """

    path: Path
    at: datetime
    begins: datetime

    @property
    def day(self) -> str:
        """The day, as 2027-01-31."""
        return self.at.date().isoformat()


def first_to_end(folders: Sequence[Path]) -> Ends | None:
    """The certificate in these folders that ends first; None without any, or without the package `cryptography`."""
    try:
        from cryptography import x509
    except ImportError:
        return None
    found = []
    for path in sorted(path for folder in folders for name in NAMES for path in folder.glob(name)):
        try:
            one = x509.load_pem_x509_certificate(path.read_bytes())
            found.append(Ends(path, one.not_valid_after_utc, one.not_valid_before_utc))
        except (ValueError, OSError):
            raise BadInput("certificate", str(path), "cannot be read; get the kit again") from None
    return min(found, key=lambda one: one.at, default=None)


def check_kit(kit: Path, now: datetime | None = None) -> str | None:
    """A warning if a certificate of the kit ends within 30 days; raise `BadInput` if it has ended, or not begun."""
    found, now = first_to_end([kit / "startup"]), now or datetime.now(UTC)
    if found is None:
        return None
    if found.begins > now:  # connections would be refused again and again, without a word why
        begins = f"the certificate {found.path.name} begins only at {found.begins:%Y-%m-%d %H:%M} UTC"
        raise BadInput("clock", f"{now:%Y-%m-%d %H:%M} UTC", f"{begins}; set the clock of this machine")
    if found.at <= now:
        remedy = "ask who made the kit for a new one: fedsaddle deploy renew makes them"
        raise BadInput("certificate", str(found.path), f"ended on {found.day}; {remedy}")
    if found.at <= now + SOON:
        days = (found.at - now).days
        remedy = "fedsaddle deploy renew makes new ones"
        return f"the certificate {found.path.name} ends on {found.day}, in {days} days; {remedy}"
    return None

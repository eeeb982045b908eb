"""`fedsaddle deploy ...`: set up and start a deployment."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from fedsaddle.atomic import write_atomically
from fedsaddle.commands.init import EXAMPLE as CONFIG
from fedsaddle.commands.output import output
from fedsaddle.commands.sample_columns import sample_columns
from fedsaddle.config.named_code import module_digests
from fedsaddle.config.schema import read_config
from fedsaddle.config.toml_files import toml_string
from fedsaddle.data.files.identifiers import by_name
from fedsaddle.deployment.certificates import check_kit, first_to_end
from fedsaddle.deployment.preflight import require_deployable, require_named_columns, require_nvflare
from fedsaddle.deployment.private_files import only_for_owner, take_from_others
from fedsaddle.deployment.project import EXAMPLE, FILE, Project, check_server, read_project
from fedsaddle.deployment.site_policy import FILE as POLICY
from fedsaddle.deployment.site_policy import SitePolicy, read_policy
from fedsaddle.errors import BadInput, MissingData, NotGiven, install
from fedsaddle.metrics.selection import Selection
from fedsaddle.shown import visible
from fedsaddle.writable import make_folder, require_folder

SITE_DATA = """[data]
name = "file"                    # each site reads its own file: `data` under [sites.NAME] of deployment.toml
{roles}test_share = 0.2                 # held out at each site without a test file
minimum_cell = 5                 # no site tells a smaller count; rarer values are "other" there
{columns}

[split]
name = "natural"                 # for a simulation of the same sites; not used when deployed
{split}"""


NO_COLUMNS = '# features = ["age", "sex"]      # the only columns that sites read: name them, or use --sample TABLE'


@dataclass(frozen=True)
class Sample:
    """A table like those of the sites, and the columns of it that are no features."""

    table: Path
    label: str | None = None
    site: str | None = None
    patient: str | None = None

    def section(self) -> str:
        """The [data] section with the columns that sites may read."""
        if self.label is None:
            raise NotGiven("--label", "name the column to predict, so that it is no feature")
        found = sample_columns(self.table, self.label, self.site, self.patient)
        return data_section(self.label, self.patient, self.site, found.to_toml())


def data_section(label: str, patient: str | None, site: str | None, columns: str) -> str:
    """The sections [data] and [split]."""
    given = {"target": (label, "the column to predict"), "client": (site, "the column of sites, in a simulation")}
    given["together"] = (patient, "rows of one stay in one part")
    roles = "".join(f"{f'{k} = {toml_string(v)}':<32} # {why}\n" for k, (v, why) in given.items() if v)
    split = f"column = {toml_string(site)}\n" if site else ""
    return SITE_DATA.format(roles=roles, columns=columns, split=split)


def init(folder: Path, sites: int, server: str, sample: Sample | None = None) -> None:
    """Write deployment.toml and, if there is none, fedsaddle.toml, with the columns of a sample."""
    if sites < 2:
        raise BadInput("--sites", sites, "a federation needs at least two sites")
    check_server("--server", server)
    data = data_section("label", None, None, NO_COLUMNS) if sample is None else sample.section()
    require_folder("folder", folder)
    if os.path.lexists(folder / FILE):
        raise BadInput("folder", str(folder), f"already has a {FILE}; choose another folder")
    make_folder("folder", folder)
    listed = "".join(f'[sites.site-{i}]\ndata = "/path/at/site-{i}/rows.csv"\n\n' for i in range(1, sites + 1))
    text = EXAMPLE.format(
        name=_slug(folder.resolve().name),
        server=toml_string(server),
        port=8002,
        admin_port=8003,
        minimum=max(1, sites - 1),
        sites=listed,
    )
    write_atomically(folder / FILE, text.encode())
    config = folder / "fedsaddle.toml"
    if not os.path.lexists(config):
        head, _, rest = CONFIG.partition("[data]")
        run = head + data + "\n[model]" + rest.partition("[model]")[2]
        run = run.replace("sampled_clients = 10", f"sampled_clients = {sites:<2}")
        write_atomically(config, run.encode())
    elif sample is not None:
        output.line(f"{visible(config)} is there and stays as it is; the columns of the sample are:\n{data}")
    where = visible(folder)
    output.line(f"written to {where}; fill in the sites and their paths, then run: fedsaddle deploy provision {where}")
    output.emit_lines("deploy init", folder)


def provision(folder: Path) -> None:
    """Make the start-up kits that do not exist yet."""
    require_nvflare()
    from fedsaddle.deployment.nvflare.provision import KITS
    from fedsaddle.deployment.nvflare.provision import provision as make

    project = read_project(folder)
    check_run(project, folder)
    require_folder("folder", folder / KITS)
    new = make(project, folder)
    for kit in new:
        output.line(f"made {visible(kit)}")
    if not new:
        output.line(f"all kits already exist in {visible(folder / KITS)}; updated their settings")
    for line in what_to_guard(project, folder, new or [folder / KITS / project.admin]):
        output.line(line)
    output.emit_lines("deploy provision", folder)


def check_run(project: Project, folder: Path) -> None:
    """Refuse a config that sites would refuse; warn of columns that they will leave out."""
    config = read_config(folder / project.deployment.config)
    require_deployable(config)
    require_named_columns(config, project.files)
    options = config.data.options() if config.data.name == "file" else {}
    named = {column: key for key in ("categorical", "numeric", "features") for column in options.get(key) or ()}
    for column, key in named.items():
        if reason := by_name(column):
            remedy = f"sites leave it out, unless `columns` of their {POLICY} lists it"
            told = f"data.{key} has {column!r}, and {reason}: {remedy}"
            print(f"warning: {visible(told)}", file=sys.stderr)
    for module, digest in module_digests(config).items():
        told = f"the config names code of {module!r}: each site and the server install it"
        print(f'{told}, and list it in {POLICY} under [modules]: "{module}" = "{digest}"')
    if config.run.select is not None and Selection.parse(config.run.select).statistic is None:
        told = f"run.select = {config.run.select!r}: sites with a minimum_cell above 1 send bounds of it, by which no"
        print(f'warning: {told} round can be chosen; "global loss" is exact', file=sys.stderr)
    if len(project.names) < SitePolicy().minimum_sites:
        told = f"{len(project.names)} sites: each must set minimum_sites in its {POLICY}, or it will refuse"
        print(f"warning: {told}", file=sys.stderr)


def renew(folder: Path) -> None:
    """Make new certificates for all kits."""
    require_nvflare()
    from fedsaddle.deployment.nvflare.provision import renew as make

    project = read_project(folder)
    kits = make(project, folder)
    for kit in kits:
        output.line(f"renewed {visible(kit / 'startup')}")
    for line in what_to_guard(project, folder, kits):
        output.line(line)
    output.line(
        "stop everything, replace `startup` in each kit by the new one, start again, and resume runs with --resume:"
    )
    output.line("certificates of the old root and of the new one do not trust each other")
    output.emit_lines("deploy renew", folder)


def what_to_guard(project: Project, folder: Path, kits: list[Path]) -> list[str]:
    """Lines that say who gets what, what stays secret, and how long it lasts."""
    from fedsaddle.deployment.nvflare.provision import WORK

    whose = {project.deployment.server: "who runs the server", project.admin: "who submits runs"}
    lines = [f"hand {visible(kit)} to {whose.get(kit.name, 'site ' + kit.name)} and to nobody else" for kit in kits]
    if any(kit.name in project.sites for kit in kits):
        lines.append(f"each site decides in {POLICY} of its kit what it allows; nobody else writes to that file")
    lines.append(
        f"guard {visible(folder / WORK)}: whoever reads it can make kits and act as any site; keep it off the server, "
        "on a disk that is encrypted and backed up"
    )
    ends = first_to_end([kit / "startup" for kit in kits])
    if ends is not None:
        lines.append(f"the certificates end on {ends.day}; before that: fedsaddle deploy renew {visible(folder)}")
    return lines


def flower(folder: Path) -> None:
    """Write Flower's app, the sites' folders and the missing keys."""
    from fedsaddle.deployment.flower.files import write_flower
    from fedsaddle.deployment.flower.keys import KEYS, write_keys

    project = read_project(folder)
    check_run(project, folder)
    require_folder("folder", folder)
    d = project.deployment
    with only_for_owner():
        app = write_flower(project, folder)
        keys = app.parent / KEYS
        made = write_keys(keys, d.server, project.names, d.certificate_days)
    take_from_others(keys)
    if not made and not keys.is_dir():
        output.line(f"no certificates made: for Flower's, {install('flower')}; or use your own")
    where = visible(app.parent)
    for name in project.names if made else ():
        output.line(f"hand {where}/{name} and {visible(keys)}/{name}.key to site {name} and to nobody else")
    if made:
        output.line(f"guard {visible(keys)}: server.key is for the server alone; hand ca.crt to everybody")
    ends = first_to_end([keys])
    if ends is not None:
        remedy = f"to renew them, remove ca.crt, server.crt and server.key in {visible(keys)} and run this again"
        output.line(f"the certificate {ends.path.name} ends on {ends.day}; {remedy}")
    output.line(
        f"written to {where}; start SuperLink and SuperNodes, then run: flwr run {visible(app)} NAME-OF-SUPERLINK"
    )
    output.emit_lines("deploy flower", folder)


def start(kit: Path) -> int:
    """Run a server or a site in the foreground."""
    require_nvflare()
    from fedsaddle.deployment.nvflare.processes import serve

    read_policy(kit)  # a bad one is an error now, not when the first run comes
    warning = check_kit(kit)
    if warning is not None:
        print(f"warning: {visible(warning)}", file=sys.stderr)
    return serve(kit)


def kit_of(folder: Path, name: str | None) -> Path:
    """The kit of a site or, without a name, of the server; `folder` is a project or the kit itself."""
    if (folder / "startup").is_dir():
        from fedsaddle.deployment.nvflare.provision import site_of

        owner = site_of(folder)
        if owner != name:
            whose = "the server" if owner is None else f"site {owner!r}"
            raise BadInput("kit", str(folder), f"belongs to {whose}; use the matching kit")
        return folder
    project = read_project(folder)
    if name is not None and name not in project.sites:
        raise BadInput("site", name, f"choose one of {', '.join(project.names)}")
    kit = folder / "kits" / (name or project.deployment.server)
    if not kit.is_dir():
        raise MissingData(f"{kit} does not exist; run: fedsaddle deploy provision {folder}")
    return kit


def _slug(name: str) -> str:
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower()).strip("-")
    return kept[:40] or "trial"

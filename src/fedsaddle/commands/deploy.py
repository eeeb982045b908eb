"""`fedsaddle deploy ...`: set up, start, follow and audit a deployment."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsaddle.commands.deploy_keys import add_commands
from fedsaddle.commands.deploy_try import deploy_try
from fedsaddle.commands.deploy_withdraw import withdraw
from fedsaddle.commands.documents import SCHEMA, AuditDocument
from fedsaddle.commands.init import EXAMPLE as CONFIG
from fedsaddle.commands.options import OUTPUT, usable
from fedsaddle.commands.output import JsonOption, QuietOption, output
from fedsaddle.config.toml_files import toml_string
from fedsaddle.errors import BadInput, MissingData, NotGiven, install
from fedsaddle.files import make_folder, require_folder, write_atomically
from fedsaddle.own_code import OURS, digest_of, is_module, places_of
from fedsaddle.text import shortened, visible

if TYPE_CHECKING:
    from rich.table import Table

    from fedsaddle.data.tables.columns import RawColumn
    from fedsaddle.deployment.audit import AuditEntry
    from fedsaddle.deployment.project import Project

PLACEHOLDER = "/path/at/{site}/rows.csv"
LEAST = 5  # rows of a category, for it to leave a site
SITE_DATA = """[data]
name = "file"                    # each site reads its own file: `data` under [sites.NAME] of deployment.toml
{roles}test_share = 0.2                 # held out at each site without a test file
minimum_cell = 5                 # no site tells a smaller count; rarer values are "other" there
{columns}

[split]
name = "natural"                 # for a simulation of the same sites; not used when deployed
{split}"""
NO_COLUMNS = '# features = ["age", "sex"]      # the only columns that sites read: name them, or use --sample TABLE'


deploy = typer.Typer(
    name="deploy",
    no_args_is_help=True,
    add_completion=False,
    help="Run at real sites: set up, start and try a deployment.",
)
FolderArgument = Annotated[
    Path, typer.Argument(metavar="DIR", help="The project's folder.", show_default="current folder", callback=usable)
]


@deploy.command("init")
def init(
    folder: FolderArgument = Path("."),
    sites: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Number of sites; by default those of the sample, or 3.")
    ] = None,
    server: Annotated[
        str, typer.Option(metavar="HOST", help="Host name of the server, as seen from the sites.")
    ] = "server.example.org",
    sample: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A table like those of the sites, to list its columns.", callback=usable),
    ] = None,
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Label in the sample.")] = None,
    site_column: Annotated[str | None, typer.Option(metavar="COLUMN", help="Site in the sample.")] = None,
    patient: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Patient in the sample, not split between parts.")
    ] = None,
    data: Annotated[
        str,
        typer.Option(metavar="PATH", help="Path of a site's table, there; {site} stands for the site's name."),
    ] = PLACEHOLDER,
    as_json: JsonOption = False,
) -> None:
    """Write deployment.toml with the sites, and what they run.

    With --sample that is study.toml: the study that `fedsaddle run` does on a table, with the columns that sites read.
    Without it, fedsaddle.toml with one run.
    """
    from fedsaddle.deployment.project import EXAMPLE, FILE, check_server

    if sites is not None and sites < 2:
        raise BadInput("--sites", sites, "a federation needs at least two sites")
    check_server("--server", server)
    names = [f"site-{i}" for i in range(1, (sites or 3) + 1)]
    study: str | None = None
    if sample is not None and label is None:
        raise NotGiven("--label", "name the column to predict, so that it is no feature")
    if sample is not None and label is not None:
        from fedsaddle.commands.study_file import study_text

        judged = sample_columns(sample, label, site_column, patient)
        study, names = study_text(
            sample, label, site_column, patient, judged.numeric, tuple(judged.categorical), judged.left_out, sites
        )
    require_folder("folder", folder)
    if os.path.lexists(folder / FILE):
        raise BadInput("folder", str(folder), f"already has a {FILE}; choose another folder")
    make_folder("folder", folder)
    listed = "".join(f"[sites.{name}]\ndata = {toml_string(data.replace('{site}', name))}\n\n" for name in names)
    text = EXAMPLE.format(
        name=_slug(folder.resolve().name),
        server=toml_string(server),
        port=8002,
        admin_port=8003,
        minimum=max(1, len(names) - 1),
        sites=listed,
    )
    if study is not None:
        text = re.sub(r'"fedsaddle\.toml" .*', '"study.toml"            # the study, which all sites agree to', text)
    write_atomically(folder / FILE, text.encode())
    config = folder / ("fedsaddle.toml" if study is None else "study.toml")
    if os.path.lexists(config):
        output.line(f"{visible(config)} is there and stays as it is")
    elif study is not None:
        write_atomically(config, study.encode())
    else:
        head, _, rest = CONFIG.partition("[data]")
        run = head + data_section("label", None, None, NO_COLUMNS) + "\n[model]" + rest.partition("[model]")[2]
        write_atomically(config, run.replace("sampled_clients = 10", f"sampled_clients = {len(names):<2}").encode())
    where = visible(folder)
    output.line(f"written to {where}; fill in the sites and their paths, then run: fedsaddle deploy provision {where}")
    output.emit_lines("deploy init", folder)


@deploy.command("provision")
def provision(folder: FolderArgument = Path("."), as_json: JsonOption = False) -> None:
    """Make the start-up kits that do not exist yet: certificates, allowed classes, permissions."""
    from fedsaddle.deployment.project import read_project, require_nvflare

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


@deploy.command("renew")
def renew(folder: FolderArgument = Path("."), as_json: JsonOption = False) -> None:
    """Make new certificates for all kits, before or after the old ones have expired."""
    from fedsaddle.deployment.project import read_project, require_nvflare

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


@deploy.command("attach")
def attach(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name, as `fedsaddle run` printed it.")],
    folder: FolderArgument = Path("."),
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder for the results; by default runs/RUN.", callback=usable, rich_help_panel=OUTPUT
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Follow a run that somebody else has submitted, and fetch its results."""
    from fedsaddle.commands.run_deployed import attach_to
    from fedsaddle.commands.run_study import attach_to_study
    from fedsaddle.deployment.project import read_project
    from fedsaddle.studies.study_plan import is_study

    path = folder / read_project(folder).deployment.config
    try:
        raise typer.Exit(attach_to_study(path, run, out) if is_study(path) else attach_to(run, folder, out))
    except KeyboardInterrupt:
        raise typer.Exit(output.interrupted("detached; the run goes on")) from None


@deploy.command("start-server")
def start_server(folder: FolderArgument = Path(".")) -> None:
    """Run the server in the foreground."""
    raise typer.Exit(start(kit_of(folder, None)))


@deploy.command("start-site")
def start_site(
    name: Annotated[str, typer.Argument(metavar="SITE", help="The site's name in deployment.toml.")],
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The project's folder, or the site's kit.",
            show_default="current folder",
            callback=usable,
        ),
    ] = Path("."),
) -> None:
    """Run a site in the foreground."""
    raise typer.Exit(start(kit_of(folder, name)))


@deploy.command("audit")
def audit(
    kit: Annotated[Path, typer.Argument(metavar="DIR", help="The site's kit.", callback=usable)],
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only this run.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what left a site: the fields, shapes and bytes of every message, and who sees them."""
    from fedsaddle.deployment.audit import AUDIT_FILE, read_audit
    from fedsaddle.deployment.ledger import budget_lines, site_budgets
    from fedsaddle.deployment.project import RUNS

    folder = kit / RUNS if (kit / RUNS / AUDIT_FILE).exists() else kit
    found = read_audit(folder, run)
    if run is not None and not found:
        known = ", ".join(dict.fromkeys(entry.run for entry in read_audit(folder) if entry.run))
        raise MissingData(f"run {run!r}: nothing of it left this site; the log has: {known or 'no run'}")
    spent = site_budgets(folder, run)
    document: AuditDocument = {
        "schema": SCHEMA,
        "command": "deploy audit",
        "kit": str(kit),
        "entries": [asdict(entry) for entry in found],
        "privacy": [dict(each) for each in spent],
    }
    output.emit(document)
    screen = output.screen()
    for name in dict.fromkeys(entry.run for entry in found):
        own = [entry for entry in found if entry.run == name]
        screen.print(_audit_table(name, own))
        screen.print(_audit_totals(own), highlight=False, markup=False, soft_wrap=True)
    for line in budget_lines(spent):
        screen.print(line, highlight=False, markup=False, soft_wrap=True)


@deploy.command("digest")
def digest(
    modules: Annotated[
        list[str], typer.Argument(metavar="MODULE", help="Installed modules or packages, such as my_package.")
    ],
) -> None:
    """Print the lines of site-policy.toml that allow a run to name code of these modules."""
    lines = []
    for given in modules:
        module = given.partition(":")[0]
        if not is_module(module):
            raise BadInput("module", given, "write the name of a module or package, such as my_package")
        if module.partition(".")[0] == OURS:
            raise BadInput("module", given, "is the library itself, which needs no line in a policy")
        lines.append(f'"{module}" = "{digest_of(module)}"')
        for place in places_of(module):
            print(f"{module}: {visible(place)}", file=sys.stderr)
    print("\n".join(["[modules]", *dict.fromkeys(lines)]))


@deploy.command("flower")
def flower(folder: FolderArgument = Path("."), as_json: JsonOption = False) -> None:
    """Write the files for Flower: an app, and a folder and keys for each site."""
    from fedsaddle.deployment.flower.kits import KEYS, write_flower, write_keys
    from fedsaddle.deployment.project import first_to_end, only_for_owner, read_project, take_from_others

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


deploy.command("try")(deploy_try)
add_commands(deploy)
deploy.command("withdraw")(withdraw)


@dataclass(frozen=True)
class SampleColumns:
    """The columns of a sample that may be read, by kind, and why the others may not."""

    numeric: tuple[str, ...]
    categorical: dict[str, int]  # column -> number of categories
    left_out: dict[str, str]  # column -> why


def sample_columns(path: Path, label: str, site: str | None, patient: str | None) -> SampleColumns:
    """Judge the columns of a sample: names, identifiers, free text, dates and rare values are left out."""
    from fedsaddle.data.tables.columns import shown
    from fedsaddle.data.tables.judge import by_content, by_name
    from fedsaddle.data.tables.read import read_table

    roles = {"label": label} | ({"site": site} if site else {}) | ({"patient": patient} if patient else {})
    table = read_table(path, roles=roles)
    out = {name: _why(name, table.notes) for name in table.left_out}
    dates = [c.name for c in table.features if any(f"column {shown(c.name)}: dates" in n for n in table.notes)]
    numeric: list[str] = []
    categorical: dict[str, int] = {}
    for column in table.features:
        reason = by_name(column.name) or ("it holds dates" if column.name in dates else "")
        reason = reason or _rare(column) or by_content(column)
        if reason:
            out[column.name] = reason
        elif column.numbers is not None:
            numeric.append(column.name)
        else:
            categorical[column.name] = len(column.categories)
    if not (numeric or categorical):
        raise BadInput(
            "--sample", str(path), "has no column that may be read: all look like names, identifiers or text"
        )
    return SampleColumns(tuple(numeric), categorical, out)


def _why(name: str, notes: tuple[str, ...]) -> str:
    from fedsaddle.data.tables.columns import shown

    start = f"column {shown(name)} is left out: "
    said = next((note.removeprefix(start) for note in notes if note.startswith(start)), "nothing to learn from it")
    said = re.sub(r" in all rows.*| is .* in all", " in all rows", said.partition(";")[0])
    return "it has one value in all rows" if "in all rows" in said else visible(said)


def _rare(column: RawColumn) -> str:
    import numpy as np

    if column.codes is None:
        return ""
    counts = np.bincount(column.codes[column.codes >= 0], minlength=1)
    return "" if counts.max() >= LEAST else f"no value of it occurs {LEAST} times"


def data_section(label: str, patient: str | None, site: str | None, columns: str) -> str:
    """The sections [data] and [split]."""
    given = {"target": (label, "the column to predict"), "client": (site, "the column of sites, in a simulation")}
    given["together"] = (patient, "rows of one stay in one part")
    roles = "".join(f"{f'{k} = {toml_string(v)}':<32} # {why}\n" for k, (v, why) in given.items() if v)
    split = f"column = {toml_string(site)}\n" if site else ""
    return SITE_DATA.format(roles=roles, columns=columns, split=split)


def check_run(project: Project, folder: Path) -> None:
    """Refuse a config that sites would refuse; warn of columns that they will leave out."""
    from fedsaddle.data.tables.judge import by_name
    from fedsaddle.deployment.project import require_deployable, require_named_columns
    from fedsaddle.deployment.site_policy import FILE as POLICY
    from fedsaddle.deployment.site_policy import SitePolicy, module_digests
    from fedsaddle.metrics.selection import Selection
    from fedsaddle.studies.study_plan import base_config

    config = base_config(folder / project.deployment.config)
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
    pooled = config.run.select is not None and Selection.parse(config.run.select).statistic is None
    if pooled and not config.privacy.secure_aggregation:
        told = f"run.select = {config.run.select!r}: sites with a minimum_cell above 1 send bounds of it, by which no"
        remedy = 'round can be chosen; "global loss" is exact, and so is this with privacy.secure_aggregation = true'
        print(f"warning: {told} {remedy}", file=sys.stderr)
    if len(project.names) < SitePolicy().minimum_sites:
        told = f"{len(project.names)} sites: each must set minimum_sites in its {POLICY}, or it will refuse"
        print(f"warning: {told}", file=sys.stderr)


def what_to_guard(project: Project, folder: Path, kits: list[Path]) -> list[str]:
    """Lines that say who gets what, what stays secret, and how long it lasts."""
    from fedsaddle.deployment.nvflare.provision import WORK
    from fedsaddle.deployment.project import first_to_end
    from fedsaddle.deployment.site_policy import FILE as POLICY

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


def start(kit: Path) -> int:
    """Run a server or a site in the foreground."""
    from fedsaddle.deployment.project import check_kit, require_nvflare
    from fedsaddle.deployment.site_policy import read_policy

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
    from fedsaddle.deployment.project import read_project

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


def _audit_table(run: str, entries: Sequence[AuditEntry]) -> Table:
    """A line for each field of each kind of message."""
    from rich.table import Table

    table = Table(title=f"run {visible(run) or '(none)'}", title_justify="left")
    for heading in ("request", "field", "shape", "type", "visible to the server", "when", "times", "bytes"):
        table.add_column(heading, justify="right" if heading in ("times", "bytes") else "left")
    groups: dict[tuple[str, ...], list[AuditEntry]] = {}
    for entry in entries:
        told = f"{entry.field}: {entry.text}" if entry.text else entry.field
        groups.setdefault((entry.request, told, entry.dtype, entry.visibility), []).append(entry)
    for (request, field, dtype, seen), own in groups.items():
        shapes = dict.fromkeys("x".join(map(str, entry.shape)) or "1" for entry in own)
        shape = next(iter(shapes)) if len(shapes) == 1 else f"{len(shapes)} shapes"
        rounds = [entry.round for entry in own if entry.round is not None]
        when = f"round {min(rounds) + 1} to {max(rounds) + 1}" if rounds else own[0].time[:19].replace("T", " ")
        size = f"{sum(entry.bytes for entry in own):,}"
        table.add_row(visible(request), shortened(visible(field), 80), shape, dtype, seen, when, f"{len(own):,}", size)
    return table


def _audit_totals(entries: Sequence[AuditEntry]) -> str:
    messages = len({(e.time, e.request, e.round, e.exchange) for e in entries})
    measured = sum(e.request == "measure" and e.field == "rows" for e in entries)
    size = sum(entry.bytes for entry in entries)
    first, last = (entries[k].time[:19].replace("T", " ") for k in (0, -1))
    return (
        f"{messages:,} messages with {len(entries):,} fields and {size:,} bytes left this site from {first} to {last} "
        f"(UTC); models were measured {measured:,} times"
    )

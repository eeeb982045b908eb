"""`fedsaddle run --engine nvflare`: run a config at the sites of a deployment."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedsaddle.commands.output import output
from fedsaddle.commands.progress import RoundProgress
from fedsaddle.commands.report import emit_run, print_report
from fedsaddle.config.run_config import require_same_config
from fedsaddle.config.schema import Config, read_config, validate_config
from fedsaddle.deployment.project import (
    Project,
    check_kit,
    read_project,
    require_deployable,
    require_named_columns,
    require_nvflare,
)
from fedsaddle.deployment.site_worker import safe_name
from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadCheckpoint, BadInput, BadMessage, FedSaddleError, MissingData
from fedsaddle.files import Record, make_folder, read_object, write_json
from fedsaddle.report import plots
from fedsaddle.report.tables import of_sites, one_run
from fedsaddle.runs.closing import exit_code
from fedsaddle.runs.folder import RunFolder, only_writer, seconds_per_round, write_progress
from fedsaddle.text import visible

if TYPE_CHECKING:
    from fedsaddle.deployment.nvflare.session import NVFlareSession


class RunEnded(FedSaddleError):
    """The server ended the run with an error."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def run_deployed(config: Config, path: Path, out: Path, resume: bool) -> int:
    """Submit a config to the deployment in its folder and follow the run to its end."""
    require_nvflare()
    require_deployable(config)
    from fedsaddle.deployment.nvflare.provision import KITS
    from fedsaddle.deployment.nvflare.session import NVFlareSession

    project = read_project(path.parent)
    require_named_columns(config, project.files)

    def connect() -> NVFlareSession:
        return NVFlareSession(project.admin, path.parent / KITS / project.admin, project.deployment.patience)

    connect()  # fail before anything is written if there is no kit
    warning = check_kit(path.parent / KITS / project.admin)
    folder = RunFolder(out)
    make_folder("out", out)
    folder.refuse_links()
    with only_writer(out):
        name = resumed_name(config, folder) if resume else new_name(config, folder)
        return _follow(config, project, folder, connect, name, Begun(resume, warning=warning))


def attach_to(run: str, path: Path, out: Path | None) -> int:
    """Follow a run that is at the server, whoever submitted it, and fetch its results into `out`."""
    require_nvflare()
    from fedsaddle.deployment.nvflare.provision import KITS
    from fedsaddle.deployment.nvflare.session import NVFlareSession

    project = read_project(path)
    try:
        name = safe_name(run)
    except BadMessage:
        raise BadInput("run", run, "is no name of a run; give the one that `fedsaddle run` printed") from None

    def connect() -> NVFlareSession:
        return NVFlareSession(project.admin, path / KITS / project.admin, project.deployment.patience)

    warning = check_kit(path / KITS / project.admin)
    with connect() as session:
        job = session.find(name)
        if job is None:
            known = ", ".join(session.run_names()[-10:]) or "none"
            raise MissingData(f"run {name!r}: the server knows no such run; the last ones are: {known}")
        config = _config_of(session, job, path / project.deployment.config)
    folder = RunFolder(path / "runs" / name if out is None else out)
    make_folder("out", folder.path)
    folder.refuse_links()
    with only_writer(folder.path):
        if not folder.deployment.exists():
            if folder.holds_run:
                raise BadInput("out", str(folder.path), "holds another run; choose another folder")
            folder.write_config(config.model_dump(mode="json"))
            write_json(folder.deployment, {"run": name})
        elif resumed_name(config, folder) != name:
            raise BadInput("out", str(folder.path), "holds another run; choose another folder")
        code = _follow(config, project, folder, connect, name, Begun(True, job, warning))
    emit_deployed(folder.path, "deploy attach")
    return code


def _config_of(session: NVFlareSession, job: str, path: Path) -> Config:
    """The config that the server runs; that of the project's folder if the job does not answer any more."""
    from fedsaddle.deployment.nvflare.supervise import STATUS, JobGone

    try:
        return validate_config(session.query(job, STATUS, {"seen": 0, "config": True})["config"])
    except (JobGone, KeyError):
        return read_config(path)


@dataclass(frozen=True)
class Begun:
    """What is known of a run before it is followed."""

    resumed: bool = False
    job: str | None = None  # one that runs at the server, of whoever submitted it
    warning: str | None = None


def _follow(
    config: Config,
    project: Project,
    folder: RunFolder,
    connect: Callable[[], NVFlareSession],
    name: str,
    begun: Begun,
) -> int:
    """Run at the sites to the end, then print and plot; return the exit code."""
    from fedsaddle.deployment.nvflare.supervise import Supervisor

    latest: Record = {}  # the progress of the server: its pace excludes waiting for sites

    def on_progress(content: Record) -> None:
        latest.update(content)
        write_progress(folder.progress, content)

    def pace() -> float | None:
        return seconds_per_round(latest)

    with RoundProgress(config.run.rounds, config.algorithm.name, pace=pace) as progress:
        if begun.warning:
            progress.warn(begun.warning)
        progress.say(f"run {name} at {len(project.names)} sites: {', '.join(project.names)}")

        def on_record(record: Record) -> None:
            if supervisor.records_seen == 1:  # the server sends all records
                folder.begin([], project.names)
            folder.append(record, project.names)
            progress(record["round"], record)

        supervisor = Supervisor(
            project, connect, config, name, progress.say, on_record, resumed=begun.resumed, job=begun.job,
            attached=begun.job is not None, on_progress=on_progress,
        )  # fmt: skip
        outcome = supervisor.go(folder.path)
    if outcome["code"]:
        raise RunEnded(outcome["message"], outcome["code"])
    finish(config, project, folder)
    return exit_code(folder.read_run())


def new_name(config: Config, folder: RunFolder) -> str:
    """Choose a name for the run at server and sites; write it and the config to the run's folder."""
    if folder.deployment.exists() or folder.holds_run:
        raise BadInput("out", str(folder.path), "holds a run already; resume it, or choose another folder")
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder.path.name.lower()).strip("-") or "run"
    name = f"{slug[:40]}-{secrets.token_hex(3)}"
    folder.write_config(config.model_dump(mode="json"))
    write_json(folder.deployment, {"run": name})
    return name


def resumed_name(config: Config, folder: RunFolder) -> str:
    """The name of the run in that folder; raise if its config differs."""
    if not folder.deployment.exists():
        where = str(folder.path)
        raise MissingData(f"--out = {where!r}: no deployed run to resume there; leave out --resume to start one")
    require_same_config(config, folder)
    try:
        return str(read_object(folder.deployment)["run"])
    except (ValueError, KeyError) as reason:
        raise BadCheckpoint(f"{folder.deployment} is damaged ({reason}); choose another --out") from None


def finish(config: Config, project: Project, folder: RunFolder) -> None:
    """Print the tables and write the plots."""
    summary, history, name = folder.read_run(), folder.history(), config.algorithm.name
    plots.progress(history, folder.picture("progress"), name)
    plots.clients({name: history}, project.names, folder.picture("clients"))
    plots.mixture(history, project.names, folder.picture("mixture"))
    screen = output.screen()
    for note in read_object(folder.agreed).get("notes", ()) if folder.agreed.exists() else ():
        screen.print(f"note: {visible(note)}", highlight=False, markup=False, soft_wrap=True)
    screen.print(one_run(summary))
    screen.print(of_sites(summary))
    for warning in summary.warnings:
        output.errors().print(f"warning: {visible(warning.text)}", highlight=False, markup=False, soft_wrap=True)
    screen.print(f"written to {visible(folder.path)}", highlight=False, markup=False, soft_wrap=True)
    print_report(folder.path, screen, output.errors())


def emit_deployed(out: Path, command: str = "run") -> None:
    """Print the document of a deployed run that ended, if it is wanted."""
    if output.json:
        page = RunFiles(out).report
        emit_run("deployed", out, page if page.exists() else None, RunFolder(out).read_run(), command)

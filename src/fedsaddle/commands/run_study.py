"""`fedsaddle run study.toml`: a study at the sites of a deployment, with its progress and its figures."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsaddle.commands.output import output, say
from fedsaddle.commands.progress import Display
from fedsaddle.commands.report import emit_run, print_report
from fedsaddle.commands.run_deployed import RunEnded
from fedsaddle.deployment.project import (
    Project,
    check_kit,
    read_project,
    require_deployable,
    require_named_columns,
    require_nvflare,
)
from fedsaddle.errors import BadCheckpoint, BadInput, MissingData
from fedsaddle.files import make_folder, read_object, write_json
from fedsaddle.processes import Interruption, terminate_as_interrupt
from fedsaddle.report.tables import choice_table
from fedsaddle.runs.folder import RunFolder, only_writer, write_progress
from fedsaddle.studies.study_plan import StudyPlan, read_plan
from fedsaddle.studies.trial import Trial
from fedsaddle.text import visible

if TYPE_CHECKING:
    from fedsaddle.deployment.nvflare.session import NVFlareSession

INTERRUPTED = 130


def run_study(path: Path, out: Path | None, resume: bool) -> int:
    """Submit a study to the deployment in its folder, follow it to its end, and print it; return the exit code."""
    folder = RunFolder(out or Path("runs") / path.stem)
    try:
        with terminate_as_interrupt():
            return _run(path, folder, resume)
    except KeyboardInterrupt:
        message = "interrupted; the job was aborted. Continue with --resume"
        output.errors().print(message, highlight=False)
        if output.json:
            output.emit_error("interrupted", message, INTERRUPTED)
        return INTERRUPTED


def run_study_here(path: Path, out: Path | None, resume: bool) -> int:
    """Do a study in this process, over the files of its deployment's sites; return the exit code."""
    from fedsaddle.deployment.local_study import study_at_sites

    project, folder = read_project(path.parent), RunFolder(out or Path("runs") / path.stem)
    files = {name: path.parent / site.data for name, site in project.sites.items()}
    with Display("study") as display, Interruption() as interruption:

        def watch(trial: Trial, done: int) -> None:
            said = f"{trial.candidate.name}, step {trial.step:g}"
            display.show(said, done, trial.rounds, f"{done}/{trial.rounds}")
            display.line(f"{said}: round {done} of {trial.rounds}")
            if interruption.requested:
                raise KeyboardInterrupt

        try:
            study_at_sites(path, files, out=folder.path, resume=resume, watch=watch)
        except KeyboardInterrupt:
            display.warn("interrupted; what is done is kept. Continue with --resume")
            return INTERRUPTED
    return _show(folder)


def _run(path: Path, folder: RunFolder, resume: bool) -> int:
    plan, project, connect, warning = _prepared(path)
    make_folder("out", folder.path)
    folder.refuse_links()
    with only_writer(folder.path):
        name = _resumed(plan, folder) if resume else _new(plan, folder)
        return _follow(plan, project, connect, folder, name, warning, resume)


def attach_to_study(path: Path, run: str, out: Path | None) -> int:
    """Follow a study that is at the server, whoever submitted it, and fetch its results."""
    plan, project, connect, warning = _prepared(path)
    with connect() as session:
        job = session.find(run)
        if job is None:
            known = ", ".join(session.run_names()[-10:]) or "none"
            raise MissingData(f"study {run!r}: the server knows no such study; the last ones are: {known}")
    folder = RunFolder(path.parent / "runs" / run if out is None else out)
    make_folder("out", folder.path)
    folder.refuse_links()
    with only_writer(folder.path):
        if not folder.deployment.exists() and not folder.holds_run:
            write_json(folder.deployment, {"run": run, "plan": plan.digest()})
        elif not folder.deployment.exists() or _resumed(plan, folder) != run:
            raise BadInput("out", str(folder.path), "holds another run; choose another folder")
        return _follow(plan, project, connect, folder, run, warning, True, job)


def _prepared(path: Path) -> tuple[StudyPlan, Project, Callable[[], NVFlareSession], str | None]:
    """The plan, its project, how to connect, and a warning of the certificates."""
    require_nvflare()
    from fedsaddle.deployment.nvflare.provision import KITS
    from fedsaddle.deployment.nvflare.session import NVFlareSession

    plan, project = read_plan(path), read_project(path.parent)
    require_deployable(plan.base)
    require_named_columns(plan.base, project.files)
    kit = path.parent / KITS / project.admin

    def connect() -> NVFlareSession:
        return NVFlareSession(project.admin, kit, project.deployment.patience)

    connect()  # fail before anything is written if there is no kit
    return plan, project, connect, check_kit(kit)


def _follow(
    plan: StudyPlan, project: Project, connect: Callable[[], NVFlareSession], folder: RunFolder, name: str,
    warning: str | None, resumed: bool, job: str | None = None,
) -> int:  # fmt: skip
    """Follow the study to its end, and print it."""
    from fedsaddle.deployment.nvflare.supervise import Supervisor

    with Display("study") as display:
        if warning:
            display.warn(warning)
        display.say(f"study {name} at {len(project.names)} sites: {', '.join(project.names)}")

        def on_progress(content: dict[str, Any]) -> None:
            write_progress(folder.progress, content)
            done, rounds, trial = content.get("round", 0), content.get("rounds", 1), content.get("trial", "")
            display.show(str(trial), done, rounds, f"{done}/{rounds}")
            display.line(f"{trial}: round {done} of {rounds}")

        supervisor = Supervisor(
            project, connect, plan, name, display.say, lambda record: None, resumed=resumed, job=job,
            attached=job is not None, on_progress=on_progress,
        )  # fmt: skip
        outcome = supervisor.go(folder.path)
    if outcome["code"]:
        raise RunEnded(outcome["message"], outcome["code"])
    return _show(folder)


def _new(plan: StudyPlan, folder: RunFolder) -> str:
    """Choose a name for the study at server and sites, and keep it in its folder."""
    if folder.deployment.exists() or folder.holds_run:
        raise BadInput("out", str(folder.path), "holds a run already; resume it, or choose another folder")
    slug = "".join(c if c.isascii() and c.isalnum() else "-" for c in folder.path.name.lower()).strip("-") or "study"
    name = f"{slug[:30]}-{secrets.token_hex(3)}"
    write_json(folder.deployment, {"run": name, "plan": plan.digest()})
    return name


def _resumed(plan: StudyPlan, folder: RunFolder) -> str:
    """The name of the study in that folder; raise if its plan differs."""
    if not folder.deployment.exists():
        where = str(folder.path)
        raise MissingData(f"--out = {where!r}: no deployed study to resume there; leave out --resume to start one")
    try:
        stored = read_object(folder.deployment)
        name, before = str(stored["run"]), str(stored["plan"])
    except (ValueError, KeyError) as reason:
        raise BadCheckpoint(f"{folder.deployment} is damaged ({reason}); choose another --out") from None
    if before != plan.digest():
        raise BadCheckpoint(f"the study in {visible(folder.path)} began with another study.toml; choose another --out")
    return name


def _show(folder: RunFolder) -> int:
    summary, screen, errors = folder.read_search(), output.screen(), output.errors()
    screen.print(choice_table(summary))
    for note in summary.notes:
        say(f"note: {visible(note)}")
    own = summary.scores.sites if summary.scores is not None else {}
    for name, alone in (summary.alone or {}).items():
        together = own[name].auroc if name in own else None
        if together is not None:
            told = f"AUROC {together.value:.3f} on its test rows, {alone.value:.3f} by a model of its own rows alone"
            screen.print(f"{visible(name)}: {told}", highlight=False, markup=False, soft_wrap=True)
    screen.print(f"written to {visible(folder.path)}", highlight=False, markup=False, soft_wrap=True)
    page = print_report(folder.path, screen, errors)
    emit_run("search", folder.path, page, summary)
    return 0

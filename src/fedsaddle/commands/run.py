"""`fedsaddle run`: run a config, or train on your own table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsaddle.commands.options import (
    CONFIG,
    OUTPUT,
    TRAINING,
    YOUR_TABLE,
    AlgorithmOption,
    CategoricalOption,
    DropOption,
    EventOption,
    ExposureOption,
    FamilyOption,
    GroupsOption,
    HorizonOption,
    ImageOption,
    LabelOption,
    NumericOption,
    OutOption,
    PatientOption,
    PositiveOption,
    SiteOption,
    TimeOption,
    beginning,
    complete_changes,
    refuse_options,
    seconds_of,
    table_of,
    tracked,
    usable,
)
from fedsaddle.commands.output import JsonOption, QuietOption
from fedsaddle.config.registry import ENGINES
from fedsaddle.errors import BadInput
from fedsaddle.processes import loading

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx")


def complete_engines(incomplete: str) -> list[str]:
    """Names of engines."""
    return beginning(incomplete, ENGINES)


def complete_aims(incomplete: str) -> list[str]:
    """What a search can be for."""
    return beginning(
        incomplete, ("auroc", "average-precision", "partial-auroc", "worst-site", "worst-group", "accuracy")
    )


def _is_table(path: Path) -> bool:
    """Whether a file is a table, by its name; it may be packed with gzip."""
    return Path(path.name.lower().removesuffix(".gz")).suffix in TABLES


def run(
    config: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A config (`fedsaddle init` writes one), or your table.", callback=usable),
    ],
    site: SiteOption = None,
    label: LabelOption = None,
    family: FamilyOption = None,
    time: TimeOption = None,
    event: EventOption = None,
    exposure: ExposureOption = None,
    horizon: HorizonOption = None,
    positive: PositiveOption = None,
    patient: PatientOption = None,
    image: ImageOption = None,
    numeric: NumericOption = None,
    categorical: CategoricalOption = None,
    drop: DropOption = None,
    groups: GroupsOption = None,
    test_site: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Test on this site and do not train on it.",
            show_default=False,
            rich_help_panel=YOUR_TABLE,
        ),
    ] = None,
    leave_one_site_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-site-out",
            metavar="",
            help="Also test each site on a model trained without it.",
            rich_help_panel=YOUR_TABLE,
        ),
    ] = False,
    aim: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="MEASURE",
            help="Search for the best auroc (default), average-precision, partial-auroc, worst-site, worst-group "
            "(with --groups) or accuracy.",
            show_default=False,
            autocompletion=complete_aims,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    algorithm: AlgorithmOption = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time limit of the search: 90s, 5m, 1h; by default 2m.",
            show_default=False,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    sensitivity: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Target sensitivity of the threshold.",
            show_default=False,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Random seed.", show_default=False, rich_help_panel=TRAINING),
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a value, e.g. algorithm.local_steps=5.",
            autocompletion=complete_changes,
            rich_help_panel=CONFIG,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="vectorised, processes, ray, serial or nvflare.",
            show_default=False,
            autocompletion=complete_engines,
            rich_help_panel=CONFIG,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="auto, cpu, cuda, cuda:1 or mps.", show_default=False, rich_help_panel=CONFIG
        ),
    ] = None,
    out: OutOption = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            metavar="",
            help="Resume from the newest checkpoint in the folder.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER",
            help="Log to tensorboard, mlflow=URI or wandb=PROJECT.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            metavar="",
            help="Print the plan, its cost and what leaves a site; run nothing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a config: metrics, model, plots and checkpoints go to a folder.

    With a table (CSV, Parquet, Excel), --site and --label (or --time and --event), search for the best way to train on
    validation rows, and compare it with FedAvg on test rows.
    """
    with loading():
        from fedsaddle.commands.simulation import run_config
        from fedsaddle.studies.study_plan import is_study

    own_table = table_of(
        config if _is_table(config) else None,
        site,
        label,
        family=family,
        time=time,
        event=event,
        exposure=exposure,
        horizon=horizon,
        positive=positive,
        patient=patient,
        image=image,
        numeric=numeric,
        categorical=categorical,
        drop=drop,
        groups=groups,
        algorithm=algorithm,
        test_sites=test_site,
        seed=seed,
    )
    if own_table is None and is_study(config):
        from fedsaddle.commands.run_study import run_study, run_study_here

        others = {"set": set, "device": device, "track": track, "for": aim, "budget": budget, "algorithm": algorithm}
        refuse_options(
            {**others, "sensitivity": sensitivity}, "a run; a study has all in its file, which sites agreed to"
        )
        if dry_run:
            remedy = "is not for a study yet; `fedsaddle run CONFIG --dry-run` estimates a single run"
            raise BadInput("--dry-run", True, remedy)
        if engine not in (None, "nvflare", "serial"):
            remedy = "a study runs at the sites of its deployment, or with 'serial' over their files in this process"
            raise BadInput("--engine", engine, remedy)
        raise typer.Exit((run_study_here if engine == "serial" else run_study)(config, out, resume))
    changes = [*(set or []), *([f'engine.name="{engine}"'] if engine else [])]
    changes += [f'engine.device="{device}"'] if device else []
    searches = own_table is not None and algorithm is None and not changes
    if track and searches:
        raise BadInput("--track", track[0], "is not for a search; leave it out, or name an --algorithm")
    changes += tracked(track)
    if not searches:
        wanted = {"for": aim, "budget": budget, "sensitivity": sensitivity, "leave_one_site_out": leave_one_site_out}
        refuse_options(wanted, "a search on your own table, without --algorithm, --set and --engine")
    if dry_run:
        from fedsaddle.commands.plan import print_run_plan

        raise typer.Exit(print_run_plan(config, changes, out, own_table, aim, budget, searches))
    if own_table is None or not searches:
        raise typer.Exit(run_config(config, changes, out, resume, own_table))
    from fedsaddle.commands.run_table import run_table
    from fedsaddle.studies.table_study import BUDGET, StudyOptions

    seconds = BUDGET if budget is None else seconds_of(budget)
    options = StudyOptions(aim, seconds, sensitivity, leave_one_site_out)
    raise typer.Exit(run_table(own_table, options, out, resume))

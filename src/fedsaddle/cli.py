"""The command line `fedsaddle`; each command imports its heavy modules itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsaddle import __version__
from fedsaddle.commands import completion
from fedsaddle.commands.deploy_app import deploy
from fedsaddle.commands.loading import loading
from fedsaddle.commands.options import (
    AlgorithmOption,
    CategoricalOption,
    ComparisonOption,
    DropOption,
    GroupsOption,
    HtmlOption,
    ImageOption,
    LabelOption,
    NumericOption,
    OutOption,
    PatientOption,
    PositiveOption,
    SiteOption,
    TestSiteOption,
    TrackOption,
    tracked,
    usable,
    usable_each,
)
from fedsaddle.commands.output import JsonOption, QuietOption
from fedsaddle.commands.run_app import WithPlugins, prepare_process, run_app
from fedsaddle.commands.study_commands import sweep
from fedsaddle.config.registry import LISTED
from fedsaddle.errors import BadInput

app = typer.Typer(
    cls=WithPlugins,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Federated learning when the average loss is the wrong objective.",
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plots.", callback=usable)] = Path("fedsaddle-demo"),
    rounds: Annotated[int, typer.Option(help="Rounds for each algorithm.")] = 100,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare FedAvg, q-FedAvg, AFL and DRFA on real data at simulated sites: a table and plots."""
    with loading():
        from fedsaddle.commands.demo import demo as go

    go(out, rounds)


@app.command()
def run(
    config: Annotated[
        Path, typer.Argument(help="A TOML file (`fedsaddle init` writes one), or your own table.", callback=usable)
    ],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Override a value, e.g. algorithm.local_steps=5.", autocompletion=completion.changes
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="vectorised, processes, ray, serial or nvflare.", show_default=False, autocompletion=completion.engines
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.", show_default=False)] = None,
    out: OutOption = None,
    resume: Annotated[bool, typer.Option(help="Resume from the newest checkpoint in the folder.")] = False,
    track: TrackOption = None,
    site: SiteOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    patient: PatientOption = None,
    image: ImageOption = None,
    numeric: NumericOption = None,
    categorical: CategoricalOption = None,
    drop: DropOption = None,
    groups: GroupsOption = None,
    aim: Annotated[
        str | None,
        typer.Option(
            "--for",
            help="What counts: auroc (default), average-precision, partial-auroc, worst-site or accuracy.",
            show_default=False,
            autocompletion=completion.aims,
        ),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time for the search, such as 90s, 5m or 1h; 2m by default.", show_default=False)
    ] = None,
    sensitivity: Annotated[
        float | None,
        typer.Option(help="Share of the positives that the threshold has to find.", show_default=False),
    ] = None,
    algorithm: AlgorithmOption = None,
    test_site: TestSiteOption = None,
    leave_one_site_out: Annotated[
        bool, typer.Option("--leave-one-site-out", help="Also test each site on a model trained without it.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of the split and of all draws.", show_default=False)] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Say what would be run, what it costs and what leaves a site; run nothing."),
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a config: metrics, model, plots and checkpoints go to a folder.

    A table (CSV, Parquet, Excel) with --site and --label tries several ways to train, chooses on validation rows and
    compares with FedAvg on test rows.
    """
    with loading():
        from fedsaddle.commands.run import run as go
        from fedsaddle.commands.run import run_own_table
        from fedsaddle.commands.table_config import TableConfig, is_table

    own_table = TableConfig.from_options(
        config if is_table(config) else None,
        site,
        label,
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
    changes = [*(set or []), *([f'engine.name="{engine}"'] if engine else [])]
    changes += [f'engine.device="{device}"'] if device else []
    if track and own_table is not None and algorithm is None and not changes:
        raise BadInput("--track", track[0], "is not for a search; leave it out, or name an --algorithm")
    changes += tracked(track)
    wishes = {"for": aim, "budget": budget, "sensitivity": sensitivity, "leave_one_site_out": leave_one_site_out}
    searches = own_table is not None and algorithm is None and not changes
    if not searches:
        refuse_search_options(wishes, "a search on your own table, without --algorithm, --set and --engine")
    if dry_run:
        from fedsaddle.commands.dry_run import dry_run as plan

        raise typer.Exit(plan(config, changes, out, own_table, aim, budget, searches))
    if own_table is None or not searches:
        raise typer.Exit(go(config, changes, out, resume, own_table))
    raise typer.Exit(run_own_table(own_table, wishes, out, resume))


def refuse_search_options(wishes: dict[str, Any], what: str) -> None:
    """Refuse options that have no effect."""
    for key, value in wishes.items():
        if value is not None and value is not False:
            raise BadInput(f"--{key.replace('_', '-')}", value, f"is for {what}; leave it out")


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="File to write.", callback=usable)] = Path("fedsaddle.toml"),
    csv: Annotated[Path | None, typer.Option(help="Your own table.", callback=usable)] = None,
    site: SiteOption = None,
    label: LabelOption = None,
    positive: PositiveOption = None,
    patient: PatientOption = None,
    image: ImageOption = None,
    numeric: NumericOption = None,
    categorical: CategoricalOption = None,
    drop: DropOption = None,
    groups: GroupsOption = None,
    algorithm: AlgorithmOption = None,
    extension: Annotated[
        str | None,
        typer.Option(help="Write a package of your own instead, with this name.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of that package.", show_default=False, callback=usable)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write an example config with comments, or with --extension a package for code of your own."""
    if extension is not None:
        from fedsaddle.commands.extension import extension as write_package

        write_package(extension, out)
        return
    refuse_search_options({"out": out}, "--extension")
    with loading():
        from fedsaddle.commands.init import init as go
        from fedsaddle.commands.table_config import TableConfig

    table = TableConfig.from_options(
        csv,
        site,
        label,
        positive=positive,
        patient=patient,
        image=image,
        numeric=numeric,
        categorical=categorical,
        drop=drop,
        groups=groups,
        algorithm=algorithm,
    )
    go(path, table)


@app.command("list")
def list_(
    what: Annotated[
        str, typer.Argument(help=f"One of {', '.join(LISTED)}; all by default.", autocompletion=completion.kinds)
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """List the names that a config can use."""
    from fedsaddle.commands.list_names import list_names as go

    go(what)


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(help="Folders of runs.", callback=usable)],
    out: ComparisonOption = None,
    html: HtmlOption = None,
    measure: Annotated[str | None, typer.Option(help="Plot this pooled measure.", show_default=False)] = None,
    x: Annotated[str, typer.Option(help="The x axis: round, exchanges, bytes_up, seconds ...")] = "round",
    as_json: JsonOption = False,
) -> None:
    """Compare runs: final figures, cost, a plot and a page."""
    with loading():
        from fedsaddle.commands.compare import compare as go

    go(folders, out, measure, x, html)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.", callback=usable)],
    pdf: Annotated[bool, typer.Option("--pdf", help="Write report.pdf too; needs Chromium or Chrome.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make report.html and MODEL_CARD.md of a run again."""
    with loading():
        from fedsaddle.commands.report import report as go

    go(folder, pdf)


@app.command()
def watch(
    folders: Annotated[
        list[str], typer.Argument(help="Folders of runs, or with runs in them; or the address of such a page.")
    ],
    port: Annotated[int, typer.Option(help="Port of this machine; 0 is any free one.", min=0, max=65535)] = 0,
    open: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open", help="Open a browser; by default on a terminal with a screen.", show_default=False
        ),
    ] = None,
) -> None:
    """Follow runs on a page: progress, curves, sites, cost and time left. The page is for this machine only."""
    from fedsaddle.commands.watch import watch as go

    usable_each("folders", folders)
    raise typer.Exit(go(folders, port, open))


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Check this installation: versions, data sets, and that the two engines agree."""
    from fedsaddle.commands.doctor import doctor as go

    raise typer.Exit(go())


@app.command()
def schema(as_json: JsonOption = True) -> None:
    """Print the JSON Schema of all that --json prints."""
    from fedsaddle.commands.json_schema import schema as go

    go()


app.command()(sweep)
app.add_typer(deploy, name="deploy")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedsaddle {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; print an error of the user or of the machine in one line, without a traceback."""
    prepare_process()
    run_app(app)


if __name__ == "__main__":
    main()

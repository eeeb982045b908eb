"""The command line `fedsaddle`; each command imports its heavy modules itself."""

from __future__ import annotations

import json
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsaddle import __version__
from fedsaddle.commands.deploy_app import deploy
from fedsaddle.commands.options import (
    AlgorithmOption,
    CategoricalOption,
    ComparisonOption,
    DropOption,
    GroupsOption,
    HtmlOption,
    ImageOption,
    JsonOption,
    LabelOption,
    NumericOption,
    OutOption,
    PatientOption,
    PositiveOption,
    SiteOption,
    TestSiteOption,
    usable,
)
from fedsaddle.commands.unexpected import explained, print_traceback
from fedsaddle.config.registry import LISTED
from fedsaddle.errors import BadInput

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Federated learning when the average loss is the wrong objective.",
)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plots.", callback=usable)] = Path("fedsaddle-demo"),
    rounds: Annotated[int, typer.Option(help="Rounds for each algorithm.")] = 100,
) -> None:
    """Compare FedAvg, q-FedAvg, AFL and DRFA on real data at simulated sites: a table and plots."""
    from fedsaddle.commands.demo import demo as go

    go(out, rounds)


@app.command()
def run(
    config: Annotated[
        Path, typer.Argument(help="A TOML file (`fedsaddle init` writes one), or your own table.", callback=usable)
    ],
    set: Annotated[
        list[str] | None, typer.Option("--set", help="Override a value, e.g. algorithm.local_steps=5.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="vectorised, processes, ray, serial or nvflare.", show_default=False)
    ] = None,
    out: OutOption = None,
    resume: Annotated[bool, typer.Option(help="Resume from the newest checkpoint in the folder.")] = False,
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
) -> None:
    """Run a config: metrics, model, plots and checkpoints go to a folder.

    A table (CSV, Parquet, Excel) with --site and --label tries several ways to train, chooses on validation rows and
    compares with FedAvg on test rows.
    """
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
    wishes = {"for": aim, "budget": budget, "sensitivity": sensitivity, "leave_one_site_out": leave_one_site_out}
    if own_table is None or algorithm is not None or changes:
        refuse_search_options(wishes, "a search on your own table, without --algorithm, --set and --engine")
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
) -> None:
    """Write an example config with comments."""
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
    what: Annotated[str, typer.Argument(help=f"One of {', '.join(LISTED)}; all by default.")] = "",
    as_json: JsonOption = False,
) -> None:
    """List the names that a config can use."""
    if what and what not in LISTED:
        raise BadInput("list", what, f"choose one of {', '.join(LISTED)}")
    tables = {what: LISTED[what]} if what else LISTED
    if as_json:
        listed: Any = {
            kind: [{"name": n, "about": e.about, "source": e.source} for n, e in table.items()]
            for kind, table in tables.items()
        }
        typer.echo(json.dumps(listed[what] if what else listed, indent=2, ensure_ascii=False))
        return
    width = max(len(name) for table in tables.values() for name in table)
    for kind, table in tables.items():
        typer.echo(typer.style(kind, bold=True))
        for name, entry in table.items():
            source = f"  ({entry.source})" if entry.source else ""
            typer.echo(f"  {name:<{width}}  {entry.about}{source}")


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
    from fedsaddle.commands.compare import compare as go

    go(folders, out, as_json, measure, x, html)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.", callback=usable)],
    pdf: Annotated[bool, typer.Option("--pdf", help="Write report.pdf too; needs Chromium or Chrome.")] = False,
) -> None:
    """Make report.html and MODEL_CARD.md of a run again."""
    from fedsaddle.commands.report import report as go

    go(folder, pdf)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="The figure to reproduce; without a name, list all.")] = "",
    quick: Annotated[bool, typer.Option(help="Use fewer seeds and rounds (about a minute).")] = False,
    as_json: JsonOption = False,
    out: Annotated[Path, typer.Option(help="Folder for plots and figures.", callback=usable)] = Path("reproduced"),
) -> None:
    """Reproduce a figure of a paper, and report which of its claims hold."""
    from fedsaddle.commands.reproduce import reproduce as go

    go(name, quick, as_json, out)


@app.command()
def doctor() -> None:
    """Check this installation: versions, data sets, and that the two engines agree."""
    from fedsaddle.commands.doctor import doctor as go

    raise typer.Exit(go())


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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a name that the terminal cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="fedsaddle")
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        found = explained(error)
        if found is None:
            raise
        print_traceback(error)
        typer.echo(f"error: {found[0]}", err=True)
        sys.exit(found[1])

"""The commands `fedsaddle deploy ...`; each imports its heavy modules itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsaddle.commands.options import usable
from fedsaddle.commands.output import JsonOption, QuietOption, output

deploy = typer.Typer(no_args_is_help=True, help="Run at real sites: set up, start, and try a deployment.")
FolderArgument = Annotated[Path, typer.Argument(help="The project's folder.", callback=usable)]


@deploy.command("init")
def deploy_init(
    folder: FolderArgument = Path("."),
    sites: Annotated[int, typer.Option(help="Number of sites.")] = 3,
    server: Annotated[str, typer.Option(help="Host name by which sites reach the server.")] = "server.example.org",
    sample: Annotated[
        Path | None, typer.Option(help="A table like those of the sites; writes its columns out.", callback=usable)
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column of the sample to predict.")] = None,
    site_column: Annotated[str | None, typer.Option(help="The column of the sample that names the site.")] = None,
    patient: Annotated[str | None, typer.Option(help="The column of the sample that names the patient.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write deployment.toml with the sites, and fedsaddle.toml with the run and the columns that sites read."""
    from fedsaddle.commands.deploy import Sample
    from fedsaddle.commands.deploy import init as go

    go(folder, sites, server, None if sample is None else Sample(sample, label, site_column, patient))


@deploy.command("provision")
def deploy_provision(folder: FolderArgument = Path("."), as_json: JsonOption = False) -> None:
    """Make the start-up kits: certificates, allowed classes, permissions."""
    from fedsaddle.commands.deploy import provision as go

    go(folder)


@deploy.command("renew")
def deploy_renew(folder: FolderArgument = Path("."), as_json: JsonOption = False) -> None:
    """Make new certificates for all kits, before or after the old ones have ended."""
    from fedsaddle.commands.deploy import renew as go

    go(folder)


@deploy.command("attach")
def deploy_attach(
    run: Annotated[str, typer.Argument(help="The run's name at the server, as `run` said when it began.")],
    folder: FolderArgument = Path("."),
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results; by default runs/RUN.", callback=usable)
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Follow a run that somebody else has submitted, and fetch its results."""
    from fedsaddle.commands.run_deployed import attach as go

    try:
        raise typer.Exit(go(run, folder, out))
    except KeyboardInterrupt:
        raise typer.Exit(stopped("detached; the run goes on")) from None


@deploy.command("start-server")
def deploy_start_server(folder: FolderArgument = Path(".")) -> None:
    """Run the server in the foreground."""
    from fedsaddle.commands.deploy import kit_of, start

    raise typer.Exit(start(kit_of(folder, None)))


@deploy.command("start-site")
def deploy_start_site(
    name: Annotated[str, typer.Argument(help="The site's name in deployment.toml.")],
    folder: Annotated[Path, typer.Argument(help="The project's folder, or the site's kit.", callback=usable)] = Path(
        "."
    ),
) -> None:
    """Run a site in the foreground."""
    from fedsaddle.commands.deploy import kit_of, start

    raise typer.Exit(start(kit_of(folder, name)))


@deploy.command("audit")
def deploy_audit(
    kit: Annotated[Path, typer.Argument(help="The site's kit.", callback=usable)],
    run: Annotated[str | None, typer.Option(help="Only this run.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what left a site: of every message the fields, shapes and bytes, and who sees them."""
    from fedsaddle.commands.deploy_audit import audit as go

    go(kit, run)


@deploy.command("digest")
def deploy_digest(
    modules: Annotated[list[str], typer.Argument(help="Installed modules or packages, such as my_package.")],
) -> None:
    """Print the lines of site-policy.toml that allow a run to name code of these modules."""
    from fedsaddle.commands.deploy_digest import digest as go

    go(modules)


@deploy.command("flower")
def deploy_flower(folder: FolderArgument = Path("."), as_json: JsonOption = False) -> None:
    """Write the files for Flower: an app, and a folder and keys for each site."""
    from fedsaddle.commands.deploy import flower as go

    go(folder)


@deploy.command("try")
def deploy_try(
    sites: Annotated[int, typer.Option(help="Number of sites.")] = 4,
    config: Annotated[
        Path | None, typer.Option(help="A config; by default DRFA on digits.", show_default=False, callback=usable)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.", callback=usable)] = Path("fedsaddle-try"),
    secure: Annotated[bool, typer.Option("--secure", help="With secure aggregation.")] = False,
    epsilon: Annotated[
        float | None, typer.Option(help="Differential privacy of each row, with noise made at the sites.")
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run a whole deployment on this machine, with processes and TLS, and compare it with the simulation."""
    from fedsaddle.commands.deploy_try import deploy_try as go

    try:
        raise typer.Exit(go(sites, config, out, secure, epsilon))
    except KeyboardInterrupt:
        raise typer.Exit(stopped("interrupted; all processes stopped")) from None


def stopped(message: str) -> int:
    """Say that Ctrl-C ended the command; return the exit code."""
    typer.echo(message, err=True)
    if output.json:
        output.emit_error("interrupted", message, 130)
    return 130

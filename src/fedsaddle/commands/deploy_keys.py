"""`fedsaddle deploy request`, `sign` and `install`: sites make their own keys, and the organiser signs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsaddle.commands.options import OUTPUT, usable
from fedsaddle.commands.output import JsonOption, output
from fedsaddle.text import visible

Folder = Annotated[Path, typer.Option("--folder", metavar="DIR", help="Folder of deployment.toml.", callback=usable)]


def request(
    name: Annotated[str, typer.Argument(metavar="SITE", help="Name of the site, as in deployment.toml.")],
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder for the private keys.", callback=usable, rich_help_panel=OUTPUT),
    ] = Path("keys"),
    as_json: JsonOption = False,
) -> None:
    """At a site: make its private keys, and a request with the public ones for the organiser."""
    from fedsaddle.deployment.nvflare.own_keys import make_request

    path = make_request(name, out)
    output.line(f"written to {visible(path)}: send this file to the organiser; all else in {visible(out)} stays there")
    output.emit_lines("deploy request", out)


def sign(
    requests: Annotated[list[Path], typer.Argument(metavar="REQUEST...", help="Files that sites have sent.")],
    folder: Folder = Path("."),
    as_json: JsonOption = False,
) -> None:
    """At the organiser's: sign the keys of sites, and remove the private keys that were made for them."""
    from fedsaddle.deployment.nvflare.own_keys import sign_requests
    from fedsaddle.deployment.nvflare.provision import KITS, update_site_keys
    from fedsaddle.deployment.project import read_project

    project = read_project(folder)
    changed = sign_requests(project, folder, folder / KITS, requests)
    update_site_keys(project, folder)
    for kit in changed:
        output.line(
            f"signed {visible(kit)}: it has no private key; the site adds its own with fedsaddle deploy install"
        )
    output.emit_lines("deploy sign", folder)


def install(
    kit: Annotated[Path, typer.Argument(metavar="KIT", help="The kit that came from the organiser.", callback=usable)],
    keys: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of `fedsaddle deploy request`.", callback=usable)
    ] = Path("keys"),
    as_json: JsonOption = False,
) -> None:
    """At a site: put its own private keys into the kit."""
    from fedsaddle.deployment.nvflare.own_keys import install_keys

    install_keys(kit, keys)
    output.line(f"{visible(kit)} is complete; start it with fedsaddle deploy start-site {visible(kit)}")
    output.emit_lines("deploy install", kit)


def add_commands(deploy: typer.Typer) -> None:
    """Add the three commands."""
    deploy.command("request")(request)
    deploy.command("sign")(sign)
    deploy.command("install")(install)

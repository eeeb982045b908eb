"""`fedsaddle deploy withdraw`: a site leaves, and a run is trained again without it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsaddle.commands.options import OUTPUT, usable
from fedsaddle.commands.output import JsonOption, QuietOption, output
from fedsaddle.text import visible


def withdraw(
    site: Annotated[str, typer.Argument(metavar="SITE", help="Name of the site, as in deployment.toml.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of deployment.toml.", callback=usable)] = Path(
        "."
    ),
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why it leaves, for the record.")] = "",
    again: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Folder of a run to train again without the site.", callback=usable),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for its results; by default RUN-without-SITE.",
            callback=usable,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Record that a site leaves: no later run asks it. With --again, train a run again without it, from its config."""
    from fedsaddle.commands.run_deployed import run_deployed
    from fedsaddle.config.schema import validate_config
    from fedsaddle.deployment.nvflare.provision import update_server
    from fedsaddle.deployment.project import read_project
    from fedsaddle.deployment.withdrawals import read_withdrawals, record_withdrawal
    from fedsaddle.errors import BadInput, MissingData
    from fedsaddle.files import read_object
    from fedsaddle.runs.folder import RunFolder

    gone = [each.site for each in read_withdrawals(folder)]
    names = read_project(folder).names
    if site not in (*names, *gone):
        raise BadInput("site", site, f"is no site of deployment.toml: {', '.join(names)}")
    path = None if again is None else RunFolder(again).config
    if path is not None and not path.exists():
        raise MissingData(f"{path}: the file does not exist; give the folder of a finished run")
    found = record_withdrawal(folder, site, reason)
    output.line(f"{visible(site)} has left since {found.time}; recorded in {visible(folder / 'withdrawals.json')}")
    update_server(read_project(folder), folder)
    if path is None or again is None:
        output.line("models of earlier runs still hold what they learnt of its rows: train them again with --again RUN")
        output.emit_lines("deploy withdraw", folder)
        return
    config = validate_config(read_object(path))
    to = again.with_name(f"{again.name}-without-{site}") if out is None else out
    raise typer.Exit(run_deployed(config, folder / read_project(folder).deployment.config, to, resume=False))

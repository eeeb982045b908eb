"""`fedsaddle watch`: a page that follows runs."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path
from typing import Annotated
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import typer

from fedsaddle.errors import BadInput, MissingData
from fedsaddle.files import require_path
from fedsaddle.processes import terminate_as_interrupt
from fedsaddle.text import visible

SECONDS = 10.0  # for another page to answer


def watch(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="DIR", help="Folders of runs, or with runs in them; or the address of such a page."),
    ],
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Local port; by default any free one.", min=0, max=65535)
    ] = 0,
    open: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            metavar="",
            help="Open a browser; by default on a terminal with a screen.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Follow runs on a local page: progress, curves, sites, cost and time left."""
    for one in folders:
        require_path("folders", Path(one))
    raise typer.Exit(follow(folders, port, open))


def follow(targets: list[str], port: int, opened: bool | None) -> int:
    """Serve a page of the runs in some folders until Ctrl-C, or check the address of such a page; the exit code."""
    wants = _has_screen() if opened is None else opened
    if any(_is_address(target) for target in targets):
        if len(targets) > 1:
            raise BadInput("folders", targets, "give the address of one page, or folders of runs")
        return _visit(targets[0], wants)
    folders = [Path(target) for target in targets]
    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise BadInput("folders", str(folder), "is a file; give the folder of a run, or one with runs in it")
        in_the_way = next((above for above in folder.parents if above.exists() and not above.is_dir()), None)
        if in_the_way is not None:
            raise BadInput("folders", str(folder), f"{str(in_the_way)!r} is a file; give the folder of a run")
    return _serve(folders, port, wants)


def _serve(folders: list[Path], port: int, wants: bool) -> int:
    from fedsaddle.watching.server import Watch, WatchServer

    with terminate_as_interrupt(), WatchServer(Watch(folders), port) as server:
        try:
            for folder in folders:
                if not folder.exists():
                    typer.echo(f"{visible(folder)}: not there yet; the page waits for it", err=True)
            typer.echo(f"watching at {server.address}")
            typer.echo("Only this machine can see it, with this address. Ctrl-C ends it; runs go on.", err=True)
            sys.stdout.flush()
            if wants:
                webbrowser.open(server.address)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("no longer watching", err=True)
    return 0


def _visit(address: str, wants: bool) -> int:
    """Check that a page of `fedsaddle watch` answers at an address, print it, and open it if wanted."""
    from fedsaddle.watching.server import MARK

    remedy = "give the whole address that `fedsaddle watch` printed, with its secret"
    try:
        request = Request(address, method="HEAD")
        with build_opener(ProxyHandler({})).open(request, timeout=SECONDS) as answer:
            known = answer.headers.get(MARK) == "watch"
    except (URLError, OSError, ValueError) as reason:
        raise MissingData(f"address = {address!r}: no page of runs answers there ({reason}); {remedy}") from None
    if not known:
        raise MissingData(f"address = {address!r}: what answers there is no page of runs; {remedy}")
    typer.echo(f"watching at {visible(address)}")
    if wants:
        webbrowser.open(address)
    return 0


def _is_address(target: str) -> bool:
    return urlsplit(target).scheme in ("http", "https")


def _has_screen() -> bool:
    """Whether a person with a browser is likely to be here."""
    if not sys.stdout.isatty():
        return False
    return sys.platform in ("win32", "darwin") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

"""Runs the command line, and says in one line, or with `--json` in one document, why it failed."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from fedsaddle.commands.completion import after_equals
from fedsaddle.commands.output import json_wanted, output
from fedsaddle.commands.unexpected import explained, print_traceback
from fedsaddle.config.entry_points import brought, find_brought
from fedsaddle.errors import BadInput

INTERRUPTED = 130
GROUP = "commands"  # entry points `fedsaddle.commands`: a name, and a function with Typer's annotations
IN_PAPERS = ("benchmark", "reproduce")


class WithPlugins(TyperGroup):
    """Our commands, then those of installed packages; a package is imported when its command is used or listed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names for the help page."""
        own = super().list_commands(ctx)
        return [*own, *dict.fromkeys(one.name for one in brought(GROUP) if one.name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """One of ours, or a package's; None if nobody has it."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        found = find_brought(GROUP, "command", cmd_name)
        if found is None:
            if cmd_name in IN_PAPERS:
                raise BadInput("command", cmd_name, "is in fedsaddle-papers: run `pip install ./papers` in a checkout")
            return None
        module, _, function = found.target.partition(":")
        plugin = typer.Typer()
        try:
            plugin.command(cmd_name)(getattr(import_module(module), function))
        except (ImportError, AttributeError) as reason:
            raise BadInput("command", cmd_name, f"{found.package} is damaged ({reason}): install it again") from None
        return typer.main.get_command(plugin)


def run_app(app: typer.Typer) -> None:
    """Run the command of this process's arguments; end the process with its exit code."""
    output.begin()
    if (names := after_equals()) is not None:
        print("\n".join(names))
        sys.exit(0)
    as_json = json_wanted(sys.argv[1:])
    try:
        code = app(prog_name="fedsaddle", standalone_mode=not as_json)
        sys.exit(code if isinstance(code, int) else 0)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        if as_json:
            output.emit_error("interrupted", "interrupted", INTERRUPTED)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        sys.exit(0)
    except Exception as error:
        _fail(error, as_json)


def _fail(error: Exception, as_json: bool) -> None:
    """Say what went wrong and exit; a fault of the program is raised again."""
    said = getattr(error, "format_message", None) if as_json else None  # of the parser; without --json it is out
    found = explained(error) if said is None else (str(said()), int(getattr(error, "exit_code", 2)))
    if found is None:
        if as_json:
            output.emit_error("fault", f"{type(error).__name__}: {error}", 1)
        raise error
    print_traceback(error)
    typer.echo(f"error: {found[0]}", err=True)
    if as_json:
        output.emit_error("usage" if said is not None else type(error).__name__, found[0], found[1], error)
    sys.exit(found[1])

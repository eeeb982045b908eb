"""Runs the command line, and says in one line, or with `--json` in one document, why it failed."""

from __future__ import annotations

import sys

import typer

from fedsaddle.commands.completion import after_equals
from fedsaddle.commands.output import json_wanted, output
from fedsaddle.commands.unexpected import explained, print_traceback

INTERRUPTED = 130


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

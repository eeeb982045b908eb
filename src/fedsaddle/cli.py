"""The command line `fedsaddle`: which commands there are, each loaded when it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedsaddle import __version__
from fedsaddle.commands.app import prepare_process, run_app
from fedsaddle.errors import BadInput
from fedsaddle.own_code import find_plugin, plugins_of

COMMANDS = {  # name -> module and function, or group of commands, in `fedsaddle.commands`
    "demo": "demo:demo",
    "init": "init:init",
    "run": "run:run",
    "sweep": "sweep:sweep",
    "compare": "compare:compare",
    "report": "report:report",
    "check-release": "check_release:check_release",
    "watch": "watch:watch",
    "list": "info:list_names",
    "doctor": "info:doctor",
    "schema": "info:schema",
    "deploy": "deploy:deploy",
}
GROUP = "commands"  # entry points `fedsaddle.commands`: a name, and a function with Typer's annotations or a Typer app
IN_PAPERS = ("benchmark", "reproduce")


class LazyGroup(TyperGroup):
    """Our commands, then those of installed packages; a module is imported when its command is used or listed."""

    def list_commands(self, ctx: object) -> list[str]:
        """Names for the help page."""
        return [*COMMANDS, *dict.fromkeys(one.name for one in plugins_of(GROUP) if one.name not in COMMANDS)]

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        """One of ours, or a package's; None if nobody has it."""
        if cmd_name in COMMANDS:
            return command_of(cmd_name, f"fedsaddle.commands.{COMMANDS[cmd_name]}")
        plugin = find_plugin(GROUP, "command", cmd_name)
        if plugin is None:
            if cmd_name in IN_PAPERS:
                raise BadInput("command", cmd_name, "is in fedsaddle-papers: run `pip install ./papers` in a checkout")
            return None
        try:
            return command_of(cmd_name, plugin.target)
        except (ImportError, AttributeError) as reason:
            raise BadInput("command", cmd_name, f"{plugin.package} is damaged ({reason}): install it again") from None


def command_of(name: str, target: str) -> Any:
    """Import `module:function` and make a command of it; a Typer app becomes a group."""
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name)(function)
    command: Any = typer.main.get_command(found)
    for one in (command, *getattr(command, "commands", {}).values()):
        for parameter in one.params:
            if parameter.param_type_name == "argument":  # its name says what it is; Typer adds <list[Path]>
                parameter.display_type_rich = lambda ctx: ""
    return command


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Federated learning when the average loss is the wrong objective.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedsaddle {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, metavar="", help="Print the version and exit."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; print an error of the user or of the machine in one line, without a traceback."""
    prepare_process()
    run_app(app)


if __name__ == "__main__":
    main()

"""The command line `fedsaddle`: its commands, each loaded when it is used, its streams and its errors in one line."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fedsaddle import __version__
from fedsaddle.commands.options import KEYS, after_equals
from fedsaddle.commands.output import LONGEST_VALUE, json_wanted, output
from fedsaddle.errors import LONGEST_MESSAGE, BadInput, FedSaddleError
from fedsaddle.own_code import find_plugin, plugins_of
from fedsaddle.text import shortened, visible

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

COMMANDS = {  # name -> module and function, or group of commands, in `fedsaddle.commands`
    "demo": "demo:demo",
    "init": "init:init",
    "run": "run:run",
    "sweep": "sweep:sweep",
    "compare": "compare:compare",
    "report": "report:report",
    "predict": "predict:predict",
    "check-release": "report:check_release",
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
        """One of ours, or a package's; None if there is none."""
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
            if parameter.param_type_name == "argument":  # its name suffices; Typer adds <list[Path]>
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


INTERRUPTED = 130
WORDS = {  # ours for those of pydantic
    "must be a whole number": "Input should be a valid integer, unable to parse string as an integer",
    "must be a number": "Input should be a valid number, unable to parse string as a number",
    "must be": "Input should be",
    "has too many digits": "Unable to parse input string as an integer, exceeded maximum size",
    "at least": "greater than or equal to",
    "at most": "less than or equal to",
}
TRACEBACK = "FEDSADDLE_TRACEBACK"  # this environment variable shows where an error came from
UNEXPECTED = 3  # exit code
_OF_THE_USER = (errno.ENAMETOOLONG, errno.ELOOP)
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")
NARROWEST = 20  # columns; a value of COLUMNS below it is a mistake, and what is printed would be unreadable


def prepare_process() -> None:
    """Make this process fit for a command: its streams, its width and matplotlib's backend, whatever they were."""
    sys.stdout, sys.stderr = _usable_stream(sys.stdout), _usable_stream(sys.stderr)
    for name in ("COLUMNS", "TERMINAL_WIDTH"):
        width = os.environ.get(name)
        if width is not None and not (width.isascii() and width.isdecimal() and int(width) >= NARROWEST):
            del os.environ[name]
    os.environ["MPLBACKEND"] = "agg"  # a notebook sets one that may not be installed here; no command opens a window


def run_app(app: typer.Typer) -> None:
    """Run the command of this process's arguments; end the process with its exit code."""
    output.begin()
    if (names := after_equals()) is not None:
        print("\n".join(names))
        sys.exit(0)
    as_json = json_wanted(sys.argv[1:])
    try:
        code = app(prog_name="fedsaddle", standalone_mode=False)
        if code == INTERRUPTED and as_json:
            output.emit_error("interrupted", "interrupted", INTERRUPTED)
        sys.stdout.flush()  # now, as a full disk could no longer be reported at exit
        sys.exit(code if isinstance(code, int) else 0)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("interrupted", err=True)
        if as_json:
            output.emit_error("interrupted", "interrupted", INTERRUPTED)
        sys.exit(INTERRUPTED)
    except Exception as error:
        _fail(error, as_json)


def usage_error(error: Any) -> str:
    """A complaint of the parser in one line: what is wrong, the nearest name, and where all of them are listed.

    Its classes belong to Click or, in newer versions, to Typer, so that they are known by their attributes.
    """
    context = getattr(error, "ctx", None)
    help_command = f"`{'fedsaddle' if context is None else context.command_path} --help`"
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    name, parameter = getattr(error, "option_name", None), getattr(error, "param", None)
    if name is not None and hasattr(error, "possibilities"):
        known = [option for one in context.command.params for option in one.opts] if context else []
        return f"{name}: there is no such option; {_nearest_option(name, known)}{help_command} lists all options"
    if name is not None:  # without its value, or a flag with one
        needs = "needs a value" if "require" in message else 'takes no value; leave out "=" and what follows it'
        return f"{name}: {needs}"
    if said := re.match(r"No such command (['\"])(.*?)\1", message):
        near = get_close_matches(said[2], context.command.list_commands(context) if context else [], 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{said[2]!r}: there is no such command; {hint}{help_command} lists all commands"
    if parameter is None:
        return f"{message[:1].lower()}{message[1:]}; {help_command} shows how"
    if type(error).__name__ == "MissingParameter":
        shown = str(parameter.metavar or parameter.name).upper()
        what = parameter.opts[0] if parameter.opts[0].startswith("-") else shown
        about = str(getattr(parameter, "help", None) or "").rstrip(".")
        return f"{what} is missing{': ' * bool(about)}{about[:1].lower()}{about[1:]}; {help_command} shows how"
    what = parameter.opts[0] if parameter.opts[0].startswith("-") else str(parameter.name)
    reason = str(error.message).strip().rstrip(".")
    found = getattr(error.__cause__, "errors", None)  # of pydantic, whose message lacks the value
    given = f" = {shortened(repr(found()[0]['input']), LONGEST_VALUE)}" if found is not None else ""
    for ours, theirs in WORDS.items():
        reason = reason.replace(theirs, ours)
    return f"{what}{given}: {reason[:1].lower()}{reason[1:]}"


def _nearest_option(name: str, known: Sequence[str]) -> str:
    """A hint at the nearest option, or at the nearest key of a config, which `--set` changes."""
    key = name.lstrip("-").replace("-", "_")
    if "--set" in known and (near := get_close_matches(key, [k.partition(".")[2] for k in KEYS], 1, 0.8)):
        return f"did you mean `--set {next(k for k in KEYS if k.endswith(f'.{near[0]}'))}=...`? "
    close = get_close_matches(name, list(known), 1, 0.7)
    return f"did you mean {close[0]}? " if close else ""


def _fail(error: Exception, as_json: bool) -> None:
    """Say what went wrong and exit; a fault of the program is raised again."""
    from_parser = hasattr(error, "format_message")
    if type(error).__name__ == "NoArgsIsHelpError" and not as_json:
        getattr(error, "show")()  # noqa: B009
        sys.exit(getattr(error, "exit_code", 2))
    found = (shortened(visible(usage_error(error)), LONGEST_MESSAGE), 2) if from_parser else explained(error)
    if found is None:
        if as_json:
            output.emit_error("fault", f"{type(error).__name__}: {error}", 1)
        raise error
    print_traceback(error)
    typer.echo(f"error: {found[0]}", err=True)
    if as_json:
        output.emit_error("usage" if from_parser else type(error).__name__, found[0], found[1], error)
    sys.exit(found[1])


def explained(error: BaseException) -> tuple[str, int] | None:
    """The line and the exit code for an error; None for one that is a fault of the program."""
    if isinstance(error, FedSaddleError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _NO_MEMORY)
    ):  # torch has no error of its own for it
        return "there is not enough memory; use a smaller model, smaller batches or fewer rows", UNEXPECTED
    if isinstance(error, RecursionError):
        return f"something is nested too deeply; {_how()}", UNEXPECTED
    if isinstance(error, UnicodeError):
        return _line(f"text that cannot be encoded or decoded ({error}); {_how()}"), UNEXPECTED
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        code = 2 if error.errno in _OF_THE_USER else UNEXPECTED
        return _line(f"{where}{error.strerror or error} ({type(error).__name__}); {_how()}"), code
    return None


def print_traceback(error: BaseException) -> None:
    """Print where an error came from, if the environment variable FEDSADDLE_TRACEBACK asks for it."""
    if os.environ.get(TRACEBACK, "") not in ("", "0"):
        traceback.print_exception(error)


def _how() -> str:
    return f"{TRACEBACK}=1 shows where"


def _line(text: str) -> str:
    return shortened(visible(text), LONGEST_MESSAGE)


class _Pipe(io.FileIO):
    """A pipe that ignores a reader that goes away: `fedsaddle run ... | head` must not end the run."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, or discard the data if the pipe is closed."""
        try:
            return super().write(data)
        except BrokenPipeError:
            return memoryview(data).nbytes


def _usable_stream(stream: Any) -> Any:
    """The stream, so that neither a name that it cannot encode nor a reader that went away is a reason to fail."""
    if stream is None:  # closed by whoever started the command
        return open(os.devnull, "w", encoding="utf-8")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    stream.reconfigure(errors="backslashreplace")
    try:
        number = stream.fileno()
        piped = stat.S_ISFIFO(os.fstat(number).st_mode) or stat.S_ISSOCK(os.fstat(number).st_mode)
    except (OSError, ValueError):
        return stream
    if not piped:
        return stream
    stream.flush()
    buffer = io.BufferedWriter(_Pipe(number, "wb", closefd=False))
    return io.TextIOWrapper(
        buffer, stream.encoding, "backslashreplace", line_buffering=stream.line_buffering, write_through=False
    )


if __name__ == "__main__":
    main()

"""What commands print: text for people or, with `--json`, one JSON document for programs.

Results go to standard output. Progress, notes and warnings go to standard error; `--quiet` leaves the first two out.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsaddle.commands.documents import SCHEMA, ErrorDocument, LinesDocument
from fedsaddle.errors import BadInput
from fedsaddle.files import Json
from fedsaddle.text import shortened, visible

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130  # exit code
LONGEST_VALUE = 400  # characters of a refused value


@dataclass
class Output:
    """How this command prints; reset for each command."""

    json: bool = False
    quiet: bool = False
    printed: bool = False  # whether the document is out
    lines: list[str] = field(default_factory=list)  # printed so far, for a document of lines

    def begin(self) -> None:
        """Forget the command before."""
        self.json = self.quiet = self.printed = False
        self.lines = []

    def screen(self) -> Console:
        """Where results for people go; nowhere with `--json`."""
        from rich.console import Console

        from fedsaddle.report.tables import console

        return Console(quiet=True) if self.json else console()

    def errors(self) -> Console:
        """Where progress, notes and warnings go."""
        from rich.console import Console

        return Console(stderr=True)

    def line(self, text: str) -> None:
        """Print a line of the result; with `--json` it waits for `emit_lines`."""
        self.lines.append(text)
        if not self.json:
            print(text)

    def emit(self, document: Mapping[str, object]) -> None:
        """Print the document of the command, if it is wanted; once, as the last thing.

        Args:
            document: One of `commands.documents`.
        """
        if self.json:
            print(json_text(document))
            self.printed = True

    def emit_lines(self, command: str, folder: Path) -> None:
        """Print the lines so far as a document."""
        document: LinesDocument = {
            "schema": SCHEMA,
            "command": command,
            "folder": str(folder),
            "lines": list(self.lines),
        }
        self.emit(document)

    def emit_error(self, kind: str, message: str, exit_code: int, error: BaseException | None = None) -> None:
        """Print an error as the document, unless the result is out already."""
        if self.printed:
            return
        key, value, remedy = (
            (error.key, _shown(error.value), error.remedy) if isinstance(error, BadInput) else (None, None, None)
        )
        document: ErrorDocument = {
            "schema": SCHEMA,
            "error": {
                "type": kind,
                "message": message,
                "exit_code": exit_code,
                "key": key,
                "value": value,
                "remedy": remedy,
            },
        }
        print(json_text(document))
        self.printed = True

    def interrupted(self, message: str) -> int:
        """Say that Ctrl-C ended the command; return the exit code."""
        typer.echo(message, err=True)
        if self.json:
            self.emit_error("interrupted", message, INTERRUPTED)
        return INTERRUPTED


output = Output()


def json_text(document: Mapping[str, object]) -> str:
    """The document as text; what is not finite is null.

    Examples:
        >>> json_text({"loss": float("nan"), "rounds": 3})
        '{\\n  "loss": null,\\n  "rounds": 3\\n}'
    """
    return json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False)


def plain(value: object) -> object:
    """The value with null in the place of NaN and infinity, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(one) for one in value]
    return value


def json_wanted(arguments: Sequence[str]) -> bool:
    """Whether `--json` is among the arguments, also of a command that cannot be understood otherwise."""
    before_dashes = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in before_dashes


def _shown(value: object) -> Json:
    """An invalid value, as text if JSON cannot represent it or if it is long."""
    if value is None or isinstance(value, bool | int | float):
        return value
    return shortened(visible(value if isinstance(value, str) else str(value)), LONGEST_VALUE)


def _want_json(wanted: bool) -> bool:
    output.json = output.json or wanted
    return wanted


def _want_quiet(wanted: bool) -> bool:
    output.quiet = output.quiet or wanted
    return wanted


JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar="",
        help="Print one JSON document instead of text.",
        callback=_want_json,
        is_eager=True,
        rich_help_panel="Output",
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        metavar="",
        help="Print results and errors only.",
        callback=_want_quiet,
        is_eager=True,
        rich_help_panel="Output",
    ),
]


def say(text: str) -> None:
    """Print a note to standard error, unless `--quiet`."""
    if not output.quiet:
        print(visible(text), file=sys.stderr)

"""Errors of the machine that nobody foresaw, in one line."""

from __future__ import annotations

import errno
import os
import traceback

from fedsaddle.errors import LONGEST_MESSAGE, FedSaddleError
from fedsaddle.shown import shortened, visible

TRACEBACK = "FEDSADDLE_TRACEBACK"  # this environment variable shows where an error came from
UNEXPECTED = 3  # exit code
_OF_THE_USER = (errno.ENAMETOOLONG, errno.ELOOP)
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


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

"""A log file in the folder of a run, independent of the log files of NVFlare and Flower.

A line starts with its time and level, or with `    | ` where it continues the line before: text of others, which may
hold line breaks or codes for terminals, can forge neither.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedsaddle.shown import shortened, visible

FILE = "log.txt"
CONTINUED = "\n    | "
LONGEST_LINE = 2000
MOST_LINES = 200


class SafeFormatter(logging.Formatter):
    """Time, level and text; what cannot be printed is escaped, and later lines are set in."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        return safe_lines(super().format(record))


def safe_lines(text: str) -> str:
    """The text with later lines set in, and without what could forge a line."""
    lines = [shortened(visible(line), LONGEST_LINE) for line in text.split("\n")[:MOST_LINES]]
    return CONTINUED.join(line.removeprefix("    | ") for line in lines)


def traceback_lines(reason: BaseException) -> str:
    """The traceback of an error, for a log: all but its first line are set in."""
    return safe_lines("".join(traceback.format_exception(reason)).rstrip("\n"))


class _PatientHandler(logging.FileHandler):
    """Leaves out a line that cannot be written."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, if the disk takes it."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say nothing: standard error may be on the same disk."""


@contextmanager
def log_to_folder(log: logging.Logger, folder: Path) -> Iterator[None]:
    """Make a logger also write to the log file in the folder."""
    with suppress(OSError):  # a disk that is full must not keep the site from saying so
        folder.mkdir(parents=True, exist_ok=True)
    handler = _PatientHandler(folder / FILE, encoding="utf-8", delay=True)
    handler.setFormatter(SafeFormatter())
    level = log.level
    if log.getEffectiveLevel() > logging.INFO:
        log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        with suppress(OSError):
            handler.close()

"""A log file in the folder of a run, independent of the log files of NVFlare and Flower."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = "log.txt"


@contextmanager
def log_to_folder(log: logging.Logger, folder: Path) -> Iterator[None]:
    """Make a logger also write to the log file in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(folder / FILE, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = log.level
    if log.getEffectiveLevel() > logging.INFO:
        log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        handler.close()

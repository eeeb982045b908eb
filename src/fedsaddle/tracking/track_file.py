"""track.json in a run's folder: which run of each tracker is this one, so that a resumed run continues it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fedsaddle.atomic import write_json
from fedsaddle.stored import Record, read_object

FILE = "track.json"


def read_track(folder: Path | None, tracker: str) -> Record:
    """What a tracker has stored; empty if nothing."""
    if folder is None or not (folder / FILE).exists():
        return {}
    with suppress(ValueError):
        found = read_object(folder / FILE).get(tracker)
        if isinstance(found, dict):
            return found
    return {}


def write_track(folder: Path | None, tracker: str, content: Record) -> None:
    """Store what a tracker has to know when the run is resumed."""
    if folder is None:
        return
    stored: Record = {}
    with suppress(ValueError):
        stored = read_object(folder / FILE)
    write_json(folder / FILE, {**stored, tracker: content})

"""What a run was made with, as plain values for trackers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.runs.folder import Record
from fedsaddle.runs.settings import Settings
from fedsaddle.shown import shortened, visible

_PLAIN = (bool, int, float, str)


def parameters_of(algorithm: Algorithm[Any], settings: Settings) -> Record:
    """The fields of the algorithm and of the settings, without those that are None; what is no number is text."""
    return {"algorithm": {"class": type(algorithm).__name__, **_fields(algorithm)}, "run": _fields(settings)}


def _fields(thing: object) -> Record:
    if not is_dataclass(thing):
        return {}
    found = {f.name: getattr(thing, f.name, None) for f in fields(thing) if not f.name.startswith("_")}
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _plain(value: object) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__
    return shortened(visible(value), 200) if isinstance(value, list | tuple) else type(value).__name__

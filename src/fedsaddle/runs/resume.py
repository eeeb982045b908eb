"""What has changed since a run began: its code, and the engine that it resumes with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fedsaddle.files import read_object, write_json
from fedsaddle.own_code import OURS, file_digest, loaded_files, named_packages
from fedsaddle.runs.folder import RunFolder
from fedsaddle.text import visible

_INSTALLED = {"site-packages", "dist-packages"}  # folders of libraries
_DEEPEST = 8  # objects in objects


def note_code(folder: RunFolder, *things: object) -> list[str]:
    """Note the files that the classes of these objects come from; lines that say which have changed since.

    Own code is that of packages named in a config, and whatever lies outside of the installed libraries; of scripts
    (`__main__`), which change when a run is resumed, nothing is noted.
    """
    files = {name: path for package in sorted(own_packages(*things)) for name, path in loaded_files(package).items()}
    if not files:
        return []
    try:
        before = read_object(folder.code)
    except ValueError:
        before = {}
    warnings, known = [], {name: [str(d) for d in used] for name, used in before.items() if isinstance(used, list)}
    for name, path in files.items():
        digest, used = file_digest(path), known.setdefault(name, [])
        if used and used[-1] != digest:
            told = f"{visible(path)} has changed since the run began; its later rounds are computed by other code"
            warnings.append(f"{told}: run it anew, unless you know that the change does not matter")
        if not used or used[-1] != digest:
            used.append(digest)
    write_json(folder.code, known)
    return warnings


def own_packages(*things: object) -> set[str]:
    """The packages that these objects, and what they hold, are of, without ours and the installed libraries."""
    found = {type(part).__module__.partition(".")[0] for thing in things for part in _parts(thing, _DEEPEST)}
    others = {OURS, "torch", "__main__", *sys.stdlib_module_names}
    return {package for package in found - others if package in named_packages() or not _installed(package)}


def _installed(package: str) -> bool:
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is None or bool(_INSTALLED & set(Path(file).parts))


def _parts(thing: Any, deep: int) -> Iterator[object]:
    """The object, and those in its fields."""
    yield thing
    if deep == 0:
        return
    inner: list[Any] = []
    if isinstance(thing, nn.Module):
        yield from thing.modules()
    elif is_dataclass(thing) and not isinstance(thing, type):
        inner = [getattr(thing, each.name, None) for each in fields(thing)]
    elif isinstance(thing, list | tuple):
        inner = list(thing[:100])
    for part in inner:
        yield from _parts(part, deep - 1)


BLOCKS = ("vectorised", "processes", "ray")  # engines that round alike: blocks of `chunk` clients, in cohort order


def rounding_of(settings: dict[str, Any]) -> dict[str, Any]:
    """What of an engine's settings rounds sums: the number of workers does not, nor which engine runs the blocks."""
    kept = {key: value for key, value in settings.items() if key not in ("workers", "device")}
    return {**kept, "name": BLOCKS[0]} if kept.get("name") in BLOCKS else kept


def on_another_device(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A warning about a checkpoint of another kind of device."""
    old, new = before.get("device", "cpu"), now.get("device", "cpu")
    told = f"the run began on {old} and goes on on {new}"
    return [] if old == new else [f"{told}; sums are rounded differently there, so the last digits may differ"]


def cut_by_workers(settings: dict[str, Any]) -> list[str]:
    """A warning about a checkpoint of an earlier version, whose blocks followed the number of workers."""
    workers = settings.get("workers", 1)
    if workers == 1 or settings.get("chunk", 1) == 1:
        return []
    told = f"the run began in an earlier version, which cut cohorts by its {workers} workers"
    return [f"{told}; from here on blocks have {settings['chunk']} clients, and the last digits may differ"]

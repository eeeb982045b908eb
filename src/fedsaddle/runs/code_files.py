"""code.json in the folder of a run: digests of the files of own code that computed it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from torch import nn

from fedsaddle.atomic import write_json
from fedsaddle.config.code_names import OURS
from fedsaddle.config.module_digest import file_digest, loaded_files
from fedsaddle.config.own_code import named_packages
from fedsaddle.runs.folder import RunFolder
from fedsaddle.shown import visible
from fedsaddle.stored import read_object

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

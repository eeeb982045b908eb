"""Names that installed packages bring by entry points, in groups such as `fedsaddle.algorithms`; none is imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fedsaddle.config.code_names import is_code
from fedsaddle.errors import BadInput
from fedsaddle.shown import visible

if TYPE_CHECKING:
    from importlib.metadata import Distribution

PREFIX = "fedsaddle."


@dataclass(frozen=True)
class Brought:
    """A name that a package brings."""

    name: str
    target: str  # "module:attribute"
    package: str  # and its version


def brought(group: str) -> tuple[Brought, ...]:
    """The names of a group, such as "algorithms", sorted."""
    return _read(tuple(sys.path)).get(group, ())


@lru_cache(maxsize=4)
def _read(path: tuple[str, ...]) -> dict[str, tuple[Brought, ...]]:
    """All entry points of our groups; read once, and again when Python looks elsewhere."""
    from importlib import metadata  # takes a while to import, and most runs need none of it

    found: dict[str, list[Brought]] = {}
    seen: set[str] = set()
    for package in metadata.distributions():
        for group, one in _of_package(package, seen):
            found.setdefault(group, []).append(one)
    return {group: tuple(sorted(names, key=lambda n: (n.name.lower(), n.package))) for group, names in found.items()}


def _of_package(package: Distribution, seen: set[str]) -> list[tuple[str, Brought]]:
    """Groups and names of one installed package; none of one whose files are damaged, or that comes a second time."""
    try:
        points = [point for point in package.entry_points if point.group.startswith(PREFIX)]
        name, version = (str(package.metadata[key]) for key in ("Name", "Version")) if points else ("", "")
    except Exception:  # whatever is wrong with it, others must not suffer
        return []
    if not points or name.lower().replace("_", "-") in seen:
        return []
    seen.add(name.lower().replace("_", "-"))
    return [
        (point.group.removeprefix(PREFIX), Brought(point.name, point.value.strip(), f"{name} {version}"))
        for point in points
        if not is_code(point.name)
    ]


def forget() -> None:
    """Read the installed packages again at the next look."""
    _read.cache_clear()


def find_brought(group: str, key: str, name: str) -> Brought | None:
    """The entry point of that name; None if there is none; `BadInput` if two packages bring it."""
    found = [one for one in brought(group) if one.name == name]
    if len({one.target for one in found}) > 1:
        who = " and ".join(f"{one.package} ({one.target})" for one in found)
        raise BadInput(key, name, f"is the name of two things: {who}; write the one that you mean as module:name")
    return found[0] if found else None


def clashes(group: str, ours: Mapping[str, object]) -> list[str]:
    """A line for each name of a package that is one of ours already, or of another package."""
    lines: list[str] = []
    seen: dict[str, Brought] = {}
    for one in brought(group):
        if one.name in ours:
            told = (
                f"{one.package} brings {group} {one.name!r}, as fedsaddle does: ours counts; theirs is {one.target!r}"
            )
            lines.append(visible(told))
        elif one.name in seen and seen[one.name].target != one.target:
            other = seen[one.name]
            both = f"{other.package} and {one.package} both bring {group} {one.name!r}"
            told = f"{both}: write {other.target!r} or {one.target!r}"
            lines.append(visible(told))
        seen.setdefault(one.name, one)
    return lines

"""Digests of modules: found and read without importing them, since an import runs code."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, all_suffixes
from importlib.util import find_spec
from pathlib import Path

from fedsaddle.config.code_names import is_module
from fedsaddle.errors import BadInput

PREFIX = "sha256:"
MOST_FILES, MOST_BYTES = 5_000, 100_000_000  # of a package


def digest_of(module: str, key: str = "module") -> str:
    """`sha256:...` of a module: of its file or, if it is or lies in a package, of all code of that package.

    The code of a package is every file in it that Python can import (`.py`, compiled extensions; not `__pycache__`).
    The digest is that of lines `SHA-256 of the file, two spaces, path in the package`, sorted by path, as `sha256sum`
    prints them. What the code imports from elsewhere is not in it.

    Raises:
        BadInput: if there is no such module, or it is too large to be somebody's own.
    """
    files: list[tuple[str, Path]] = []
    total = 0
    for path, file in _files(module, key):
        files.append((path, file))
        total += file.stat().st_size
        if total > MOST_BYTES or len(files) > MOST_FILES:
            most = f"{MOST_FILES} files or {MOST_BYTES // 1_000_000} MB"
            raise BadInput(key, module, f"has more than {most} of code; put yours into a module apart")
    if not files:
        raise BadInput(key, module, "has no files that can be read, so it has no digest; install it unpacked")
    text = "".join(f"{file_digest(file)}  {path}\n" for path, file in sorted(files))
    return PREFIX + hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, 64 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def places_of(module: str, key: str = "module") -> list[Path]:
    """The file of a module that stands alone, or the folders of the package that it lies in; nothing is imported."""
    package = module.partition(".")[0]
    spec = _spec(package) if is_module(module) else None
    if spec is None:
        raise BadInput(key, module, "there is no such module here; install the package that holds it")
    if spec.submodule_search_locations is not None:
        return [Path(place) for place in spec.submodule_search_locations]
    if spec.origin is None or not spec.has_location:
        raise BadInput(key, module, "is no file, so it has no digest")
    return [Path(spec.origin)]


def _spec(package: str) -> ModuleSpec | None:
    """Where a module of the top level is; that of a dotted name would import what is above it."""
    try:
        return find_spec(package)
    except (ImportError, ValueError, AttributeError):  # ValueError: loaded, without a place
        return None


def _files(module: str, key: str) -> Iterator[tuple[str, Path]]:
    package = module.partition(".")[0]
    for place in places_of(module, key):
        if place.is_file():
            yield place.name, place
            continue
        for folder, inner, names in os.walk(place):
            here = Path(folder)
            inner[:] = [name for name in inner if name != "__pycache__"]
            for name in inner:
                if (here / name).is_symlink():
                    raise BadInput(key, module, f"has a symbolic link to a folder in it ({here / name}); remove it")
            for name in names:
                if name.endswith(tuple(all_suffixes())):
                    yield "/".join((package, *(here / name).relative_to(place).parts)), here / name


def holds(place: Path, file: str | None) -> bool:
    """Whether a loaded module's file is that file, or lies in that folder."""
    if file is None:
        return False
    found, whole = Path(file).resolve(), place.resolve()
    return found == whole or whole in found.parents


def loaded_files(package: str) -> dict[str, Path]:
    """The files of all modules of a package that are imported, by the names of the modules."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] == package and isinstance(file, str) and Path(file).is_file():
            found[name] = Path(file)
    return found

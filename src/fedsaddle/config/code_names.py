"""Names of code outside of the library: `module:attribute`, and where such modules are looked for."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path

from fedsaddle.errors import BadInput

LONGEST = 200  # characters of a name
OURS = "fedsaddle"
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_FOLDERS: list[Path] = []  # of configs, in the order in which they were read


@dataclass(frozen=True)
class CodeName:
    """A module and a name in it."""

    module: str
    attribute: str

    @property
    def package(self) -> str:
        """What an import of the module begins with: the package that holds it, or the module itself."""
        return self.module.partition(".")[0]


def is_code(name: object) -> bool:
    """Whether a name is one of code, not of a table: it has a colon."""
    return isinstance(name, str) and ":" in name


def parse(key: str, name: str) -> CodeName:
    """Read `module:attribute`; raise `BadInput` for anything else, and for modules that nobody's own code is in."""
    module, _, attribute = name.partition(":")
    if len(name) > LONGEST or not is_module(module) or not _ATTRIBUTE.fullmatch(attribute) or iskeyword(attribute):
        raise BadInput(key, name, "write module:name, such as my_package.fedprox:FedProx; a plain name has no colon")
    found = CodeName(module, attribute)
    if found.package == OURS:
        raise BadInput(key, name, "is code of the library itself; use a plain name of `fedsaddle list`")
    if found.package in sys.stdlib_module_names or found.package == "__main__":
        raise BadInput(key, name, f"{found.package} is a module of Python itself; if it is yours, rename it")
    return found


def is_module(name: str) -> bool:
    """Whether this can be the dotted name of a module."""
    return bool(_MODULE.fullmatch(name)) and not any(iskeyword(part) for part in name.split("."))


def search_in(folder: Path) -> None:
    """Look for modules in the folder of this config, too, from the first name with a colon on."""
    place = Path(os.path.abspath(folder))
    if place not in _FOLDERS:
        _FOLDERS.append(place)


def folders() -> list[Path]:
    """Where modules are looked for after the installed packages: folders of configs, then the current one."""
    try:
        here = [Path.cwd()]
    except OSError:  # the folder was removed
        here = []
    return [*_FOLDERS, *(place for place in here if place not in _FOLDERS)]


def open_folders() -> None:
    """Let Python look there, too; after all else, so that nothing that is installed is hidden."""
    for place in map(str, folders()):
        if place not in sys.path:
            sys.path.append(place)

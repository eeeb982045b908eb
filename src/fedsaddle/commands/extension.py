"""`fedsaddle init --extension`: a package of one's own, with an algorithm, a model, tests and entry points."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from fedsaddle import __version__
from fedsaddle.atomic import write_atomically
from fedsaddle.commands.output import output
from fedsaddle.config.code_names import OURS, is_module
from fedsaddle.errors import BadInput
from fedsaddle.shown import visible
from fedsaddle.writable import make_folder, require_folder, require_path

TEMPLATE = Path(__file__).with_name("extension_template")
FILES = {  # of the template -> of the package
    "pyproject.toml.txt": "pyproject.toml",
    "README.md.txt": "README.md",
    "example.toml.txt": "example.toml",
    "init.py.txt": "src/@PACKAGE@/__init__.py",
    "proximal.py.txt": "src/@PACKAGE@/proximal.py",
    "networks.py.txt": "src/@PACKAGE@/networks.py",
    "test_proximal.py.txt": "tests/test_proximal.py",
}
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


def extension(name: str, out: Path | None = None) -> None:
    """Write the package `name` to a new folder: `out`, by default one of that name."""
    package = name.replace("-", "_")
    if not _NAME.fullmatch(name) or len(name) > 60 or not is_module(package):
        raise BadInput("--extension", name, "use lower-case letters, digits and '-', such as my-package")
    if package in sys.stdlib_module_names or package == OURS:
        raise BadInput("--extension", name, "is the name of another module; choose your own")
    folder = Path(name) if out is None else out
    require_path("--out", folder)
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput("--out", str(folder), "already exists; choose another folder")
    require_folder("--out", folder)
    for source, target in FILES.items():
        path = folder / target.replace("@PACKAGE@", package)
        make_folder("--out", path.parent)
        text = (TEMPLATE / source).read_text(encoding="utf-8")
        for mark, value in {"@NAME@": name, "@PACKAGE@": package, "@VERSION@": __version__}.items():
            text = text.replace(mark, value)
        write_atomically(path, text.encode())
    where = visible(folder)
    output.line(f"written to {where}; install it with: pip install -e '{where}[test]', then: cd {where} && pytest")
    output.emit_lines("init", folder)

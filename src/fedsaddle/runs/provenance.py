"""With what a run was made: versions, machine, date, the command, and the digest of a table."""

from __future__ import annotations

import hashlib
import platform
import shlex
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedsaddle.atomic import write_json
from fedsaddle.stored import Record

PROVENANCE = "provenance.json"
PACKAGES = ("fedsaddle", "torch", "numpy", "scipy", "pandas", "scikit-learn", "safetensors", "nvflare", "flwr")


def write_provenance(folder: Path, table: Path | None = None) -> None:
    """Write provenance.json; `table` is the file whose rows were used."""
    write_json(folder / PROVENANCE, provenance(table))


def provenance(table: Path | None = None) -> Record:
    """Versions, machine, date, command and the table's digest."""
    found: Record = {
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "versions": {"python": platform.python_version(), **_versions()},
        "machine": f"{platform.system()} {platform.machine()}",
    }
    if table is not None:
        found["table"] = {"file": table.name, "sha256": _digest(table)}
    return found


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _command() -> str | None:
    """The command line, if this process is `fedsaddle`."""
    if Path(sys.argv[0]).stem != "fedsaddle":
        return None
    return shlex.join(["fedsaddle", *sys.argv[1:]])


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None

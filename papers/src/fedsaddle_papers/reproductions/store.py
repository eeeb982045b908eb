"""Results of runs on disk: each (line, seed) as JSON, named by a fingerprint of all its settings.

What is there is not run again. Labels and colours are no settings, so that figures that share a line share its runs.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedsaddle import __version__
from fedsaddle.files import make_folder, write_atomically
from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.reproductions.figure import Line, Setting

SCHEME = 1  # raise it when stored results no longer mean the same
COSMETIC = ("label", "colour", "style", "legend", "tuned", "chunk")


def settings_of(setting: Setting, line: Line, seed: int) -> dict[str, Any]:
    """All that a result depends on, as plain JSON."""
    own = {k: v for k, v in asdict(line).items() if k not in COSMETIC}
    shared = asdict(setting)
    data = {**shared.pop("data"), **own.pop("data")}
    return {"scheme": SCHEME, "data": data, "setting": shared, "line": own, "seed": seed}


def fingerprint(setting: Setting, line: Line, seed: int) -> str:
    """A name for a run, the same for the same settings."""
    text = json.dumps(settings_of(setting, line, seed), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def read_curves(file: Path, label: str, seed: int) -> RunCurves | None:
    """The curves of a file under this label; None if it is not there, or cannot be read."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return RunCurves(
            label, seed, content["columns"], content["diverged"], content["selected"], content["processor"]
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_curves(file: Path, curves: RunCurves, settings: dict[str, Any]) -> None:
    """Store a run's curves with its settings."""
    make_folder("out", file.parent)
    content = {
        "fedsaddle": __version__,
        "columns": curves.columns,
        "diverged": curves.diverged,
        "selected": curves.selected,
        "processor": curves.processor,
        "settings": settings,
    }
    write_atomically(file, json.dumps(content, ensure_ascii=False, allow_nan=True).encode())


@dataclass(frozen=True)
class Store:
    """A folder of results."""

    folder: Path

    def find(self, setting: Setting, line: Line, seed: int) -> RunCurves | None:
        """The stored curves under the line's label; None if they are not there, or cannot be read."""
        return read_curves(self._file(setting, line, seed), line.label, seed)

    def keep(self, setting: Setting, line: Line, curves: RunCurves) -> None:
        """Store a run's curves with its settings."""
        write_curves(self._file(setting, line, curves.seed), curves, settings_of(setting, line, curves.seed))

    def _file(self, setting: Setting, line: Line, seed: int) -> Path:
        return self.folder / f"{fingerprint(setting, line, seed)}.json"

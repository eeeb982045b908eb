"""Curves of runs on disk, each as JSON in a file that is named by a fingerprint of all its settings.

Labels and colours are no settings, so that figures that share a line share its runs.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from fedsaddle import __version__
from fedsaddle.files import make_folder, write_atomically
from fedsaddle.studies.pool import digest_of
from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.reproductions.figure import Line, Setting

SCHEME = 1  # raise it when stored results no longer mean the same
COSMETIC = ("label", "colour", "style", "legend", "tuned", "chunk")


class Job(Protocol):
    """A run of a figure or of a benchmark."""

    @property
    def label(self) -> str:
        """Of its curves."""

    @property
    def seed(self) -> int:
        """Of all draws."""

    @property
    def settings(self) -> dict[str, Any]:
        """All that its curves depend on, as plain JSON."""


def settings_of(setting: Setting, line: Line, seed: int) -> dict[str, Any]:
    """All that a line's curves depend on."""
    own = {k: v for k, v in asdict(line).items() if k not in COSMETIC}
    shared = asdict(setting)
    data = {**shared.pop("data"), **own.pop("data")}
    return {"scheme": SCHEME, "data": data, "setting": shared, "line": own, "seed": seed}


@dataclass(frozen=True)
class Store:
    """A folder of curves."""

    folder: Path

    def fingerprint(self, job: Job) -> str:
        """The name of the file, the same for the same settings."""
        return digest_of(job.settings)

    def find(self, job: Job) -> RunCurves | None:
        """The stored curves under the job's label; None if they are not there, or cannot be read."""
        try:
            content = json.loads(self._file(job).read_text(encoding="utf-8"))
            return RunCurves(
                job.label, job.seed, content["columns"], content["diverged"], content["selected"], content["processor"]
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, job: Job, curves: RunCurves) -> None:
        """Store a run's curves with its settings."""
        make_folder("out", self.folder)
        content = {
            "fedsaddle": __version__,
            "columns": curves.columns,
            "diverged": curves.diverged,
            "selected": curves.selected,
            "processor": curves.processor,
            "settings": job.settings,
        }
        write_atomically(self._file(job), json.dumps(content, ensure_ascii=False, allow_nan=True).encode())

    def _file(self, job: Job) -> Path:
        return self.folder / f"{self.fingerprint(job)}.json"

"""The runs in a folder and below it: of a search, a sweep, or one by one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedsaddle.shown import shortened, visible
from fedsaddle.watching.state import Watched

DEEPEST = 5  # folders below the one that is named
MOST = 500  # runs
MOST_FOLDERS = 20_000  # that are looked at
SIGNS = ("metrics.jsonl", "deployment.json")
PASSED_OVER = frozenset({"checkpoints", "tensorboard", "wandb"})  # folders in that of a run
BASELINE = "fedavg"  # in the folder of a run: shown with it


@dataclass
class Found:
    """The runs of some folders; those that begin later are found later."""

    folders: Sequence[Path]
    runs: dict[str, Watched] = field(default_factory=dict)  # by key
    more: bool = False  # whether there are more than are followed

    def look(self) -> None:
        """Find runs that are new. A folder without any stands for itself, and is waited for."""
        before, self.runs, self.more = self.runs, {}, False
        for folder in self.folders:
            below = [*_below(folder)]
            for path in below or [folder]:
                if len(self.runs) >= MOST:
                    self.more = True
                    return
                key = key_of(path)
                self.runs[key] = before.get(key) or Watched(path, _name(path, folder))


def key_of(path: Path) -> str:
    """A short name for a folder that can stand in an address."""
    return "r" + hashlib.sha256(os.fsencode(os.path.abspath(path))).hexdigest()[:12]


def _name(path: Path, folder: Path) -> str:
    above = Path(os.path.abspath(folder))
    said = above.name if path == folder else str(Path(above.name) / path.relative_to(folder))
    return shortened(visible(said or str(above)), 200)


def _below(folder: Path) -> Iterator[Path]:
    """The runs in a folder, by name; links are not followed."""
    left, waiting = MOST_FOLDERS, [(folder, 0)]
    while waiting and left > 0:
        path, depth = waiting.pop()
        left -= 1
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        if is_run := any(entry.name in SIGNS for entry in entries):
            yield path
        passed_over = {*PASSED_OVER, *([BASELINE] if is_run else [])}
        if depth < DEEPEST:
            waiting += [
                (path / entry.name, depth + 1)
                for entry in entries
                if not entry.name.startswith(".") and entry.name not in passed_over and _is_folder(entry)
            ]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False

"""Follows the runs of some folders and makes the parts of the page that have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from fedsaddle.report.page.live import LivePage, render_live, render_runs
from fedsaddle.watching.content import head_part, names_of, parts_of, row_of, together_part
from fedsaddle.watching.find_runs import MOST, Found
from fedsaddle.watching.state import Watched

SIDE_BY_SIDE = 3  # runs that are shown unless others are asked for
MOST_SHOWN = 12
LISTED = 200  # runs in the list
PAUSE, LOOK = 0.5, 3.0  # seconds between two readings of files, and between two looks for new runs

Parts = dict[str, str]


@dataclass
class Watch:
    """The runs, and the parts of the page about them. Several threads may ask at the same time."""

    folders: Sequence[Path]
    pause: float = PAUSE
    look: float = LOOK
    _found: Found = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _followed: set[str] = field(default_factory=set)  # runs whose records are all read
    _read: float = float("-inf")
    _looked: float = float("-inf")
    _made: dict[str, tuple[object, list[tuple[str, str]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._found = Found(self.folders)

    def page(self, asked: Sequence[str], events: str) -> tuple[str, str]:
        """The whole page with its policy, for the runs that are asked for."""
        with self._lock:
            self._update(asked)
            shown = self._shown(asked)
            parts = self._parts(shown)
            own = [
                (key, run.name, [(p, parts[p]) for p in parts if p.startswith(f"{key}-")]) for key, run in shown.items()
            ]
            frame = [(key, parts[key]) for key in ("runs", "together")]
            title = f"Watching {names_of([*self._found.runs.values()])}"
        return render_live(LivePage(title, frame, own, events))

    def news(self, asked: Sequence[str]) -> tuple[str, Parts]:
        """Which runs are shown, as one text, and all parts of the page."""
        with self._lock:
            self._update(asked)
            shown = self._shown(asked)
            return ",".join(shown), self._parts(shown)

    def states(self) -> dict[str, str]:
        """The name of each run and its state."""
        with self._lock:
            self._update(())
            return {run.name: run.state.word for run in self._found.runs.values()}

    def _update(self, asked: Sequence[str]) -> None:
        now = time.monotonic()
        if now - self._looked >= self.look:
            self._looked = now
            self._found.look()
        runs = self._found.runs
        if now - self._read >= self.pause:
            self._read = now
            for key, run in runs.items():
                run.read(key in self._followed)
        for key in self._shown(asked).keys() - self._followed:
            self._followed.add(key)
            runs[key].read()

    def _shown(self, asked: Sequence[str]) -> dict[str, Watched]:
        """The runs that are asked for; else a few: those that run, then those that were written to last."""
        runs = self._found.runs
        if chosen := {key: runs[key] for key in runs if key in asked}:
            return dict([*chosen.items()][:MOST_SHOWN])
        order = sorted(runs, key=lambda key: (not runs[key].state.live, -_touched(runs[key])))
        few = set(order if len(runs) <= SIDE_BY_SIDE else order[:1])
        return {key: run for key, run in runs.items() if key in few}

    def _parts(self, shown: dict[str, Watched]) -> Parts:
        """The parts of the page; those of a run are made anew only when its files have changed."""
        parts: Parts = {"runs": self._list(shown)}
        stamp = tuple((key, run.records.version, run.state.live) for key, run in shown.items())
        parts |= dict(self._kept("together", stamp, lambda: [together_part(shown)]))
        for key, run in shown.items():
            parts |= dict([head_part(key, run)])
            sites = str(run.progress.get("sites"))
            own = (run.records.version, run.baseline.version, run.version, run.state.word, sites, tuple(run.log))
            parts |= dict(self._kept(key, own, partial(parts_of, key, run)))
        return parts

    def _kept(self, key: str, stamp: object, make: Callable[[], list[tuple[str, str]]]) -> list[tuple[str, str]]:
        before = self._made.get(key)
        if before is None or before[0] != stamp:
            self._made[key] = before = (stamp, make())
        return before[1]

    def _list(self, shown: dict[str, Watched]) -> str:
        runs = self._found.runs
        if len(runs) < 2:
            return ""
        rows = [row_of(key, run, key in shown) for key, run in [*runs.items()][:LISTED]]
        listed = f"{LISTED} of {len(runs):,} runs are listed" if len(runs) > LISTED else ""
        more = f"; there are more than the {MOST} that are followed" if self._found.more else ""
        return render_runs(rows, f"{listed}{more}.".lstrip("; ") if listed or more else "")


def _touched(run: Watched) -> float:
    try:
        return run.records.path.stat().st_mtime
    except OSError:
        return 0.0

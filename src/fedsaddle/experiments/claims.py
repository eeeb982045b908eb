"""Claims of a paper, judged on paired seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from fedsaddle.experiments.tracks import Floats, Tracks, interval


@dataclass(frozen=True)
class Claim:
    """What a paper says, what was measured, and whether it holds."""

    claim: str
    paper: str
    measured: str
    holds: bool

    def to_dict(self) -> dict[str, str | bool]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Figures:
    """One number a seed, and how it is printed."""

    name: str
    values: Floats
    reached: int | None = None  # seeds that got there, where not all may; the others count with the whole run
    digits: int = 0

    def __str__(self) -> str:
        mean = f"{self.values.mean():.{self.digits}f}"
        if self.reached is None or self.reached == len(self.values):
            return f"{self.name} {mean}"
        if self.reached == 0:
            return f"{self.name} never in {mean}"
        return f"{self.name} over {mean} ({self.reached} of {len(self.values)} seeds)"


def time_to(
    tracks: Tracks, label: str, target: float, *, column: str = "test worst", window: int = 1, unit: str = "round"
) -> Figures:
    """Rounds or local steps to a level; a run that never gets there counts with its whole length."""
    hits = [t.reached(column, target, window=window, unit=unit) for t in tracks[label]]
    ends = [t.columns[unit][-1] for t in tracks[label]]
    values = np.array([end if hit is None else hit for hit, end in zip(hits, ends, strict=True)])
    return Figures(label, values, sum(hit is not None for hit in hits))


def time_to_same_level(
    tracks: Tracks, one: str, other: str, column: str, *, window: int, falling: bool = False
) -> tuple[Figures, Figures]:
    """Rounds until two lines get to the level that both keep: seed by seed, the poorer of their last levels."""
    poorer: Callable[[float, float], float] = max if falling else min
    times: list[list[float]] = [[], []]
    for pair in zip(tracks[one], tracks[other], strict=True):
        level = poorer(pair[0].level(column), pair[1].level(column))
        for found, track in zip(times, pair, strict=True):
            hit = track.reached(column, level, window=window, falling=falling)
            found.append(track.columns["round"][-1] if hit is None else hit)
    return Figures(one, np.array(times[0])), Figures(other, np.array(times[1]))


def levels(tracks: Tracks, label: str, column: str, rounds: int) -> Figures:
    """The mean of a column over the last rounds, in per cent."""
    return Figures(label, np.array([100 * t.level(column, rounds) for t in tracks[label]]), digits=1)


def values_at(tracks: Tracks, label: str, column: str, place: float, unit: str = "round") -> Figures:
    """The running mean of a column at a round or a local step, in per cent."""
    return Figures(label, np.array([100 * t.at(column, place, unit=unit) for t in tracks[label]]), digits=1)


def overall(tracks: Tracks, label: str, column: str) -> Figures:
    """The mean of a column over the whole run, in per cent."""
    return Figures(label, np.array([100 * t.column(column).mean() for t in tracks[label]]), digits=1)


def less(claim: str, paper: str, one: Figures, other: Figures) -> Claim:
    """Holds if `one` is below `other` and the 95 % interval of the paired difference leaves out 0."""
    measured, _, high = _difference(one, other)
    return Claim(claim, paper, measured, bool(high < 0))


def more(claim: str, paper: str, one: Figures, other: Figures) -> Claim:
    """Holds if `one` is above `other` and the 95 % interval of the paired difference leaves out 0."""
    measured, low, _ = _difference(one, other)
    return Claim(claim, paper, measured, bool(low > 0))


def no_less(claim: str, paper: str, one: Figures, other: Figures, margin: float) -> Claim:
    """Holds if the 95 % interval of the paired difference lies above -`margin`."""
    measured, low, _ = _difference(one, other)
    return Claim(claim, paper, measured, bool(low > -margin))


def never(claim: str, paper: str, found: Figures) -> Claim:
    """Holds if no seed got there."""
    return Claim(claim, paper, f"{found.reached} of {len(found.values)} seeds; {found}", found.reached == 0)


def _difference(one: Figures, other: Figures) -> tuple[str, float, float]:
    mean, low, high = (float(v) for v in interval(one.values - other.values))
    d = max(one.digits, other.digits)
    return f"{one}, {other}: {mean:+.{d}f} [{low:+.{d}f}, {high:+.{d}f}]", low, high

"""Claims of a paper, judged on paired seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from fedsaddle.reproductions.tracks import Floats, Tracks, interval

Bools = NDArray[np.bool_]


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
    cut: Bools | None = None  # seeds that never got there: their value is the length of the run, a lower bound
    digits: int = 0

    @property
    def bounds(self) -> Bools:
        """Which values are only lower bounds."""
        return np.zeros(len(self.values), dtype=bool) if self.cut is None else self.cut

    def __str__(self) -> str:
        mean, reached = f"{self.values.mean():.{self.digits}f}", int((~self.bounds).sum())
        if reached == len(self.values):
            return f"{self.name} {mean}"
        if reached == 0:
            return f"{self.name} never in {mean}"
        return f"{self.name} over {mean} ({reached} of {len(self.values)} seeds)"

    def minus(self, other: Figures) -> Floats:
        """The paired differences; a sign that lower bounds leave open counts as no difference."""
        d = self.values - other.values
        d = np.where(self.bounds, np.maximum(d, 0), d)
        return np.where(other.bounds, np.minimum(d, 0), d)


def time_to(
    tracks: Tracks,
    label: str,
    target: float | Floats,
    *,
    column: str = "test worst",
    window: int = 1,
    unit: str = "round",
    falling: bool = False,
) -> Figures:
    """Rounds or local steps to a level, one for all seeds or each seed's own; of a run that never gets there, its
    whole length as a lower bound."""
    runs = tracks[label]
    targets = np.broadcast_to(target, len(runs))
    hits = [
        t.reached(column, level, window=window, unit=unit, falling=falling)
        for t, level in zip(runs, targets.tolist(), strict=True)
    ]
    last = [t.columns[unit][-1] for t in runs]
    values = np.array([end if hit is None else hit for hit, end in zip(hits, last, strict=True)])
    return Figures(label, values, np.array([hit is None for hit in hits]))


def ends(tracks: Tracks, label: str, column: str, rounds: int) -> Floats:
    """The mean of a column over the last rounds, seed by seed: a level for other lines to get to."""
    return np.array([t.level(column, rounds) for t in tracks[label]])


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


def overall(tracks: Tracks, label: str, column: str, rounds: int) -> Figures:
    """The mean of a column over the first rounds, in per cent."""
    means = [100 * t.column(column)[t.column("round") <= rounds].mean() for t in tracks[label]]
    return Figures(label, np.array(means), digits=1)


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
    reached = int((~found.bounds).sum())
    return Claim(claim, paper, f"{reached} of {len(found.values)} seeds; {found}", reached == 0)


def _difference(one: Figures, other: Figures) -> tuple[str, float, float]:
    mean, low, high = (float(v) for v in interval(one.minus(other)))
    d = max(one.digits, other.digits)
    return f"{one}, {other}: {mean:+.{d}f} [{low:+.{d}f}, {high:+.{d}f}]", low, high

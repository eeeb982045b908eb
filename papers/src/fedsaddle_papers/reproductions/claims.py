"""Secondary claims of a figure, tested on paired seeds; those that count stand in hypotheses_of_papers.py.

A comparison of two lines is the difference seed by seed. "A is lower than B" holds if the 95 % t-interval of the
paired difference lies below 0, and is refuted if it lies above; "A is not inferior to B" holds if it lies above minus a
margin, and is refuted if it lies below. Everything else is undecided, and there are no data if neither side gets there.
These intervals are not corrected for their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from fedsaddle.array_types import Bools, Floats
from fedsaddle.metrics.intervals import t_interval
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.verdicts import HOLDS, NO_DATA, REFUTED, UNDECIDED


@dataclass(frozen=True)
class Claim:
    """What a paper claims, what was measured, and the verdict."""

    claim: str
    paper: str
    measured: str
    verdict: str  # of `verdicts.VERDICTS`

    @property
    def holds(self) -> bool:
        """Whether the claim holds."""
        return self.verdict == HOLDS

    def to_dict(self) -> dict[str, str]:
        """The claim as plain JSON."""
        return asdict(self)


@dataclass(frozen=True)
class SeedValues:
    """One number for each seed, with its name and the digits that are printed."""

    name: str
    values: Floats
    censored: Bools | None = None  # seeds that never reach the target: their value, the run's length, is a lower bound
    digits: int = 0

    @property
    def lower_bounds(self) -> Bools:
        """Which values are lower bounds only."""
        return np.zeros(len(self.values), dtype=bool) if self.censored is None else self.censored

    def __str__(self) -> str:
        mean, reached = f"{self.values.mean():.{self.digits}f}", int((~self.lower_bounds).sum())
        if reached == len(self.values):
            return f"{self.name} {mean}"
        if reached == 0:
            return f"{self.name} never in {mean}"
        return f"{self.name} over {mean} ({reached} of {len(self.values)} seeds)"

    def difference(self, other: SeedValues) -> Floats:
        """The paired differences; 0 where lower bounds leave the sign open."""
        d = self.values - other.values
        d = np.where(self.lower_bounds, np.maximum(d, 0), d)
        return np.where(other.lower_bounds, np.minimum(d, 0), d)


def time_to_target(
    runs: Runs,
    label: str,
    target: float | Floats,
    *,
    column: str = "test worst",
    window: int = 1,
    unit: str = "round",
    falling: bool = False,
) -> SeedValues:
    """Rounds or local steps until a column reaches `target`.

    Args:
        runs: all runs of the figure.
        label: the line.
        target: one level for all seeds, or one for each.
        column: the column that is to reach it.
        window: rounds of the running mean.
        unit: the cost that is counted, such as "local_steps".
        falling: whether the target is reached from above.

    A run that never reaches the target counts with its whole length, as a lower bound.
    """
    curves = runs[label]
    targets = np.broadcast_to(target, len(curves))
    times = [
        c.first_reached(column, level, window=window, unit=unit, falling=falling)
        for c, level in zip(curves, targets.tolist(), strict=True)
    ]
    lengths = [c.columns[unit][-1] for c in curves]
    values = np.array([length if time is None else time for time, length in zip(times, lengths, strict=True)])
    return SeedValues(label, values, np.array([time is None for time in times]))


def time_to_common_level(
    runs: Runs, one: str, other: str, column: str, *, window: int, falling: bool = False
) -> tuple[SeedValues, SeedValues]:
    """Rounds until each of two lines reaches the level that both attain: for each seed the worse final level."""
    worse: Callable[[float, float], float] = max if falling else min
    times: list[list[float]] = [[], []]
    for pair in zip(runs[one], runs[other], strict=True):
        level = worse(pair[0].final_level(column), pair[1].final_level(column))
        for found, curves in zip(times, pair, strict=True):
            time = curves.first_reached(column, level, window=window, falling=falling)
            found.append(curves.columns["round"][-1] if time is None else time)
    return SeedValues(one, np.array(times[0])), SeedValues(other, np.array(times[1]))


def final_level(runs: Runs, label: str, column: str, rounds: int) -> Floats:
    """The mean of a column over the last rounds, for each seed."""
    return np.array([c.final_level(column, rounds) for c in runs[label]])


def final_percent(runs: Runs, label: str, column: str, rounds: int) -> SeedValues:
    """The mean of a column over the last rounds, in per cent."""
    return SeedValues(label, np.array([100 * c.final_level(column, rounds) for c in runs[label]]), digits=1)


def percent_at(runs: Runs, label: str, column: str, place: float, unit: str = "round") -> SeedValues:
    """The running mean of a column at a round or a local step, in per cent."""
    return SeedValues(label, np.array([100 * c.value_at(column, place, unit=unit) for c in runs[label]]), digits=1)


def mean_percent(runs: Runs, label: str, column: str, rounds: int) -> SeedValues:
    """The mean of a column over the first rounds, in per cent."""
    means = [100 * c.column(column)[c.column("round") <= rounds].mean() for c in runs[label]]
    return SeedValues(label, np.array(means), digits=1)


def lower(claim: str, paper: str, one: SeedValues, other: SeedValues) -> Claim:
    """Holds if the 95 % interval of the paired difference `one - other` lies below 0."""
    measured, low, high = _difference(one, other)
    return Claim(claim, paper, measured, _verdict(one, other, high < 0, low > 0))


def higher(claim: str, paper: str, one: SeedValues, other: SeedValues) -> Claim:
    """Holds if the 95 % interval of the paired difference `one - other` lies above 0."""
    measured, low, high = _difference(one, other)
    return Claim(claim, paper, measured, _verdict(one, other, low > 0, high < 0))


def non_inferior(claim: str, paper: str, one: SeedValues, other: SeedValues, margin: float) -> Claim:
    """Holds if the 95 % interval of the paired difference `one - other` lies above `-margin`."""
    measured, low, high = _difference(one, other)
    return Claim(claim, paper, measured, _verdict(one, other, low > -margin, high < -margin))


def never_reached(claim: str, paper: str, times: SeedValues) -> Claim:
    """Holds if no seed reaches the target, and is refuted if most do."""
    reached, seeds = int((~times.lower_bounds).sum()), len(times.values)
    verdict = HOLDS if reached == 0 else REFUTED if reached > seeds / 2 else UNDECIDED
    return Claim(claim, paper, f"{reached} of {seeds} seeds; {times}", verdict)


def _verdict(one: SeedValues, other: SeedValues, holds: bool, refuted: bool) -> str:
    if (one.lower_bounds & other.lower_bounds).all():
        return NO_DATA
    return HOLDS if holds else REFUTED if refuted else UNDECIDED


def _difference(one: SeedValues, other: SeedValues) -> tuple[str, float, float]:
    mean, low, high = (float(v) for v in t_interval(one.difference(other)))
    d = max(one.digits, other.digits)
    return f"{one}, {other}: {mean:+.{d}f} [{low:+.{d}f}, {high:+.{d}f}]", low, high

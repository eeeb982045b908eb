"""The effects of a hypothesis, seed by seed, from the curves of a figure's runs; and the verdicts of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp
from typing import Any

import numpy as np

from fedsaddle.array_types import Floats
from fedsaddle_papers.reproductions.curves import LAST, RunCurves, Runs
from fedsaddle_papers.reproductions.hypotheses import (
    BELOW_LEVEL,
    Decline,
    Final,
    Hypothesis,
    Mean,
    Measure,
    Peak,
    Selected,
    Times,
)
from fedsaddle_papers.reproductions.verdicts import Effects, Finding, judge

BETWEEN = " | "  # a label "a | b" stands for the distance of two lines


@dataclass(frozen=True)
class Judged:
    """A hypothesis with its finding, in words."""

    hypothesis: Hypothesis
    finding: Finding
    measured: str

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self.hypothesis), **self.finding.to_dict(), "measured": self.measured}


def judged(hypotheses: Sequence[Hypothesis], runs: Runs, looks: Sequence[int]) -> list[Judged]:
    """The verdicts on a figure's sentences."""
    if not hypotheses:
        return []
    effects = [effects_of(h, runs) for h in hypotheses]
    findings = judge(effects, looks)
    return [
        Judged(h, f, f"{_sides(h, runs)}: {shown(h.measure, f.effect, f.low, f.high)}")
        for h, f in zip(hypotheses, findings, strict=True)
    ]


def effects_of(hypothesis: Hypothesis, runs: Runs) -> list[Effects]:
    """The effects of every comparison of a hypothesis; positive ones speak for the paper."""
    h, found = hypothesis, []
    for one, other in h.pairs:
        values, resolution = pair_effects(h, one, other, runs)
        found.append(Effects(values, h.bound, h.matters, resolution))
    return found


def pair_effects(h: Hypothesis, one: str, other: str, runs: Runs) -> tuple[Floats, float]:
    """The effects of one comparison, and the unit that they are rounded to."""
    measure = h.measure
    if isinstance(measure, Times):
        return times_effects(measure, runs[one], runs[other])
    ours = side(measure, one, other, runs)
    if h.kind == BELOW_LEVEL:
        return h.level - ours, 0.0
    theirs = side(measure, other, one, runs)
    return (theirs - ours if getattr(measure, "falling", False) else ours - theirs), 0.0


def side(measure: Measure, label: str, other: str, runs: Runs) -> Floats:
    """The measure of one line, for each seed; `other` is the line that it is compared with."""
    if BETWEEN in label:
        a, b = (side(measure, part, part, runs) for part in label.split(BETWEEN))
        return np.asarray(np.abs(a - b))
    rivals = runs[other.split(BETWEEN)[0]]
    return np.array([_value(measure, c, rival) for c, rival in zip(runs[label], rivals, strict=True)])


def _value(measure: Measure, curves: RunCurves, rival: RunCurves) -> float:
    if isinstance(measure, Final):
        level = _final(measure, curves, rival)
        return float(np.log(max(level, 1e-300))) if measure.log else measure.scale * level
    if isinstance(measure, Mean):
        return 100 * float(curves.column(measure.column)[curves.column("round") <= measure.rounds].mean())
    if isinstance(measure, Peak):
        full = curves.evaluations_in(measure.window) - 1
        return 100 * float(curves.running_mean(measure.column, measure.window)[full:].max())
    if isinstance(measure, Selected):
        return 100 * curves.selected.get(measure.column, float("nan"))
    assert isinstance(measure, Decline)
    values = curves.column(measure.column)
    quarter = max(1, len(values) // 4)
    third = values[-2 * quarter : -quarter] if len(values) >= 2 * quarter else values[:1]
    return float(np.log(third.mean() / values[-quarter:].mean()))


def _final(measure: Final, curves: RunCurves, rival: RunCurves) -> float:
    if not measure.same:
        return curves.final_level(measure.column, measure.rounds)
    place = min(curves.column(measure.same)[-1], rival.column(measure.same)[-1])
    return curves.value_at(measure.column, place, unit=measure.same)


def times_effects(measure: Times, ours: Sequence[RunCurves], theirs: Sequence[RunCurves]) -> tuple[Floats, float]:
    """The logs of theirs / ours, and the relative distance of two evaluations."""
    effects, shortest, spacing = [], [], 0.0
    for a, b in zip(ours, theirs, strict=True):
        level = _common_level(measure, a, b) if measure.level is None else measure.level
        budget = min(a.column(measure.unit)[-1], b.column(measure.unit)[-1])
        found = [_time(measure, curves, level, budget) for curves in (a, b)]
        if found == [None, None]:
            effects.append(float("nan"))
            continue
        one, other = (budget if time is None else time for time in found)
        effects.append(float(np.log(other / one)))
        shortest.append(min(one, other))
        spacing = max(spacing, *(_spacing(curves, measure.unit) for curves in (a, b)))
    return np.array(effects), spacing / float(np.mean(shortest)) if shortest else 0.0


def _time(measure: Times, curves: RunCurves, level: float, budget: float) -> float | None:
    time = curves.first_reached(
        measure.column, level, window=measure.window, unit=measure.unit, falling=measure.falling
    )
    return None if time is None or time > budget else time


def _spacing(curves: RunCurves, unit: str) -> float:
    costs = curves.column(unit)
    return float(np.diff(costs).max()) if len(costs) > 1 else float(costs[0])


def _common_level(measure: Times, a: RunCurves, b: RunCurves) -> float:
    ends = [curves.final_level(measure.column, LAST) for curves in (a, b)]
    return max(ends) if measure.falling else min(ends)


def shown(measure: Measure, effect: float, low: float, high: float) -> str:
    """An effect and its interval in words: points, or for logs a ratio of costs or sizes.

    Examples:
        >>> shown(Times("test worst", 0.5), 0.693, 0.405, 0.98)
        'takes 0.50 times as many [0.38, 0.67]'
    """
    if not np.isfinite(effect):
        return "neither gets there" if isinstance(measure, Times) else "no figures"
    if isinstance(measure, Times) or _in_logs(measure):
        words = "takes {} times as many" if isinstance(measure, Times) else "is {} times as large"
        ends = f" [{exp(-high):.2f}, {exp(-low):.2f}]" if np.isfinite(low) else ""
        return words.format(f"{exp(-effect):.2f}") + ends
    ends = f" [{low:+.2f}, {high:+.2f}]" if np.isfinite(low) else ""
    return f"{effect:+.2f} points{ends}"


def _sides(h: Hypothesis, runs: Runs) -> str:
    """The means of both sides of every comparison."""
    return "; ".join(_pair(h, one, other, runs) for one, other in h.pairs)


def _pair(h: Hypothesis, one: str, other: str, runs: Runs) -> str:
    if isinstance(h.measure, Times):
        values, _ = times_effects(h.measure, runs[one], runs[other])
        there = int(np.isfinite(values).sum())
        mean = float(np.nanmean(values)) if there else float("nan")
        ratio = f"×{exp(-mean):.2f}" if there else "never"
        return f"{one} / {other} {ratio} ({there} of {len(values)} seeds)"
    ours = _mean(h.measure, side(h.measure, one, other, runs))
    if h.kind == BELOW_LEVEL:
        return f"{one} {ours}, level {h.level:g}"
    return f"{one} {ours}, {other} {_mean(h.measure, side(h.measure, other, one, runs))}"


def _mean(measure: Measure, values: Floats) -> str:
    """The mean of a side as readers know it: of logs the geometric mean, of a decline what is left."""
    mean = float(values.mean())
    if not _in_logs(measure):
        return f"{mean:.2f}"
    return f"{exp(-mean if isinstance(measure, Decline) else mean):.3g}"


def _in_logs(measure: Measure) -> bool:
    return isinstance(measure, Decline) or (isinstance(measure, Final) and measure.log)

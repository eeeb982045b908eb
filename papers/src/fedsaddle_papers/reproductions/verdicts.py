"""Verdicts on the sentences of a paper, from differences of paired seeds.

An *effect* is a difference seed by seed, counted so that a positive one speaks for the paper. A sentence has a bound
and a smallest effect that matters, δ:

- it **holds** if the interval of the mean effect lies above the bound;
- it is **refuted** if the interval excludes an effect of δ or more: also where the effect has the paper's sign, but is
  too small to matter;
- it is **undecided** otherwise, and there are **no data** if neither side got to the level that is asked for.

Seeds are added in looks that are fixed beforehand. Each of L looks spends α / L, so that the chance of a wrong verdict
in any of them is at most α. Within a look Holm's procedure divides that among the sentences of a figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import stdtr, stdtrit

from fedsaddle.array_types import Floats

HOLDS, REFUTED, UNDECIDED, NO_DATA = "holds", "refuted", "undecided", "no data"
VERDICTS = (HOLDS, REFUTED, UNDECIDED, NO_DATA)
ALPHA = 0.05


@dataclass(frozen=True)
class Effects:
    """The effects of one comparison, seed by seed, and what they are judged by."""

    values: Floats  # NaN: neither side got there, or a run has no figures
    bound: float  # 0 for "better"; minus the margin for "not worse"
    matters: float  # the smallest effect that matters; for "not worse" the bound itself
    resolution: float = 0.0  # the unit that both sides are rounded to, such as the rounds between evaluations

    def first(self, seeds: int) -> Effects:
        """Those of the first seeds."""
        return Effects(self.values[:seeds], self.bound, self.matters, self.resolution)

    @property
    def usable(self) -> Floats:
        """The effects of seeds that have one."""
        return np.asarray(self.values[np.isfinite(self.values)])

    @property
    def has_data(self) -> bool:
        """Whether at least half of the seeds, and two of them, have an effect."""
        return len(self.usable) >= max(2, len(self.values) / 2)


@dataclass(frozen=True)
class Finding:
    """The verdict on a sentence, with the effect of all seeds and its interval."""

    verdict: str
    effect: float
    low: float
    high: float
    seeds: int
    decided_at: int | None = None  # seeds of the look that decided

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON; what is not a number is null."""
        plain = asdict(self)
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in plain.items()}


def deviation(effects: Effects) -> float:
    """The standard deviation of the effects, at least that of rounding both sides to `resolution`."""
    spread = float(effects.usable.std(ddof=1))
    return max(spread, effects.resolution / 6**0.5)


def interval(effects: Effects, alpha: float = ALPHA) -> tuple[float, float, float]:
    """Mean and ends of the t-interval with confidence 1 - α; the ends are NaN for fewer than two seeds.

    Examples:
        >>> mean, low, high = interval(Effects(np.array([1.0, 2.0, 3.0]), 0.0, 1.0))
        >>> round(low, 2), mean, round(high, 2)
        (-0.48, 2.0, 4.48)
    """
    n = len(effects.usable)
    mean = float(effects.usable.mean()) if n else float("nan")
    if n < 2:
        return mean, float("nan"), float("nan")
    half = float(stdtrit(n - 1, 1 - alpha / 2)) * deviation(effects) / n**0.5
    return mean, mean - half, mean + half


def p_values(effects: Effects) -> tuple[float, float]:
    """One-sided p-values of "the effect is at most the bound" and of "it is δ or more"; 1 where there are no data."""
    if not effects.has_data:
        return 1.0, 1.0
    n = len(effects.usable)
    mean, error = float(effects.usable.mean()), deviation(effects) / n**0.5
    if error == 0:
        return float(mean <= effects.bound), float(mean >= effects.matters)
    above = float(stdtr(n - 1, -(mean - effects.bound) / error))
    below = float(stdtr(n - 1, (mean - effects.matters) / error))
    return above, below


def joint_p_values(several: Sequence[Effects]) -> tuple[float, float]:
    """Of a sentence with several comparisons, which must all hold: it is refuted if one of them is."""
    each = [p_values(effects) for effects in several]
    return max(p for p, _ in each), min(1.0, len(each) * min(p for _, p in each))


def holm(ps: Sequence[float], alpha: float) -> list[float | None]:
    """The level at which Holm's step-down procedure rejects each hypothesis; None where it does not.

    Examples:
        >>> holm([0.02, 0.01, 0.06], 0.06)
        [0.03, 0.02, 0.06]
        >>> holm([0.03, 0.01, 0.04], 0.045)
        [None, 0.015, None]
    """
    levels: list[float | None] = [None] * len(ps)
    for k, i in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        level = alpha / (len(ps) - k)
        if ps[i] > level:
            break
        levels[i] = level
    return levels


def judge(sentences: Sequence[Sequence[Effects]], looks: Sequence[int], alpha: float = ALPHA) -> list[Finding]:
    """The verdicts on the sentences of one figure.

    Args:
        sentences: for each sentence the effects of its comparisons, most often one.
        looks: the numbers of seeds at which verdicts may be taken; a look with more seeds than there are is left out.
        alpha: the chance of any wrong verdict in the figure.

    A verdict stands from the look that decides it. The effect that is given is that of all seeds, with a confidence of
    1 - α / L; of several comparisons that which speaks least for the paper.
    """
    spent = alpha / len(looks)
    decided: dict[int, tuple[str, int]] = {}
    for seeds in looks:
        if any(len(effects.values) < seeds for several in sentences for effects in several):
            break
        pairs = [joint_p_values([effects.first(seeds) for effects in several]) for several in sentences]
        for i, level in enumerate(holm([min(1.0, 2 * min(pair)) for pair in pairs], spent)):
            if level is not None and i not in decided:
                refuted = 2 * pairs[i][1] <= level  # also where the effect is above the bound, but too small
                decided[i] = (REFUTED if refuted else HOLDS, seeds)
    return [_finding(several, decided.get(i), spent) for i, several in enumerate(sentences)]


def _finding(several: Sequence[Effects], decided: tuple[str, int] | None, alpha: float) -> Finding:
    found = [(interval(effects, alpha), effects) for effects in several]
    known = [pair for pair in found if np.isfinite(pair[0][0])] or found
    (mean, low, high), effects = min(known, key=lambda pair: pair[0][0] - pair[1].bound)
    seeds = len(effects.values)
    if decided is not None:
        return Finding(decided[0], mean, low, high, seeds, decided[1])
    nothing = seeds >= 2 and any(not effects.has_data for effects in several)
    return Finding(NO_DATA if nothing else UNDECIDED, mean, low, high, seeds)

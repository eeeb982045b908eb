"""The sentences of the papers that are tested: one primary test each, written down before the final runs.

The tables of `hypotheses_of_papers` say where a sentence stands, which lines of which figure are compared by which
measure, and the smallest effect that matters, δ. `fedsaddle reproduce` without a name counts their verdicts. Nothing
heavy is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

TENTH, QUARTER = log(1 / 0.9), log(1 / 0.75)  # fewer, as the log of a ratio
POINT = 1.0  # percentage point of accuracy or AUC
BETTER, NOT_WORSE, BELOW_LEVEL = "better", "not worse", "below a level"


@dataclass(frozen=True)
class Final:
    """The mean of a column over the last rounds, times `scale`; of logs with `log`.

    With `same`, both lines are read at the largest cost of that unit that both of them reach.
    """

    column: str
    rounds: int = 50
    same: str = ""  # such as "local_steps"
    falling: bool = False  # whether smaller is better
    log: bool = False
    scale: float = 100.0  # per cent


@dataclass(frozen=True)
class Mean:
    """The mean of a column over the first rounds, in per cent."""

    column: str
    rounds: int
    falling: bool = False


@dataclass(frozen=True)
class Times:
    """The cost until a column's running mean reaches a level, as a logarithm: an effect is the log of a ratio.

    A run that never gets there counts with the shorter of both budgets; a seed in which neither does has no effect.
    """

    column: str
    level: float | None = None  # None: the level that both lines of a seed attain at the end
    window: int = 10
    unit: str = "round"
    falling: bool = False


@dataclass(frozen=True)
class Peak:
    """The largest running mean of a column in the whole run, in per cent."""

    column: str
    window: int = 10


@dataclass(frozen=True)
class Decline:
    """How far a column falls from the third to the last quarter of the rounds, as the log of a ratio."""

    column: str


@dataclass(frozen=True)
class Selected:
    """A test measure of the round that the validation rows chose, in per cent."""

    column: str


Measure = Final | Mean | Times | Peak | Decline | Selected


@dataclass(frozen=True)
class Hypothesis:
    """A sentence of a paper and its primary test; with several pairs all must hold."""

    key: str
    figure: str  # a name of `fedsaddle reproduce`
    sentence: str
    place: str
    pairs: tuple[tuple[str, str], ...]  # labels of lines: the better, and the other; "a | b" is their distance
    measure: Measure
    delta: float  # the smallest effect that matters, in the measure's unit
    kind: str = BETTER
    level: float = 0.0  # of "below a level"

    @property
    def bound(self) -> float:
        """What the effect must be above."""
        return -self.delta if self.kind == NOT_WORSE else 0.0

    @property
    def matters(self) -> float:
        """An effect that is certainly below this refutes the sentence."""
        return self.delta if self.kind == BETTER else self.bound


def than(one: str, *others: str) -> tuple[tuple[str, str], ...]:
    """The comparisons of one line with several others."""
    return tuple((one, other) for other in others)

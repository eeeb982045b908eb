"""Steps that change with the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, inf, pi
from typing import Protocol, runtime_checkable

from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput


@runtime_checkable
class Schedule(Protocol):
    """A number for every round t = 0, 1, ..."""

    def at(self, t: int) -> float:
        """The value in round t."""
        ...


Step = float | Schedule
SMALLEST_STEP = 1e-30
MOST_POWER = 10  # of the rounds: with more, a power could be too large for a float


def at(step: Step, t: int) -> float:
    """A plain number, or a schedule's value in round (or stage) t.

    Args:
        step: a number or a schedule.
        t: round or stage.
    """
    if isinstance(step, int | float):
        return step
    return step.at(t) if isinstance(step, Schedule) else float(step)


def if_scheduled(step: Step, t: int) -> float | None:
    """A schedule's value in round t, which must be sent to clients; None for a number, which they have.

    Args:
        step: a number or a schedule.
        t: round.
    """
    return step.at(t) if isinstance(step, Schedule) else None


def divisor(key: str, step: Step, t: int) -> float:
    """The value in round (or stage) t of a step that an algorithm divides by: never 0.

    Args:
        key: name of the step, for the error.
        step: a number or a schedule.
        t: round or stage.
    """
    value = at(step, t)
    if value < SMALLEST_STEP:
        remedy = f"is its value at {t}, and this algorithm divides by it; end above 0, such as with last = 0.001"
        raise BadInput(key, value, remedy)
    return value


@dataclass(frozen=True)
class Power:
    """`min(at_most, c / (t + 1)^rho)`.

    Args:
        c: value in round 0.
        rho: exponent of the decay.
        at_most: largest value.
    """

    c: float
    rho: float
    at_most: float = float("inf")

    def __post_init__(self) -> None:
        number("c", self.c, above=0)
        number("rho", self.rho, least=0, most=MOST_POWER)
        number("at_most", self.at_most, above=0, infinite=True)

    def at(self, t: int) -> float:
        """The value in round t."""
        return min(self.at_most, float(self.c / (t + 1) ** self.rho))


@dataclass(frozen=True)
class Staged:
    """One value after the other: `Staged([(150, 0.02), (75, 0.002)])`; the last one stays.

    Args:
        stages: pairs of a number of rounds and a value.
    """

    stages: Sequence[tuple[int, float]]

    def __post_init__(self) -> None:
        stages: object = self.stages
        if not isinstance(stages, list | tuple) or not stages:
            raise BadInput("stages", stages, "give a list of at least one pair (rounds, value)")
        for stage in stages:
            if not isinstance(stage, list | tuple) or len(stage) != 2:
                raise BadInput("stages", stage, "each stage is a pair (rounds, value)")
            whole("stages.rounds", stage[0])
            number("stages.value", stage[1], above=0)

    def at(self, t: int) -> float:
        """The value in round t."""
        for rounds, value in self.stages:
            if t < rounds:
                return value
            t -= rounds
        return self.stages[-1][1]


@dataclass(frozen=True)
class Geometric:
    """`first * factor^t`.

    Args:
        first: value in round 0.
        factor: factor of each round.
    """

    first: float
    factor: float

    def __post_init__(self) -> None:
        number("first", self.first, above=0)
        number("factor", self.factor, above=0)

    def at(self, t: int) -> float:
        """The value in round t, or in stage t of an algorithm with stages."""
        try:
            return float(self.first * self.factor**t)
        except OverflowError:
            return inf


@dataclass(frozen=True)
class Cosine:
    """`first` in round 0, down along half a cosine to `last` in round `rounds`, and so it stays.

    A `last` of 0 ends the training there; algorithms that divide by their step want one above 0.

    Args:
        first: value in round 0.
        rounds: rounds until `last`.
        last: value at the end.

    Examples:
        >>> [round(Cosine(0.4, 4).at(t), 3) for t in (0, 1, 2, 4, 9)]
        [0.4, 0.341, 0.2, 0.0, 0.0]
    """

    first: float
    rounds: int
    last: float = 0.0

    def __post_init__(self) -> None:
        number("first", self.first, above=0)
        whole("rounds", self.rounds)
        number("last", self.last, least=0, most=self.first)

    def at(self, t: int) -> float:
        """The value in round t."""
        if t >= self.rounds:
            return float(self.last)
        return self.last + (self.first - self.last) * (1 + cos(pi * t / self.rounds)) / 2


@dataclass(frozen=True)
class Warmup:
    """The first `rounds` steps are shorter: `of` times `(t + 1) / (rounds + 1)` in round t, and then `of` itself.

    The schedule inside counts all rounds from the first: `Warmup(5, of=Cosine(0.1, 60))` is at its end in round 60. In
    algorithms with stages, CODA's and CODASCA's, the warm-up counts rounds, and what is inside counts stages.

    Args:
        rounds: rounds of the warm-up.
        of: a number or a schedule, which counts all rounds from the first.

    Examples:
        >>> [round(Warmup(3, of=0.4).at(t), 3) for t in range(5)]
        [0.1, 0.2, 0.3, 0.4, 0.4]
    """

    rounds: int
    of: Step

    def __post_init__(self) -> None:
        whole("rounds", self.rounds, least=0)
        check_step("of", self.of)

    def at(self, t: int) -> float:
        """The value in round t."""
        return self.share(t) * at(self.of, t)

    def share(self, t: int) -> float:
        """What the step is multiplied by in round t."""
        return 1.0 if t >= self.rounds else (t + 1) / (self.rounds + 1)


def staged_at(step: Step, stage: int, rounds: int) -> float:
    """The value in a stage, after `rounds` rounds of all stages: a warm-up counts rounds, all else stages.

    Args:
        step: a number or a schedule.
        stage: stage.
        rounds: rounds of all stages so far.
    """
    return step.share(rounds) * at(step.of, stage) if isinstance(step, Warmup) else at(step, stage)


def check_step(key: str, step: object) -> None:
    """Validate a step: a positive number, or a schedule.

    Args:
        key: name of the step, for the error.
        step: a number or a schedule.
    """
    if isinstance(step, type) or not isinstance(step, Schedule):
        check_number(key, step)


def check_number(key: str, step: object) -> None:
    """Validate a step that is a number: positive, and not so small that its inverse is too large.

    Whether it is too large depends on the precision of the problem, which a run looks at.

    Args:
        key: name of the step, for the error.
        step: a number or a schedule.
    """
    if number(key, step, above=0, largest=inf) < SMALLEST_STEP:
        raise BadInput(key, step, f"is too small to move anything: must be at least {SMALLEST_STEP:g}")

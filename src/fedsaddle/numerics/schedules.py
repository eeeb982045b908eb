"""Steps that change with the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from fedsaddle.errors import BadInput


@runtime_checkable
class Schedule(Protocol):
    """A number for every round t = 0, 1, ..."""

    def at(self, t: int) -> float:
        """The value in round t."""
        ...


Step = float | Schedule


def at(step: Step, t: int) -> float:
    """A plain number, or a schedule's value in round t."""
    return step if isinstance(step, int | float) else step.at(t)


@dataclass(frozen=True)
class Power:
    """`min(at_most, c / (t + 1)^rho)`."""

    c: float
    rho: float
    at_most: float = float("inf")

    def __post_init__(self) -> None:
        if not self.c > 0:
            raise BadInput("c", self.c, "a step must be positive")
        if not self.rho >= 0:
            raise BadInput("rho", self.rho, "the power must be at least 0 (0 keeps the step)")

    def at(self, t: int) -> float:
        """The value in round t."""
        return min(self.at_most, float(self.c / (t + 1) ** self.rho))


@dataclass(frozen=True)
class Staged:
    """One value after the other: `Staged([(150, 0.02), (75, 0.002)])`; the last one stays."""

    stages: Sequence[tuple[int, float]]

    def __post_init__(self) -> None:
        if not self.stages:
            raise BadInput("stages", self.stages, "give at least one pair (rounds, value)")
        for rounds, value in self.stages:
            if rounds < 1 or not value > 0:
                raise BadInput("stages", (rounds, value), "each is (rounds, value), both positive")

    def at(self, t: int) -> float:
        """The value in round t."""
        for rounds, value in self.stages:
            if t < rounds:
                return value
            t -= rounds
        return self.stages[-1][1]


@dataclass(frozen=True)
class Geometric:
    """`first * factor^t`."""

    first: float
    factor: float

    def __post_init__(self) -> None:
        for key, value in (("first", self.first), ("factor", self.factor)):
            if not 0 < value < float("inf"):
                raise BadInput(key, value, "must be a positive number")

    def at(self, t: int) -> float:
        """The value in round t, or in stage t of an algorithm with stages."""
        return float(self.first * self.factor**t)


def check_step(key: str, step: Step) -> None:
    """Refuse a plain step that is not a positive number."""
    if not isinstance(step, Schedule) and not 0 < step < float("inf"):
        raise BadInput(key, step, "a step must be a positive number or a schedule")

"""Estimators of the global gradient for FedSGDA. The same rule serves u and v."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from fedsaddle.arguments import number, whole
from fedsaddle.numerics.schedules import Power, Schedule, Step, at


class Estimate(NamedTuple):
    """What an estimator works with."""

    now: Tensor  # mean of ∇f_i(z̄_t) over S'_t
    before: Tensor | None  # mean of ∇f_i(z̄_{t-1}) over the same clients, if it was wanted
    last: Tensor | None  # the estimate of the round before; None in round 0


@runtime_checkable
class Estimator(Protocol):
    """A user's own estimator needs these three methods."""

    def wants_before(self, t: int) -> bool:
        """Whether round t needs the gradients at the previous point."""
        ...

    def cohort(self, t: int, sampled: int) -> int:
        """How many clients to ask in round t, where S = `sampled`."""
        ...

    def estimate(self, t: int, given: Estimate) -> Tensor:
        """The estimate of round t."""
        ...


@dataclass(frozen=True)
class MiniBatch:
    """MB: the mean of the sampled clients' gradients."""

    def wants_before(self, t: int) -> bool:
        """Never."""
        return False

    def cohort(self, t: int, sampled: int) -> int:
        """S."""
        return sampled

    def estimate(self, t: int, given: Estimate) -> Tensor:
        """`u_t = mean ∇f_i(z̄_t)`."""
        return given.now


@dataclass(frozen=True)
class Storm:
    """STORM: `u_t = (1 - α_t)(u_{t-1} - mean ∇f_i(z̄_{t-1})) + mean ∇f_i(z̄_t)`.

    α = 1 is MB, α = 0 is SPIDER's inner step.
    """

    alpha: Step = Power(1.0, 2 / 3, at_most=1.0)  # α_t = min(1, c_α / (t + 1)^{2ρ})

    def __post_init__(self) -> None:
        if isinstance(self.alpha, type) or not isinstance(self.alpha, Schedule):
            number("alpha", self.alpha, least=0, most=1)

    def wants_before(self, t: int) -> bool:
        """After the first round."""
        return t > 0

    def cohort(self, t: int, sampled: int) -> int:
        """S."""
        return sampled

    def estimate(self, t: int, given: Estimate) -> Tensor:
        """The recursion; u_0 is the mean."""
        if given.last is None or given.before is None:
            return given.now
        return (1 - at(self.alpha, t)) * (given.last - given.before) + given.now


@dataclass(frozen=True)
class Spider:
    """SPIDER: every `period` rounds the mean over a large cohort, otherwise the last estimate plus the difference."""

    period: int = 10  # m
    large_cohort: int | None = None  # Ŝ; None: S², as the paper's Remark 5

    def __post_init__(self) -> None:
        whole("period", self.period)
        if self.large_cohort is not None:
            whole("large_cohort", self.large_cohort)

    def wants_before(self, t: int) -> bool:
        """Except where the estimate restarts."""
        return t % self.period != 0

    def cohort(self, t: int, sampled: int) -> int:
        """Ŝ where the estimate restarts, else S."""
        if t % self.period != 0:
            return sampled
        return sampled**2 if self.large_cohort is None else self.large_cohort

    def estimate(self, t: int, given: Estimate) -> Tensor:
        """`u_{t-1} + mean (∇f_i(z̄_t) - ∇f_i(z̄_{t-1}))`, or the mean again."""
        if t % self.period == 0 or given.last is None or given.before is None:
            return given.now
        return given.last + given.now - given.before

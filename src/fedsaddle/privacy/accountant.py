"""The accountant: ε of many noisy releases, and the least noise for a given ε; by the package dp-accounting.

A release of several fields from the same sample, each with noise of `noise` times its own sensitivity, is one Gaussian
release of all of them together with noise of `noise / √fields`.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from fedsaddle.errors import BadInput, MissingData, install

INTERVAL = 1e-3  # of the discretised privacy loss: ten times the package's own; its ε is above the true one by < 0.5 %
PRECISE = 1.002  # how much more noise than the least is taken, at most
LEAST, MOST = 0.05, 1e7  # noise, as a multiple of the sensitivity


@dataclass(frozen=True)
class Event:
    """Releases of one kind."""

    rate: float  # probability of a unit to be in the sample; 1: all units
    fields: int  # released from the same sample
    count: int
    population: int = 0  # of units, if the sample has a fixed size; 0: a Poisson sample


Events = tuple[Event, ...]


@cache
def _package() -> Any:
    """dp-accounting, which takes a second to import; it writes warnings to a log of its own."""
    try:
        import dp_accounting
        from dp_accounting import pld, rdp
    except ImportError:
        raise MissingData(f"privacy needs the package dp-accounting; {install('privacy')}") from None
    logging.getLogger("absl").setLevel(logging.ERROR)
    return dp_accounting, pld, rdp


def require_accountant() -> None:
    """Raise an error that says what to install, unless the accountant is there."""
    _package()


@lru_cache(maxsize=4096)
def epsilon_of(events: Events, noise: float, delta: float) -> float:
    """ε at δ of these releases, each with noise of `noise` times the sensitivity of each field."""
    if noise <= 0:
        return math.inf if any(e.count for e in events) else 0.0
    dp, pld, rdp = _package()
    fixed = any(event.population for event in events)
    if fixed:  # samples of a fixed size: Rényi, one client in place of another
        accountant = rdp.RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    else:
        accountant = pld.PLDAccountant(value_discretization_interval=INTERVAL)
    for event in events:
        if event.count:
            accountant.compose(_event(dp, event, noise / 2 if fixed else noise), event.count)
    return float(accountant.get_epsilon(delta))


def _event(dp: Any, event: Event, noise: float) -> Any:
    """The release in the words of dp-accounting; another client in one's place moves a sum by twice the clip."""
    gaussian = dp.GaussianDpEvent(noise / math.sqrt(event.fields))
    if event.population:
        return dp.SampledWithoutReplacementDpEvent(event.population, round(event.rate * event.population), gaussian)
    return gaussian if event.rate >= 1 else dp.PoissonSampledDpEvent(event.rate, gaussian)


@lru_cache(maxsize=4096)
def noise_for(events: Events, epsilon: float, delta: float) -> float:
    """The least noise, up to 0.2 %, with which these releases stay within ε at δ.

    ε is nearly a power of the noise, so that a line through the logarithms of two trials finds it in a few steps; the
    noise that is returned was itself found to be within ε.
    """
    low, high = _bracket(events, epsilon, delta)
    while high / low > PRECISE:
        middle = _between(
            low, high, epsilon_of(events, low, delta) / epsilon, epsilon_of(events, high, delta) / epsilon
        )
        if epsilon_of(events, middle, delta) <= epsilon:
            high = middle
        else:
            low = middle
    return high


def _between(low: float, high: float, above: float, below: float) -> float:
    """Where the line meets 1, a little to the safe side, so that the bracket closes from both ends."""
    width = math.log(high / low)
    share = 0.5 if below <= 0 or above == math.inf else math.log(above) / math.log(above / below)
    return low * math.exp(width * min(max(share, 0.0) + 0.0005 / width, 0.95))


def _bracket(events: Events, epsilon: float, delta: float) -> tuple[float, float]:
    """Too little and enough noise, a factor of two apart."""
    high = 1.0
    while epsilon_of(events, high, delta) > epsilon:
        if high > MOST:
            told = f"cannot be kept with delta = {delta:g}: noise of {MOST:g} times the clip would not do"
            raise BadInput("epsilon", epsilon, f"{told}; give 0.1 to 10, a larger delta, or fewer rounds")
        high *= 2
    while high > LEAST and epsilon_of(events, high / 2, delta) <= epsilon:
        high /= 2
    return high / 2, high

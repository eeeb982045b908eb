"""The accountant: ε of many noisy releases, and the smallest noise for a given ε, by dp-accounting.

A release of several fields from the same sample, each with noise of `noise` times its own sensitivity, is one Gaussian
release of all of them together with noise of `noise / √fields`.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from fedsaddle.errors import BadInput, MissingData, install
from fedsaddle.federation.tasks import Release, Releases, planned_exchanges, tasks_of

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
    """dp-accounting, imported late as it takes a second, with its warnings silenced."""
    try:
        import dp_accounting
        from dp_accounting import pld, rdp
    except ImportError:
        raise MissingData(f"privacy needs the package dp-accounting; {install('privacy')}") from None
    logging.getLogger("absl").setLevel(logging.ERROR)
    return dp_accounting, pld, rdp


def require_accountant() -> None:
    """Raise `MissingData` with the package to install, unless the accountant is there."""
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
    """The release as an event of dp-accounting; replacing a client changes a sum by at most twice the clip."""
    gaussian = dp.GaussianDpEvent(noise / math.sqrt(event.fields))
    if event.population:
        return dp.SampledWithoutReplacementDpEvent(event.population, round(event.rate * event.population), gaussian)
    return gaussian if event.rate >= 1 else dp.PoissonSampledDpEvent(event.rate, gaussian)


@lru_cache(maxsize=4096)
def noise_for(events: Events, epsilon: float, delta: float) -> float:
    """The smallest noise, up to 0.2 %, with which these releases stay within ε at δ.

    ε is nearly a power of the noise, so a secant in log scale converges in a few steps; the returned noise itself has
    been checked to be within ε.
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
            limit = f"is out of reach with delta = {delta:g}, even with noise of {MOST:g} times the clip"
            raise BadInput("epsilon", epsilon, f"{limit}; give 0.1 to 10, a larger delta, or fewer rounds")
        high *= 2
    while high > LEAST and epsilon_of(events, high / 2, delta) <= epsilon:
        high /= 2
    return high / 2, high


def reason_against(kind: type) -> str:
    """Why an algorithm's class cannot have differential privacy of rows; empty if it can."""
    if hasattr(kind, "run_task"):
        return f"privacy does not apply to {kind.__name__} yet; use the algorithm that it wraps"
    tasks = tasks_of(kind).values()
    unknown = [task for task in tasks if task.releases is None]
    if tasks and not unknown:
        return ""
    stated = next((task.reason for task in unknown if task.reason), "")
    what = unknown[0].name if unknown else "an exchange"
    return stated or f"what {what} releases about a row is not known; state it with @fs.task(releases=...)"


def check_algorithm(algorithm: object) -> None:
    """Raise `BadInput` with the reason for an algorithm with a task that has no private form."""
    if reason := reason_against(type(algorithm)):
        raise BadInput("algorithm", type(algorithm).__name__, f"has no private form: {reason}")


def task_releases(algorithm: object, task: str, sent: object) -> Releases:
    """What a client releases when it runs the task; `sent` comes from the server, and is not trusted."""
    kind = tasks_of(type(algorithm)).get(task)
    if kind is None or kind.releases is None:
        raise BadInput("algorithm", type(algorithm).__name__, f"its task {task!r} has no private form")
    return kind.releases(algorithm, sent)


def planned_releases(algorithm: object, rounds: int) -> Releases:
    """What a client releases that takes part in every exchange of `rounds` rounds."""
    check_algorithm(algorithm)
    return sum((planned.releases for planned in planned_exchanges(algorithm, rounds, 1)), Releases())


def events_of(releases: Releases, units: int) -> Events:
    """The releases of a client with `units` rows, or patients, for the accountant."""
    rates: Counter[tuple[float, int]] = Counter()
    for (size, fields), count in releases.items():
        rates[1.0 if size is None else min(1.0, size / units), fields] += count
    return tuple(Event(rate, fields, count) for (rate, fields), count in sorted(rates.items()))


def within(spent: Releases, plan: Releases) -> bool:
    """Whether no more was released than planned, of any kind."""
    return all(count <= plan[kind] for kind, count in spent.items())


def to_plain(releases: Releases) -> list[list[int | None]]:
    """For JSON: size, fields and count of each kind."""
    return [[r.size, r.fields, n] for r, n in sorted(releases.items(), key=str)]


def from_plain(stored: Iterable[tuple[int | None, int, int]]) -> Releases:
    """The releases of a JSON document."""
    return Counter({Release(size, fields): int(n) for size, fields, n in stored})

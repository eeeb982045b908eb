"""Which exchanges of an algorithm the server can make private for whole clients, and how many a run has."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from fedsaddle.errors import BadInput
from fedsaddle.federation import tasks
from fedsaddle.privacy.accountant import Event, Events


class Exchange(NamedTuple):
    """What the server learns of clients from one noisy sum."""

    rate: float = 1.0  # probability of a client to be in it; 1 also where the server's next message tells who was
    population: int = 0  # clients that a sample of a fixed size is drawn from; 0: no sample


Exchanges = Counter[Exchange]


def check_client_level(algorithm: Any) -> None:
    """Refuse what the server cannot make private, with the reason."""
    name = type(algorithm).__name__
    if not isinstance(getattr(algorithm, "secret_cohorts", None), bool):
        reason = "what one client may change in what others are sent is not known"
        raise BadInput("algorithm", name, f"cannot be private for whole clients: {reason}; it has no secret_cohorts")
    if getattr(algorithm, "weighting", "uniform") == "size":
        remedy = "lets a client count by its rows, without a bound; with privacy of clients it is 'uniform'"
        raise BadInput("weighting", algorithm.weighting, remedy)
    if getattr(algorithm, "output", "last") != "last":
        raise BadInput(
            "output", algorithm.output, "would have clients send more than a model; with privacy it is 'last'"
        )


def exchange_of(algorithm: Any, count: int, asked: int) -> Exchange:
    """The exchange with so many of all clients.

    A sample makes it more private only where the algorithm has `secret_cohorts`: one is drawn for every exchange, no
    message shows who is in it, and clients remember nothing. Otherwise a client is taken to be in every exchange:
    DRFA's mixture shows whose losses were asked for, CODASCA's clients keep variates.
    """
    if asked >= count or not algorithm.secret_cohorts:
        return Exchange()
    return Exchange(asked / count, count)


def planned_exchanges(algorithm: Any, count: int, rounds: int) -> Exchanges:
    """The exchanges of so many rounds."""
    found: Exchanges = Counter()
    for planned in tasks.planned_exchanges(algorithm, rounds, count):
        found[exchange_of(algorithm, count, planned.clients)] += planned.times
    return found


def events(exchanges: Exchanges) -> Events:
    """The exchanges for the accountant."""
    return tuple(Event(e.rate, 1, n, e.population) for e, n in sorted(exchanges.items()) if n)


def to_plain(exchanges: Exchanges) -> list[list[float]]:
    """For JSON."""
    return [[e.rate, e.population, n] for e, n in sorted(exchanges.items())]


def from_plain(stored: Any) -> Exchanges:
    """The exchanges of a JSON document."""
    return Counter({Exchange(float(rate), int(population)): int(n) for rate, population, n in stored})

"""Which exchanges of an algorithm the server can make private for whole clients, and how many a run has."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from fedsaddle.algorithms.coda import stages
from fedsaddle.algorithms.coda.coda import Coda, CodaPlus
from fedsaddle.algorithms.coda.codasca import Codasca
from fedsaddle.algorithms.drfa import Drfa, DrfaGa
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.fedsgda import FedSgda
from fedsaddle.algorithms.sgda import rounds as sgda
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.algorithms.sgda.momentum import MomentumLocalSgda
from fedsaddle.errors import BadInput
from fedsaddle.privacy.accountant import Event, Events

KINDS = (FedAvg, Drfa, DrfaGa, LocalSgda, MomentumLocalSgda, FedSgda, CodaPlus, Coda, Codasca)
FAMILY = (LocalSgda, MomentumLocalSgda)
NO_DISCOUNT = (Drfa, DrfaGa, Codasca)  # their messages tell who was asked, or clients remember


class Exchange(NamedTuple):
    """What the server learns of clients from one noisy sum."""

    rate: float = 1.0  # probability of a client to be in it; 1 also where the server's next message tells who was
    population: int = 0  # clients that a sample of a fixed size is drawn from; 0: no sample


Exchanges = Counter[Exchange]


def check_client_level(algorithm: Any) -> None:
    """Refuse what the server cannot make private, with the reason."""
    name = type(algorithm).__name__
    if type(algorithm) not in KINDS:
        known = ", ".join(kind.__name__ for kind in KINDS)
        reason = "what one client may change in what others are sent is not known"
        raise BadInput("algorithm", name, f"cannot be private for whole clients: {reason}; choose one of {known}")
    if getattr(algorithm, "weighting", "uniform") == "size":
        remedy = "lets a client count by its rows, without a bound; with privacy of clients it is 'uniform'"
        raise BadInput("weighting", algorithm.weighting, remedy)
    if algorithm.output != "last":
        raise BadInput(
            "output", algorithm.output, "would have clients send more than a model; with privacy it is 'last'"
        )


def earns_discount(algorithm: Any) -> bool:
    """Whether a sample is drawn anew and in secret for every exchange, and clients remember nothing.

    DRFA's mixture shows whose losses were asked for, and weighs clients one by one; CODASCA's clients keep variates;
    where a snapshot cuts a round, the same clients answer twice. A client of these is taken to be in every exchange.
    """
    if isinstance(algorithm, NO_DISCOUNT):
        return False
    keeps = getattr(algorithm, "momentum_at_sync", "average") == "keep"
    return not (isinstance(algorithm, FAMILY) and (sgda.cuts_rounds(algorithm) or keeps))


def exchange_of(algorithm: Any, count: int, asked: int) -> Exchange:
    """The exchange with so many of all clients."""
    if asked >= count or not earns_discount(algorithm):
        return Exchange()
    return Exchange(asked / count, count)


def planned_exchanges(algorithm: Any, count: int, rounds: int) -> Exchanges:
    """The exchanges of so many rounds."""
    m = count if algorithm.sampled_clients is None else algorithm.sampled_clients
    usual, found = exchange_of(algorithm, count, m), Counter[Exchange]()
    if isinstance(algorithm, FedSgda):  # gradients, then models
        for t in range(rounds):
            found[exchange_of(algorithm, count, min(count, algorithm.estimator.cohort(t, m)))] += 2
        return found
    if isinstance(algorithm, FAMILY):
        τ, every = algorithm.local_steps, algorithm.snapshot_every
        found[usual] += sum(len(list(sgda.pieces(r * τ, τ, every))) for r in range(rounds))
        return found
    found[usual] += rounds * (2 if isinstance(algorithm, Drfa | DrfaGa) else 1)  # models, then losses
    if isinstance(algorithm, Coda):
        found[Exchange()] += _later_stages(algorithm, rounds)
    return found


def _later_stages(algorithm: CodaPlus, rounds: int) -> int:
    """How many stages begin after the first one."""
    stage, left = 0, rounds - stages.stage_rounds(algorithm, 0)
    while left > 0:
        stage += 1
        left -= stages.stage_rounds(algorithm, stage)
    return stage


def events(exchanges: Exchanges) -> Events:
    """The exchanges for the accountant."""
    return tuple(Event(e.rate, 1, n, e.population) for e, n in sorted(exchanges.items()) if n)


def to_plain(exchanges: Exchanges) -> list[list[float]]:
    """For JSON."""
    return [[e.rate, e.population, n] for e, n in sorted(exchanges.items())]


def from_plain(stored: Any) -> Exchanges:
    """The exchanges of a JSON document."""
    return Counter({Exchange(float(rate), int(population)): int(n) for rate, population, n in stored})

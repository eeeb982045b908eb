"""What each task of an algorithm releases about a client's rows, and what a run of so many rounds does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from fedsaddle.algorithms.coda import stages
from fedsaddle.algorithms.coda.coda import Coda, CodaPlus
from fedsaddle.algorithms.coda.codasca import Codasca
from fedsaddle.algorithms.drfa import Drfa, DrfaGa
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.fedsgda import FedSgda
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.algorithms.sgda.momentum import MomentumLocalSgda
from fedsaddle.errors import BadInput
from fedsaddle.privacy.accountant import Event, Events

BOTH = 2  # players


class Release(NamedTuple):
    """Fields that are released from one sample of a client's rows."""

    size: int | None  # expected rows (or patients) of the sample; None: all
    fields: int


Releases = Counter[Release]
KINDS = (FedAvg, Drfa, DrfaGa, LocalSgda, MomentumLocalSgda, FedSgda, CodaPlus, Coda, Codasca)
REASONS = {
    "QFedAvg": "its clients send the loss of all rows at many models, which has no bound; use FedAvg or DRFA",
    "FedX1": "its gradients do not split by row: each compares rows with others; use CODA+ or CODASCA on the AUC",
    "FedX2": "its gradients do not split by row: each compares rows with others; use CODA+ or CODASCA on the AUC",
    "LocalPair": "its gradients do not split by row: each compares rows with others; use CODA+ or CODASCA on the AUC",
    "Personal": "layers that stay at the clients are not there yet with privacy; leave out local_layers",
}


def check_algorithm(algorithm: object) -> None:
    """Refuse an algorithm whose releases are not known, with the reason."""
    if type(algorithm) not in KINDS:
        name = type(algorithm).__name__
        known = ", ".join(kind.__name__ for kind in KINDS)
        reason = REASONS.get(name, f"what it releases about a row is not known; choose one of {known}")
        raise BadInput("algorithm", name, f"cannot be private: {reason}")


def steps_of(algorithm: Any, sent: Any) -> int:
    """The local steps that a server asks for; refuse numbers that cannot be: fewer than none would give budget back."""
    first, last = (0, sent.steps) if hasattr(sent, "steps") else (sent.first, sent.last)
    if type(first) is not int or type(last) is not int or not 0 <= first < last:
        raise BadInput("steps", f"{first!r} to {last!r}"[:60], f"{type(algorithm).__name__} takes steps 0 to 1 or more")
    return last - first


def task_releases(algorithm: Any, task: str, sent: Any) -> Releases:
    """What a client releases when it runs the task; `sent` is the server's word, and is not trusted."""
    batch = Release(getattr(algorithm, "batch_size", None), 1)
    both = Release(batch.size, BOTH)
    if task == "local_sgd":
        return Counter({batch: algorithm.local_steps})
    if task == "local_loss":
        return Counter({batch: 1})
    if task == "full_loss":
        return Counter({Release(None, 1): 1})
    if task == "local_sgda" and isinstance(algorithm, FedSgda):
        return Counter({Release(batch.size, 2 * BOTH): algorithm.local_steps})  # at two points
    if task == "local_sgda":
        begins = isinstance(algorithm, MomentumLocalSgda) and sent.first == 0 and sent.dx is None
        return Counter({both: steps_of(algorithm, sent) + begins})
    if task == "local_gradients":
        return Counter({Release(None, BOTH if sent.x_before is None else 2 * BOTH): 1})
    if task in ("dsg", "dsgsca"):
        return Counter({both: steps_of(algorithm, sent)})
    if task == "best_dual":
        return Counter({Release(algorithm.dual_batch, 1): 1})
    raise BadInput("algorithm", type(algorithm).__name__, f"its task {task!r} cannot be private")


def planned_releases(algorithm: Any, rounds: int) -> Releases:
    """What a client releases that is asked in every exchange of so many rounds."""
    check_algorithm(algorithm)
    if isinstance(algorithm, CodaPlus | Codasca):
        return _stages(algorithm, rounds)
    if isinstance(algorithm, FedSgda):
        return _two_exchanges(algorithm, rounds)
    batch, τ = algorithm.batch_size, algorithm.local_steps
    if isinstance(algorithm, LocalSgda):
        return Counter({Release(batch, BOTH): rounds * τ})
    if isinstance(algorithm, MomentumLocalSgda):  # a round without an answer may begin the momentum once more
        return Counter({Release(batch, BOTH): rounds * (τ + 1)})
    found = Counter({Release(batch, 1): rounds * τ})
    if isinstance(algorithm, Drfa):
        found[Release(batch, 1)] += rounds
    if isinstance(algorithm, DrfaGa):
        found[Release(None, 1)] += rounds
    return found


def _two_exchanges(algorithm: FedSgda, rounds: int) -> Releases:
    found: Releases = Counter({Release(algorithm.batch_size, 2 * BOTH): rounds * algorithm.local_steps})
    for t in range(rounds):
        found[Release(None, 2 * BOTH if algorithm.estimator.wants_before(t) else BOTH)] += 1
    return found


def _stages(algorithm: CodaPlus | Codasca, rounds: int) -> Releases:
    found: Releases = Counter()
    stage, left = 0, rounds
    while left > 0:
        some = min(left, stages.stage_rounds(algorithm, stage))
        found[Release(algorithm.batch_size, BOTH)] += some * stages.window(algorithm, stage)
        if isinstance(algorithm, Coda) and stage > 0:
            found[Release(algorithm.dual_batch, 1)] += 1
        stage, left = stage + 1, left - some
    return found


def events_of(releases: Releases, units: int) -> Events:
    """The releases of a client with so many rows, or patients, for the accountant."""
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


def from_plain(stored: Iterable[Any]) -> Releases:
    """The releases of a JSON document."""
    return Counter({Release(size, fields): int(n) for size, fields, n in stored})

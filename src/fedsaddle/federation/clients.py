"""The one seam: an algorithm asks a cohort, an engine answers.

Every tensor a client holds has a leading axis of clients, of length 1 when a client stands alone: the same task
serves one site and a whole cohort. Vectors are flat, `(C, d)`; a number per client is `(C,)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fedsaddle.errors import BadInput

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
R = TypeVar("R")
Own = TypeVar("Own")
Sent = TypeVar("Sent")


class Batch(NamedTuple):
    """Rows of each client: `x (C, B, ...)`, `y (C, B, ...)`, `weight (C, B)` where rows do not count alike or are
    padding, and `rows (C, B)`, their numbers within the client, where rows were drawn."""

    x: Tensor
    y: Tensor
    weight: Tensor | None = None
    rows: Tensor | None = None


class Site(Protocol):
    """What a task sees of the clients it runs for: their rows and their randomness, nothing else."""

    @property
    def clients(self) -> Ints:
        """Their numbers, (C,)."""
        ...

    @property
    def sizes(self) -> Tensor:
        """Their numbers of rows, (C,)."""
        ...

    def broadcast(self, v: Tensor) -> Tensor:
        """The same vector for every client: `(d,) -> (C, d)`, without a copy."""
        ...

    def minibatch(self, step: int, size: int, stream: int = 0, label: int | None = None) -> Batch:
        """`size` rows drawn uniformly with replacement, the same on every engine for the same seed.

        With a `label`, only among the rows of that label; a client that has none gets padding of weight 0. Draws of
        one step that should be independent of each other need different streams.
        """
        ...

    def minibatches(self, step: int, draws: Sequence[tuple[int, int, int | None]]) -> tuple[Tensor, list[Batch]]:
        """Several minibatches, each given by its size, stream and label.

        Their x lie side by side in one tensor, which comes first, so that a model can see all of them in one pass.
        """
        ...

    def everything(self) -> Batch:
        """All rows of each client, padded to the largest with weight 0."""
        ...

    def labelled(self, label: int) -> Tensor:
        """How many of their rows have that label, (C,)."""
        ...

    def uniforms(self, step: int, size: int, stream: int = 0) -> Tensor:
        """`(C, size)` numbers of each client, uniform on [0, 1), in float64: for draws other than of rows."""
        ...


Task = Callable[[Any, Any, Site], tuple[Any, R]]


@dataclass(frozen=True)
class ClientsState:
    """What a checkpoint holds of the clients: their memory, a record of tensors each, and notes as plain JSON."""

    records: Mapping[int, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Remembers(Protocol):
    """An algorithm whose clients keep something between exchanges."""

    def fresh(self, site: Site) -> Any:
        """The memory of clients that have none yet: a record of tensors, clients' axis in front; None: nothing."""
        ...


@runtime_checkable
class Clients(Protocol):
    """Whoever can be asked: a simulation, a deployed federation, or a wrapper around one.

    An engine of your own inherits from it and has `count`, `sizes`, `begin`, `commit` and `ask`. Where its clients
    remember something between rounds, it has `state` and `restore` as well.
    """

    @property
    def count(self) -> int:
        """Number of clients N."""
        ...

    @property
    def sizes(self) -> Ints:
        """Rows per client, agreed once before the first round."""
        ...

    def begin(self, round: int) -> None:
        """Open a round: its number keys all randomness; memory left by an unfinished round is dropped."""
        ...

    def commit(self) -> None:
        """Close the round: what clients remember of it now counts."""
        ...

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Let each client of the cohort run `task(own, sent, site)` and reduce what comes back.

        A client that is drawn twice runs once and counts twice. `weights` (default 1) weigh the averaged fields.
        Those who do not answer are left out of `clients` and of every reduction.
        """
        ...

    @property
    def samples(self) -> int:
        """Samples that clients have worked on since the start; 0 where nobody counts."""
        return 0

    def settings(self) -> dict[str, Any]:
        """What shapes the rounding of a run, as plain JSON: a run resumes with the same only."""
        return {"name": type(self).__name__.lower()}

    def state(self) -> ClientsState:
        """What a checkpoint must hold of the clients, once a round is committed."""
        return ClientsState()

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Go on from a checkpoint: the fields of every client's record, and the notes."""
        return

    def checkpointed(self) -> None:
        """The state was written down."""
        return

    def report(self) -> dict[str, Any]:
        """What the summary of a run says of the clients."""
        return {}


def merge_repeats(cohort: ArrayLike, weights: ArrayLike | None, count: int) -> tuple[Ints, Floats]:
    """Each client once, in order of first appearance, with the sum of its weights."""
    asked = np.asarray(cohort, dtype=np.int64)
    if asked.ndim != 1 or not len(asked):
        raise BadInput("cohort", cohort, "ask at least one client, as a flat list of numbers")
    if asked.min() < 0 or asked.max() >= count:
        wrong = int(asked.min()) if asked.min() < 0 else int(asked.max())
        raise BadInput("cohort", wrong, f"clients are numbered 0 to {count - 1}")
    given = np.ones(len(asked)) if weights is None else np.asarray(weights, dtype=np.float64)
    if given.shape != asked.shape:
        raise BadInput("weights", given.shape, f"give one weight for each of the {len(asked)} clients asked")
    clients, first, inverse = np.unique(asked, return_index=True, return_inverse=True)
    if len(clients) == len(asked):
        return asked, given
    total: Floats = np.bincount(inverse, weights=given).astype(np.float64)
    order = np.argsort(first)
    return clients[order], total[order]

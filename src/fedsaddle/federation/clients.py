"""The interface between algorithms and engines: an algorithm asks a cohort of clients, an engine answers.

Every tensor of a client has a leading axis of clients, of length 1 for a single client, so the same task runs at one
site and for a whole cohort. Vectors are flat, `(C, d)`; a number per client is `(C,)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.records import R, Record
from fedsaddle.files import Json, JsonObject

Own = TypeVar("Own", bound=Record | None)
Sent = TypeVar("Sent", bound=Record)


class Batch(NamedTuple):
    """Rows of each client: `x (C, B, ...)` and `y (C, B, ...)`.

    `weight (C, B)` is present if rows have different weights or are padding. `rows (C, B)` holds the row numbers
    within the client; it is present if rows were drawn. `keys()` gives a key for each client, `(C,)` int64, from which
    a model's dropout is drawn; the same batch gives the same masks. Without it there is no dropout. `sizes` holds how
    many rows of each client are real, the first ones; it is present if the others are padding. `units()` gives
    the number of each row's unit within its client, such as a patient, `(C, B)` int64, or None where each row is its
    own; it is present if all rows were asked for.

    Args:
        x: features, `(C, B, ...)`.
        y: labels or targets, `(C, B, ...)`.
        weight: `(C, B)`, if rows have different weights or are padding.
        rows: `(C, B)`, the row numbers within the client, if rows were drawn.
        keys: gives a key for each client, `(C,)` int64, from which dropout masks are drawn; without it there is no
            dropout.
        sizes: number of real rows of each client, which come first, if the others are padding.
        units: gives `(C, B)`, the number of each row's unit within its client, or None where each row is its own; it
            is present if all rows were asked for.
    """

    x: Tensor
    y: Tensor
    weight: Tensor | None = None
    rows: Tensor | None = None
    keys: Callable[[], Tensor] | None = None
    sizes: Sequence[int] | None = None
    units: Callable[[], Tensor | None] | None = None


class Site(Protocol):
    """A task's view of the clients it runs for: their rows and their randomness, nothing else."""

    @property
    def clients(self) -> Ints:
        """Client numbers, (C,)."""
        ...

    @property
    def sizes(self) -> Tensor:
        """Rows per client, (C,)."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the tensors of the exchange are: what was sent, rows and state. A task makes its own there too."""
        ...

    def broadcast(self, v: Tensor) -> Tensor:
        """The same vector for every client: `(d,) -> (C, d)`, without a copy."""
        ...

    def minibatch(self, step: int, size: int, stream: int = 0, label: int | None = None) -> Batch:
        """`size` rows drawn uniformly with replacement, the same on every engine for the same seed.

        With a `label`, draw only among the rows of that label; a client without such rows gets padding of weight 0.
        Independent draws within one step need different streams.
        """
        ...

    def minibatches(self, step: int, draws: Sequence[tuple[int, int, int | None]]) -> tuple[Tensor, list[Batch]]:
        """Several minibatches, each given by its size, stream and label.

        The first result is one tensor with the x of all minibatches, so that a model can process them in one pass.
        """
        ...

    def everything(self) -> Batch:
        """All rows of each client, padded with weight 0 to the size of the largest client."""
        ...

    def discount_samples(self, rows: int) -> None:
        """Subtract rows that were drawn but not used from the count of processed samples.

        This happens where clients of a block have fewer steps than others.
        """
        ...

    def labelled(self, label: int) -> Tensor:
        """The number of rows with that label, (C,)."""
        ...

    def uniforms(self, step: int, size: int, stream: int = 0) -> Tensor:
        """`(C, size)` float64 numbers, uniform on [0, 1): for draws of something other than rows."""
        ...


Task = Callable[[Own, Sent, Site], tuple[Own | None, R]]  # the client's memory, what was sent -> memory, reply


@dataclass(frozen=True)
class ClientsState:
    """The clients' part of a checkpoint: one record of tensors per client, and notes as plain JSON.

    Args:
        records: a record of tensors for each client number.
        notes: anything else, as plain JSON.
    """

    records: Mapping[int, Record] = field(default_factory=dict)
    notes: JsonObject = field(default_factory=dict)


@runtime_checkable
class Remembers(Protocol):
    """An algorithm whose clients keep state between exchanges."""

    def fresh(self, site: Site) -> Record | None:
        """The initial state of new clients: a record of tensors with a leading axis of clients, or None."""
        ...


@runtime_checkable
class Clients(Protocol):
    """The clients of a federation: simulated, deployed, or a wrapper around either.

    Your own engine inherits from this class and defines `count`, `sizes`, `begin`, `commit` and `ask`. If its clients
    keep state between rounds, it also defines `state` and `restore`.
    """

    @property
    def count(self) -> int:
        """Number of clients N."""
        ...

    @property
    def sizes(self) -> Ints:
        """Rows per client, fixed before the first round."""
        ...

    def begin(self, round: int) -> None:
        """Begin a round: its number keys all randomness. State of an unfinished round is discarded."""
        ...

    def commit(self) -> None:
        """End the round: the clients' new state becomes valid."""
        ...

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Run `task(own, sent, site)` at each client of the cohort and reduce the replies.

        A client that was drawn twice runs once and counts twice. `weights` (default 1) weight the averaged fields.
        Clients that do not answer are missing from the returned client numbers and from every reduction.
        """
        ...

    @property
    def samples(self) -> int:
        """Samples that clients have processed since the start; 0 if the engine does not count them."""
        return 0

    def settings(self) -> dict[str, Json]:
        """Settings that affect the rounding of a run, as plain JSON; a run resumes only with the same ones."""
        return {"name": type(self).__name__.lower()}

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint, after a committed round."""
        return ClientsState()

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: JsonObject, algorithm: object) -> None:
        """Restore the clients from a checkpoint: the fields of each client's record, and the notes."""
        return

    def checkpointed(self) -> None:
        """Called after a checkpoint was written."""
        return

    def report(self) -> dict[str, Json]:
        """Entries about the clients for the summary of a run."""
        return {}


def merge_repeats(cohort: ArrayLike, weights: ArrayLike | None, count: int) -> tuple[Ints, Floats]:
    """List each client once, in order of first appearance, with the sum of its weights.

    Args:
        cohort: numbers of the clients asked, which may repeat.
        weights: weight of each entry; None is 1.
        count: number of clients N.
    """
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

"""The server's half of FedX: first scores and counts, and the heap of scores of the last τ rounds.

The heap holds rows without names, in random order: see `lazy_scores` for what a row is. The counts that rows arrive
with are made weights here: |S_i| over the mean of it among the clients that have such rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedx.lazy_scores import (
    FIRST,
    SECOND,
    Shared,
    SharingScores,
    counted,
    drawn,
    label_of,
    shared_rows,
)
from fedsaddle.errors import BadInput, NobodyAnswered
from fedsaddle.federation.clients import Clients, Site, Task
from fedsaddle.federation.records import Averaged, Pooled


@dataclass(frozen=True)
class Opening:
    """Server to client, once: the model to take the first scores with, and how many clients there are."""

    w: Tensor
    cohort: int


@dataclass(frozen=True)
class First:
    """Client to server, once: first scores, and counts of which the server sees the mean alone."""

    scores1: Pooled  # H_{i,1}^0
    scores2: Pooled
    count1: Averaged  # |S1_i|
    count2: Averaged
    any1: Averaged  # 1 where S1_i is not empty
    any2: Averaged


class Scored(Protocol):
    """A reply with scores."""

    @property
    def scores1(self) -> Tensor: ...  # noqa: D102
    @property
    def scores2(self) -> Tensor: ...  # noqa: D102


@dataclass(frozen=True)
class Heaps:
    """What the server knows of S1 and S2."""

    scores1: Tensor  # R1, of the last τ rounds
    scores2: Tensor
    born1: Tensor  # the round that each came from
    born2: Tensor
    mean1: float  # |S1| / N
    mean2: float
    among1: float  # |S1| over the number of clients that have any
    among2: float


@dataclass(frozen=True, kw_only=True)
class HeapState:
    """The server's memory; the heaps are empty until the first round opens them."""

    rounds: int = 0
    scores1: Tensor | None = None
    scores2: Tensor | None = None
    born1: Tensor | None = None
    born2: Tensor | None = None
    mean1: float = 0.0
    mean2: float = 0.0
    among1: float = 0.0
    among2: float = 0.0

    def heaps(self) -> Heaps | None:
        """What it holds of scores."""
        if self.scores1 is None or self.scores2 is None or self.born1 is None or self.born2 is None:
            return None
        means = (self.mean1, self.mean2, self.among1, self.among2)
        return Heaps(self.scores1, self.scores2, self.born1, self.born2, *means)


def first_scores(how: SharingScores, sent: Opening, site: Site) -> First:
    """A client's part of the opening: scores of as many rows as it will share each round."""
    w = site.broadcast(sent.w)
    found: list[Tensor] = []
    counts = [counted(how, site, side, w) for side in (FIRST, SECOND)]
    for side in (FIRST, SECOND):
        rows = shared_rows(how, side, sent.cohort)
        z = drawn(how, site, 0, side, rows)
        shared = Shared(how, site, side, counts[side], sent.cohort)
        shared.add(z, shared.hidden(how.problem.scores_of(w, z.x).detach(), 0))
        found.append(shared.all())
    n1, n2 = (c.squeeze(1) for c in counts)
    return First(found[0], found[1], n1, n2, (n1 > 0).to(w.dtype), (n2 > 0).to(w.dtype))


def opened(how: SharingScores, task: Task[First], w: Tensor, clients: Clients, rng: np.random.Generator) -> Heaps:
    """Ask all clients for first scores and counts."""
    everyone = rng.choice(clients.count, clients.count, replace=False)  # the order of the heap tells nothing
    answered, first = clients.ask(everyone, task, Opening(w, clients.count))
    for side, share in ((FIRST, first.any1), (SECOND, first.any2)):
        if float(share) == 0:
            label = label_of(how.problem, side)
            if len(answered) == clients.count:
                raise BadInput("label", label, "no client has rows of this label; choose another, or other data")
            raise NobodyAnswered(f"no client with rows of label {label} answered")
    mean1, mean2 = float(first.count1), float(first.count2)
    empty = torch.zeros(0, dtype=torch.int64)
    none1, none2 = (s[:0] for s in (first.scores1, first.scores2))
    heaps = Heaps(none1, none2, empty, empty, mean1, mean2, mean1 / float(first.any1), mean2 / float(first.any2))
    return heaped(how, heaps, first, 0, rng)


def heaped(how: SharingScores, h: Heaps, came: Scored, round: int, rng: np.random.Generator) -> Heaps:
    """The heaps after a round: what came, shuffled, beside what is left of the last τ rounds that brought any."""
    one = _with(h.scores1, h.born1, came.scores1, h.among1, round, how.buffer_rounds, rng)
    two = _with(h.scores2, h.born2, came.scores2, h.among2, round, how.buffer_rounds, rng)
    return Heaps(one[0], two[0], one[1], two[1], h.mean1, h.mean2, h.among1, h.among2)


def _with(
    kept: Tensor, born: Tensor, came: Tensor, among: float, round: int, rounds: int, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    new = came[came[:, 0] > 0]  # the others are padding
    new = new[torch.from_numpy(rng.permutation(len(new)))]
    new = torch.cat([new[:, :1] / among, new[:, 1:]], 1)
    heap, ages = torch.cat([kept, new]), torch.cat([born, torch.full((len(new),), round)])
    young = ages > int(ages.max()) - rounds
    return heap[young], ages[young]

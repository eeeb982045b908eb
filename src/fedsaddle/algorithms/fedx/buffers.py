"""The lazy half of FedX: scores that clients share, travel as rows of numbers, and are paired with one round later.

H_{i,1} and H_{i,2} are `Shared` at client i; R_1 and R_2 are `Buffer` at the server, without names and in random order;
B_{i,1} and B_{i,2} are `lazy_batches` at client i. What belongs to one sample stays in one row, however it is shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedx.active import (
    ACTIVE,
    FIRST,
    NOISE,
    ORDER,
    SECOND,
    Pairing,
    check,
    row_weights,
    rows_per_step,
    set_label,
    set_sizes,
)
from fedsaddle.algorithms.fedx.privacy import ScorePrivacy
from fedsaddle.arguments import choice, instance, number, whole
from fedsaddle.errors import BadInput, NobodyAnswered
from fedsaddle.federation.clients import Batch, Clients, Site, Task
from fedsaddle.federation.records import Averaged, Kept, Pooled
from fedsaddle.problems.pair_losses import Scores, WeightedScores
from fedsaddle.problems.protocols import PairwiseProblem


class SharingScores(Pairing, Protocol):
    """The hyper-parameters of pairwise algorithms that share scores."""

    @property
    def buffer_rounds(self) -> int: ...  # noqa: D102
    @property
    def sharing(self) -> str: ...  # noqa: D102
    @property
    def privacy(self) -> ScorePrivacy | None: ...  # noqa: D102
    @property
    def clip(self) -> float: ...  # noqa: D102


def check_sharing(how: SharingScores) -> None:
    """Validate the hyper-parameters."""
    check(how)
    whole("buffer_rounds", how.buffer_rounds)
    choice("sharing", how.sharing, ("all", "sub-sampled"))
    number("clip", how.clip, above=0, infinite=True)
    if how.privacy is not None:
        instance("privacy", how.privacy, ScorePrivacy, "give fs.ScorePrivacy(bound=2.0, noise=4.0), or None")


# --- a shared score as a row of numbers -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Lazy(WeightedScores):
    """Scores h of samples elsewhere, with their labels y, their weights and, in FedX2, their u."""

    u: Tensor  # (C, B, q); in FedX1 q = 0


@dataclass(frozen=True)
class Columns:
    """How a shared score is laid out: its weight | its label, where the set is of all rows | h | u."""

    label: int | None  # of the set; None: all rows
    parts: int = 0  # q, the last columns

    @classmethod
    def of(cls, problem: PairwiseProblem, side: int, parts: int = 0) -> Columns:
        """Those of S1 or S2."""
        return cls(set_label(problem, side), parts)

    def pack(self, s: Lazy) -> Tensor:
        """`(..., columns)`."""
        label = [s.y.to(s.h.dtype).unsqueeze(-1)] if self.label is None else []
        return torch.cat([s.weight.unsqueeze(-1), *label, s.h, s.u], -1)

    def unpack(self, rows: Tensor) -> Lazy:
        """Of `(..., columns)`."""
        begin, end = (2 if self.label is None else 1), rows.shape[-1] - self.parts
        y = rows[..., 1] if self.label is None else rows.new_full(rows.shape[:-1], self.label)
        return Lazy(rows[..., begin:end], y, rows[..., 0], rows[..., end:])

    @staticmethod
    def weight(rows: Tensor) -> Tensor:
        """The column of weights, as a view."""
        return rows[..., 0]


# --- at a client ------------------------------------------------------------------------------------------------------


def lazy_batches(how: Pairing, site: Site, rows: Tensor, side: int, parts: int = 0) -> list[Lazy]:
    """B_{i,1} or B_{i,2}: for each step the next B rows in each client's own random order; again from the first where
    there are too few."""
    size = rows_per_step(how, side)
    count = how.local_steps * size
    order = site.uniforms(0, len(rows), ORDER + side).topk(min(count, len(rows)), dim=1, largest=False).indices
    order = order.repeat(1, -(-count // order.shape[1]))[:, :count]
    columns = Columns.of(how.problem, side, parts)
    return [columns.unpack(part) for part in torch.split(rows[order], size, 1)]


def scores_per_round(how: SharingScores, side: int, cohort: int) -> int:
    """How many scores of a set each client shares in a round: all K B, or the ⌈K B / m⌉ that suffice."""
    every = how.local_steps * rows_per_step(how, side)
    return every if how.sharing == "all" else -(-every // cohort)


class Shared:
    """H_{i,1} or H_{i,2}: the scores of one set that clients share in a round, collected step by step."""

    def __init__(self, how: SharingScores, site: Site, side: int, sizes: Tensor, cohort: int) -> None:
        self.how, self.site, self.side, self.sizes = how, site, side, sizes
        self.total = scores_per_round(how, side, cohort)
        self.scores: list[Lazy] = []
        self.rows: list[Tensor] = []

    def at(self, k: int) -> int:
        """How many fall on step k: they are spread evenly."""
        K = self.how.local_steps
        return (k + 1) * self.total // K - k * self.total // K

    def release(self, k: int, a: Scores, count: int | None = None) -> Scores:
        """The scores of the first rows as they may leave the client: as many as fall on step k, with noise if any."""
        count = self.at(k) if count is None else count
        h, privacy = a.h[:, :count], self.how.privacy
        return Scores(h if privacy is None else privacy.hide(h, self.site, k, NOISE + self.side), a.y[:, :count])

    def add(self, z: Batch, a: Scores, u: Tensor | None = None) -> None:
        """Released scores of the first rows of z, weighted by |S_i|, and in FedX2 their u."""
        count = a.h.shape[1]
        weight = row_weights(z, self.sizes)[:, :count]
        self.scores.append(Lazy(a.h, a.y, weight, a.h[..., :0] if u is None else u))
        if z.rows is not None:
            self.rows.append(z.rows[:, :count])

    def packed(self) -> Tensor:
        """All of the round, `(C, rows, columns)`; with privacy, a row that was drawn before counts nothing."""
        s = self.scores
        every = Lazy(
            torch.cat([a.h for a in s], 1),
            torch.cat([a.y for a in s], 1),
            torch.cat([a.weight for a in s], 1),
            torch.cat([a.u for a in s], 1),
        )
        if self.how.privacy is not None:
            every = _once_each(every, torch.cat(self.rows, 1))
        return Columns.of(self.how.problem, self.side).pack(every)


def _once_each(s: Lazy, rows: Tensor) -> Lazy:
    """Zeros in place of rows that stand further left as well; the others together count as all did."""
    once = ~_repeated(rows)
    weight = (s.weight * once).mul_(once.shape[1] / once.sum(1, keepdim=True))
    return Lazy(s.h * once.unsqueeze(-1), s.y * once, weight, s.u * once.unsqueeze(-1))


def _repeated(rows: Tensor) -> Tensor:
    """Whether the same number stands further left, (C, B)."""
    order = rows.argsort(dim=1, stable=True)
    ranked = rows.gather(1, order)
    again = torch.zeros_like(rows, dtype=torch.bool)
    again[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    return torch.zeros_like(again).scatter(1, order, again)


@dataclass(frozen=True)
class Opening:
    """Server to client, once: the model to take the first scores with, and how many clients there are."""

    w: Tensor
    cohort: int


@dataclass(frozen=True)
class First:
    """Client to server, once: first scores, and counts of which the server sees the mean alone."""

    scores1: Annotated[Pooled, Kept.WEIGHTS_FIRST]  # H_{i,1}^0
    scores2: Annotated[Pooled, Kept.WEIGHTS_FIRST]
    count1: Annotated[Averaged, Kept.COUNT]  # |S1_i|
    count2: Annotated[Averaged, Kept.COUNT]
    any1: Annotated[Averaged, Kept.COUNT]  # 1 where S1_i is not empty
    any2: Annotated[Averaged, Kept.COUNT]


def first_scores(how: SharingScores, sent: Opening, site: Site) -> First:
    """H_{i,1}^0 and H_{i,2}^0: scores of as many rows as the client will share each round."""
    w = site.broadcast(sent.w)
    n1, n2 = set_sizes(how, site, w)
    found: list[Tensor] = []
    for side, sizes in ((FIRST, n1), (SECOND, n2)):
        H = Shared(how, site, side, sizes, sent.cohort)
        z = site.minibatch(0, H.total, ACTIVE + side, set_label(how.problem, side))
        h = how.problem.scores_of(w, z.x).detach()
        H.add(z, H.release(0, Scores(h, z.y), H.total))
        found.append(H.packed())
    n1, n2 = n1.squeeze(1), n2.squeeze(1)
    return First(found[0], found[1], n1, n2, (n1 > 0).to(w.dtype), (n2 > 0).to(w.dtype))


# --- at the server ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Buffer:
    """R_1 or R_2: the packed scores of one set of the last τ rounds, in random order."""

    scores: Tensor  # (n, columns)
    born: Tensor  # (n,): the round that each came from
    mean: float  # |S| / N
    mean_among_holders: float  # |S| over the number of clients that have any

    def updated(self, came: Tensor, round: int, τ: int, rng: np.random.Generator) -> Buffer:
        """What came, shuffled, beside what is left of the last τ rounds that brought any.

        Rows arrive with |S_i|; their weight is that over its mean among the clients that have such rows.
        """
        new = came[Columns.weight(came) > 0]  # the others are padding
        new = new[torch.from_numpy(rng.permutation(len(new)))]
        Columns.weight(new).div_(self.mean_among_holders)
        scores, born = torch.cat([self.scores, new]), torch.cat([self.born, torch.full((len(new),), round)])
        kept = born > int(born.max()) - τ
        return replace(self, scores=scores[kept], born=born[kept])


Buffers = tuple[Buffer, Buffer]  # R_1 and R_2


@dataclass(frozen=True, kw_only=True)
class BufferState:
    """The buffers as fields of the server's state, which checkpoints want flat; none before the first round."""

    rounds: int = 0
    scores1: Tensor | None = None
    scores2: Tensor | None = None
    born1: Tensor | None = None
    born2: Tensor | None = None
    mean1: float = 0.0
    mean2: float = 0.0
    among1: float = 0.0
    among2: float = 0.0

    def buffers(self) -> Buffers | None:
        """R_1 and R_2."""
        if self.scores1 is None or self.scores2 is None or self.born1 is None or self.born2 is None:
            return None
        R1 = Buffer(self.scores1, self.born1, self.mean1, self.among1)
        return R1, Buffer(self.scores2, self.born2, self.mean2, self.among2)

    def holding(self, R1: Buffer, R2: Buffer) -> Self:
        """The same state with these buffers."""
        return replace(
            self,
            scores1=R1.scores,
            scores2=R2.scores,
            born1=R1.born,
            born2=R2.born,
            mean1=R1.mean,
            mean2=R2.mean,
            among1=R1.mean_among_holders,
            among2=R2.mean_among_holders,
        )


class Reply(Protocol):
    """A reply with scores."""

    @property
    def scores1(self) -> Tensor: ...  # noqa: D102
    @property
    def scores2(self) -> Tensor: ...  # noqa: D102


def update_buffers(how: SharingScores, R: Buffers, reply: Reply, round: int, rng: np.random.Generator) -> Buffers:
    """R_1 and R_2 after a round."""
    R1, R2, τ = *R, how.buffer_rounds
    return R1.updated(reply.scores1, round, τ, rng), R2.updated(reply.scores2, round, τ, rng)


def collect_first_scores(
    how: SharingScores, task: Task[First], w: Tensor, clients: Clients, rng: np.random.Generator
) -> Buffers:
    """R_1^0 and R_2^0, from all clients."""
    everyone = rng.choice(clients.count, clients.count, replace=False)  # the order of the buffer tells nothing
    answered, first = clients.ask(everyone, task, Opening(w, clients.count))
    for side, holders in ((FIRST, first.any1), (SECOND, first.any2)):
        if float(holders) == 0:
            label = set_label(how.problem, side)
            if len(answered) == clients.count:
                raise BadInput("label", label, "no client has rows of this label; choose another, or other data")
            raise NobodyAnswered(f"no client with rows of label {label} answered")
    R1 = _empty(first.scores1, float(first.count1), float(first.any1))
    R2 = _empty(first.scores2, float(first.count2), float(first.any2))
    return update_buffers(how, (R1, R2), first, 0, rng)


def _empty(like: Tensor, mean: float, holders: float) -> Buffer:
    return Buffer(like[:0], torch.zeros(0, dtype=torch.int64), mean, mean / holders)


def guarantee(how: SharingScores, rounds: int) -> dict[str, float | str] | None:
    """What the noise on shared scores guarantees after some rounds; None: there is no noise."""
    overlap = how.problem.first is None or how.problem.second is None
    return None if how.privacy is None else how.privacy.guaranteed(rounds, overlap)

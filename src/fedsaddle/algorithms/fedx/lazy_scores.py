"""The client's half of FedX: which rows are drawn and shared, and how lazy scores are taken from the heap.

A shared score is one row of numbers: |S_i| of its client, its label where the set is of all rows, its score h and, in
FedX2, its u. What belongs to one sample so stays together however the heap is shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedsaddle.algorithms.fedx.privacy import ScorePrivacy
from fedsaddle.arguments import choice
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Site
from fedsaddle.numerics.schedules import Step, check_step
from fedsaddle.problems.pair_losses import Scores
from fedsaddle.problems.protocols import PairwiseProblem

FIRST, SECOND = 0, 1  # S1 and S2
ACTIVE, FRESH, TURNS, NOISE = 0, 2, 4, 6  # streams of draws; + 1 for the second set


class Lazy(NamedTuple):
    """Scores of samples elsewhere, `(C, B, ...)`, with weights `(C, B)` and, in FedX2, u."""

    scores: Scores
    weight: Tensor
    u: Tensor


class Pairing(Protocol):
    """The hyper-parameters of every pairwise algorithm."""

    @property
    def problem(self) -> PairwiseProblem: ...  # noqa: D102
    @property
    def sampled_clients(self) -> int | None: ...  # noqa: D102
    @property
    def local_steps(self) -> int: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def second_batch_size(self) -> int | None: ...  # noqa: D102
    @property
    def primal_step(self) -> Step: ...  # noqa: D102


class SharingScores(Pairing, Protocol):
    """Those of the ones that share scores."""

    @property
    def buffer_rounds(self) -> int: ...  # noqa: D102
    @property
    def sharing(self) -> str: ...  # noqa: D102
    @property
    def privacy(self) -> ScorePrivacy | None: ...  # noqa: D102


def check(how: Pairing) -> None:
    """Refuse hyper-parameters that cannot be."""
    if not isinstance(how.problem, PairwiseProblem):
        raise BadInput("problem", type(how.problem).__name__, "give a PairwiseRisk")
    for key in ("local_steps", "batch_size", "second_batch_size", "sampled_clients", "buffer_rounds"):
        value = getattr(how, key, None)
        if value is not None and value < 1:
            raise BadInput(key, value, "must be at least 1")
    check_step("primal_step", how.primal_step)
    choice("sharing", getattr(how, "sharing", "all"), ("all", "sub-sampled"))


def label_of(problem: PairwiseProblem, side: int) -> int | None:
    """The label of S1 or S2; None: all rows."""
    return problem.first if side == FIRST else problem.second


def size_of(how: Pairing, side: int) -> int:
    """B1 or B2."""
    return how.batch_size if side == FIRST or how.second_batch_size is None else how.second_batch_size


def drawn(how: Pairing, site: Site, step: int, side: int, size: int | None = None, stream: int = ACTIVE) -> Batch:
    """Rows of S1 or S2 of each client."""
    return site.minibatch(step, size or size_of(how, side), stream + side, label_of(how.problem, side))


def drawn_together(how: Pairing, site: Site, step: int, fresh: Sequence[int] = ()) -> tuple[Tensor, list[Batch]]:
    """The x, side by side, of rows of S1 and of S2, and of so many fresh ones of either; and the four batches."""
    labels = [label_of(how.problem, side) for side in (FIRST, SECOND)]
    draws = [(size_of(how, side), ACTIVE + side, labels[side]) for side in (FIRST, SECOND)]
    return site.minibatches(step, draws + [(n, FRESH + side, labels[side]) for side, n in enumerate(fresh)])


def counted(how: Pairing, site: Site, side: int, like: Tensor) -> Tensor:
    """|S1_i| or |S2_i| of each client, (C, 1)."""
    label = label_of(how.problem, side)
    return (site.sizes if label is None else site.labelled(label)).to(like.dtype).unsqueeze(1)


def weighed(batch: Batch, own: Tensor) -> Tensor:
    """What each row counts: its client's weight, times its own where rows do not count alike or are padding."""
    if batch.weight is None:
        return own.expand(-1, batch.y.shape[1])
    return own * batch.weight.to(own.dtype)


def shared_rows(how: SharingScores, side: int, cohort: int) -> int:
    """How many scores of a set each client shares in a round: all K B, or the ⌈K B / m⌉ that suffice."""
    whole = how.local_steps * size_of(how, side)
    return whole if how.sharing == "all" else -(-whole // cohort)


class Shared:
    """The scores of one set that the clients share in a round, collected step by step."""

    def __init__(self, how: SharingScores, site: Site, side: int, counts: Tensor, cohort: int) -> None:
        self.how, self.site, self.side, self.counts = how, site, side, counts
        self.total = shared_rows(how, side, cohort)
        self.rows: list[Tensor] = []
        self.packed: list[Tensor] = []

    def at(self, step: int) -> int:
        """How many fall on a step: they are spread evenly."""
        K = self.how.local_steps
        return (step + 1) * self.total // K - step * self.total // K

    def hidden(self, h: Tensor, step: int) -> Tensor:
        """The scores as they may leave the client."""
        return h if self.how.privacy is None else self.how.privacy.hide(h, self.site, step, NOISE + self.side)

    def add(self, batch: Batch, h: Tensor, u: Tensor | None = None) -> None:
        """One row for each of the first samples of the batch, as many as there are scores."""
        rows = h.shape[1]
        parts = [weighed(batch, self.counts)[:, :rows, None]]
        if label_of(self.how.problem, self.side) is None:
            parts.append(batch.y[:, :rows, None].to(h.dtype))
        self.packed.append(torch.cat([*parts, h] if u is None else [*parts, h, u], -1))
        if batch.rows is not None:
            self.rows.append(batch.rows[:, :rows])

    def all(self) -> Tensor:
        """All of the round, `(C, rows, columns)`; with privacy, a row that was drawn before counts nothing."""
        whole = torch.cat(self.packed, 1)
        if self.how.privacy is not None:
            once = ~_repeated(torch.cat(self.rows, 1))
            whole = whole * once.unsqueeze(-1)
            whole[..., 0] *= once.shape[1] / once.sum(1, keepdim=True)  # together they count as before
        return whole


def _repeated(rows: Tensor) -> Tensor:
    """Whether the same number stands further left, (C, B)."""
    order = rows.argsort(dim=1, stable=True)
    ranked = rows.gather(1, order)
    again = torch.zeros_like(rows, dtype=torch.bool)
    again[:, 1:] = ranked[:, 1:] == ranked[:, :-1]
    return torch.zeros_like(again).scatter(1, order, again)


def taken(how: Pairing, heap: Tensor, site: Site, side: int, parts: int = 0) -> list[Lazy]:
    """For each step, the next B rows of the heap in each client's own random order; round again where it is short."""
    size = size_of(how, side)
    count = how.local_steps * size
    order = site.uniforms(0, len(heap), TURNS + side).topk(min(count, len(heap)), dim=1, largest=False).indices
    order = order.repeat(1, -(-count // order.shape[1]))[:, :count]
    return [unpacked(how.problem, part, side, parts) for part in torch.split(heap[order], size, 1)]


def unpacked(problem: PairwiseProblem, rows: Tensor, side: int, parts: int = 0) -> Lazy:
    """Rows `(C, B, columns)`, of which the last `parts` are u, as what they stand for."""
    label = label_of(problem, side)
    at, end = (2 if label is None else 1), rows.shape[-1] - parts
    y = rows[..., 1] if label is None else rows.new_full(rows.shape[:2], label)
    return Lazy(Scores(rows[..., at:end], y), rows[..., 0], rows[..., end:])

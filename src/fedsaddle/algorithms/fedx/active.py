"""The active half of a pairwise step: rows that a client draws from its own S1 and S2, their scores, and u(z).

S1 and S2 are the rows of one label each, or all rows; `side` says which of the two is meant. The lazy half, scores
that came from elsewhere, is in `buffers`.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from fedsaddle.algorithms.local_steps import MOST_ROWS, check_local, check_problem
from fedsaddle.arguments import whole
from fedsaddle.federation.clients import Batch, Site
from fedsaddle.federation.records import PerSample
from fedsaddle.numerics.passes import shrink_
from fedsaddle.numerics.schedules import Step, check_step
from fedsaddle.numerics.tensors import norms
from fedsaddle.problems.pair_losses import WeightedScores
from fedsaddle.problems.protocols import PairwiseProblem

BY_PAIRS = "its gradients compare rows with each other, not row by row; use CODA+ or CODASCA on the AUC"
FIRST, SECOND = 0, 1  # S1 and S2
ACTIVE, FRESH, ORDER, NOISE = 0, 2, 4, 6  # streams of draws; + 1 for S2


class Pairing(Protocol):
    """The hyperparameters of every pairwise algorithm."""

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


def check(algorithm: Pairing) -> None:
    """Validate the hyperparameters."""
    check_problem(algorithm, PairwiseProblem)
    check_local(algorithm.local_steps, algorithm.batch_size, algorithm.sampled_clients)
    if algorithm.second_batch_size is not None:
        whole("second_batch_size", algorithm.second_batch_size, most=MOST_ROWS)
    check_step("primal_step", algorithm.primal_step)


def set_label(problem: PairwiseProblem, side: int) -> int | None:
    """The label of S1 or S2; None: all rows."""
    return problem.first if side == FIRST else problem.second


def rows_per_step(algorithm: Pairing, side: int) -> int:
    """B1 or B2."""
    return algorithm.batch_size if side == FIRST or algorithm.second_batch_size is None else algorithm.second_batch_size


def set_sizes(algorithm: Pairing, site: Site, like: Tensor) -> tuple[Tensor, Tensor]:
    """|S1_i| and |S2_i| of each client, (C, 1)."""
    labels = (set_label(algorithm.problem, side) for side in (FIRST, SECOND))
    n1, n2 = (site.sizes if label is None else site.labelled(label) for label in labels)
    return n1.to(like.dtype).unsqueeze(1), n2.to(like.dtype).unsqueeze(1)


def row_weights(batch: Batch, own: Tensor) -> Tensor:
    """The weight of each row: its client's, `own (C, 1)`, times its own where there is one (0: padding)."""
    if batch.weight is None:
        return own.expand(-1, batch.y.shape[1])
    return own * batch.weight.to(own.dtype)


def draw(algorithm: Pairing, site: Site, k: int, fresh: Sequence[int] = ()) -> tuple[Tensor, list[Batch]]:
    """z_{i,k,1}, z_{i,k,2} and `fresh` further rows of each set: all x in one tensor, and each batch."""
    labels = [set_label(algorithm.problem, side) for side in (FIRST, SECOND)]
    draws = [(rows_per_step(algorithm, side), ACTIVE + side, labels[side]) for side in (FIRST, SECOND)]
    return site.minibatches(k, draws + [(n, FRESH + side, labels[side]) for side, n in enumerate(fresh)])


Pull = Callable[[Tensor, float, float, Tensor, Tensor], None]  # into, keep, gain, slope1, slope2


class ActiveScores(NamedTuple):
    """One pass of the model over all rows of a step."""

    of: list[WeightedScores]  # of each batch
    pull_: Pull
    statistics: Tensor | None  # BatchNorm's


def score(
    risk: PairwiseProblem,
    w: Tensor,
    x: Tensor,
    batches: Sequence[Batch],
    weights: tuple[Tensor, Tensor],
    longest: float = math.inf,
) -> ActiveScores:
    """h(w, z) of each batch, in turn of S1 and of S2; only the first two of them have gradients.

    `pull_(into, keep, gain, slope1, slope2)` is `into ← keep into + gain (slope1 ∇h(w; z1) + slope2 ∇h(w; z2))`,
    without a gradient in between; `into` may be `w`. A gradient that is longer than `longest` is made as long as that.
    """
    sizes = [z.y.shape[1] for z in batches]
    h, write_, statistics = risk.pushforward(w, x, sum(sizes[2:]), batches[0].keys)
    each = zip(batches, torch.split(h.flatten(2), sizes, 1), strict=True)
    of = [WeightedScores(part, z.y, row_weights(z, weights[k % 2])) for k, (z, part) in enumerate(each)]

    def pull_(into: Tensor, keep: float, gain: float, slope1: Tensor, slope2: Tensor) -> None:
        slope = torch.cat([slope1, slope2], 1)
        write_(slope.view(*slope.shape[:2], *h.shape[2:]), into, keep, gain)

    return ActiveScores(of, pull_ if longest == math.inf else _shortened(pull_, w, longest), statistics)


def _shortened(pull_: Pull, like: Tensor, longest: float) -> Pull:
    """The gradient of each client, clipped to that norm."""

    def shorter_(into: Tensor, keep: float, gain: float, slope1: Tensor, slope2: Tensor) -> None:
        g = torch.empty_like(like)
        pull_(g, 0.0, 1.0, slope1, slope2)
        share = (longest / norms(g).clamp_min(1e-300)).clamp_max(1.0).to(g.dtype)
        shrink_(into, keep).addcmul_(g, share, value=gain)

    return shorter_


@dataclass(frozen=True)
class InnerMeans:
    """A client's state: `u (C, n, q)`, and whether each was ever observed, `seen (C, n)`."""

    u: PerSample
    seen: PerSample

    def update(self, risk: PairwiseProblem, z: Batch, observed: Tensor, γ: float) -> Tensor:
        """Eq. (8), `u(z) ← (1 - γ) u(z) + γ observed`, for the rows z; the first observation initialises u(z)."""
        at, rows = self._at(z)
        old, seen = self.u.gather(1, at), self.seen.gather(1, rows)
        new = torch.where(seen.unsqueeze(-1), risk.outer.mixed(old, observed, γ), observed)
        self._keep(at, rows, new)
        return new

    def of(self, z: Batch, observed: Tensor) -> Tensor:
        """Stored u(z) of the first rows; rows without one are initialised with `observed`, in place."""
        at, rows = self._at(z, observed.shape[1])
        new = torch.where(self.seen.gather(1, rows).unsqueeze(-1), self.u.gather(1, at), observed)
        self._keep(at, rows, new)
        return new

    def _at(self, z: Batch, size: int | None = None) -> tuple[Tensor, Tensor]:
        assert z.rows is not None  # minibatches number their rows
        rows = z.rows[:, :size]
        return rows.unsqueeze(-1).expand(-1, -1, self.u.shape[-1]), rows

    def _keep(self, at: Tensor, rows: Tensor, new: Tensor) -> None:
        self.u.scatter_(1, at, new)  # a row that was drawn twice has the same value twice
        self.seen.scatter_(1, rows, True)


def unobserved(risk: PairwiseProblem, site: Site) -> InnerMeans:
    """No u(z) has been observed yet."""
    shape = (len(site.clients), int(site.sizes.max()))
    u = torch.zeros(*shape, risk.loss.parts, dtype=risk.initial().dtype, device=site.device)
    return InnerMeans(u, torch.zeros(shape, dtype=torch.bool, device=site.device))

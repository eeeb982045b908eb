"""Scores of FedX: the active half that a client computes, and the lazy half that clients share.

Active: rows that a client draws from its own S1 and S2, their scores, and u(z). S1 and S2 are the rows of one label
each, or all rows; `side` says which of the two is meant. Lazy: scores that clients share, optionally with noise, and
pair with their own one round later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedx.guard import Pace, Watch
from fedsaddle.algorithms.local_steps import MOST_ROWS, check_local, check_problem
from fedsaddle.arguments import choice, instance, number, whole
from fedsaddle.errors import BadInput, NobodyAnswered
from fedsaddle.federation.clients import Batch, Clients, Own, Site, Task
from fedsaddle.federation.records import Averaged, ExactBounds, PerSample, Pooled
from fedsaddle.numerics.schedules import Step, check_step
from fedsaddle.numerics.tensors import shrink_
from fedsaddle.problems.pair_losses import Scores, WeightedScores
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
    watch: Watch | None = None,
) -> ActiveScores:
    """h(w, z) of each batch, in turn of S1 and of S2; only the first two of them have gradients.

    `pull_(into, keep, gain, slope1, slope2)` is `into ← keep into + gain (slope1 ∇h(w; z1) + slope2 ∇h(w; z2))`,
    without a gradient in between; `into` may be `w`. The gradients of a client that `watch` has stopped are zero.
    """
    sizes = [z.y.shape[1] for z in batches]
    h, write_, statistics = risk.pushforward(w, x, sum(sizes[2:]), batches[0].keys)
    each = zip(batches, torch.split(h.flatten(2), sizes, 1), strict=True)
    of = [WeightedScores(part, z.y, row_weights(z, weights[k % 2])) for k, (z, part) in enumerate(each)]

    def pull_(into: Tensor, keep: float, gain: float, slope1: Tensor, slope2: Tensor) -> None:
        slope = torch.cat([slope1, slope2], 1)
        write_(slope.view(*slope.shape[:2], *h.shape[2:]), into, keep, gain)

    return ActiveScores(of, pull_ if watch is None else _watched(pull_, w, watch), statistics)


def _watched(pull_: Pull, like: Tensor, watch: Watch) -> Pull:
    """The same by the gradient of each client, whose length is noted."""

    def noted_(into: Tensor, keep: float, gain: float, slope1: Tensor, slope2: Tensor) -> None:
        g = torch.empty_like(like)
        pull_(g, 0.0, 1.0, slope1, slope2)
        shrink_(into, keep).add_(watch.stopped_(g), alpha=gain)

    return noted_


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


def epsilon(releases: int, noise: float, delta: float = 1e-5) -> float:
    """ε at δ of that many Gaussian releases, each with noise of `noise` times its sensitivity.

    One release is ρ-zCDP with `ρ = 1 / (2 noise²)`; releases add their ρ (Bun, Steinke 2016). ρ-zCDP is Rényi DP of
    `ε_α = α ρ` for every α > 1, which gives `ε = α ρ + log(1 - 1/α) - log(δ α) / (α - 1)` (Canonne, Kamath, Steinke
    2020, proposition 12); the best α is taken.
    """
    whole("releases", releases, least=0)
    number("noise", noise, least=0)
    number("delta", delta, above=0, below=1)
    if noise**2 == 0:
        return math.inf
    if releases == 0:
        return 0.0
    ρ = releases / (2 * noise**2)
    α = 1 + np.logspace(-4, 6, 4001)
    return float(max(0.0, (α * ρ + np.log1p(-1 / α) - (math.log(delta) + np.log(α)) / (α - 1)).min()))


DELTA = 1e-5


@dataclass(frozen=True)
class ScorePrivacy:
    """Noise on the scores that are shared, not on the model: clipped to a ball, Gaussian noise, and clipped again.

    A client shares the score of a row at most once a round. The guarantee covers the shared scores alone, for two
    data sets that differ in one row of one client, of the same label: `epsilon(rounds)` is what the scores of all
    rounds together can tell about it. Labels, the clients' counts and the averaged models are not covered.

    Args:
        bound: scores are clipped to |h| <= bound.
        noise: standard deviation of the noise, as a multiple of the sensitivity 2 · bound.

    Examples:
        >>> import fedsaddle as fs
        >>> round(fs.ScorePrivacy(bound=2.0, noise=4.0).epsilon(rounds=20), 2)
        5.53
    """

    bound: float
    noise: float

    def __post_init__(self) -> None:
        number("privacy.bound", self.bound, above=0)
        number("privacy.noise", self.noise, above=0)

    def epsilon(self, rounds: int, delta: float = DELTA, *, both_sets: bool = False) -> float:
        """ε at δ after that many rounds and the opening; twice the releases where a row may be in both sets."""
        whole("rounds", rounds, least=0)
        number("delta", delta, above=0, below=1)
        return epsilon((rounds + 1) * (2 if both_sets else 1), self.noise, delta)

    def hide(self, h: Tensor, site: Site, step: int, stream: int) -> Tensor:
        """The scores `(C, B, d_o)`, clipped, with noise, and clipped again, which costs no privacy."""
        size = h.shape[1] * h.shape[2]
        both = site.uniforms(step, 2 * size, stream)
        normal = (-2 * (1 - both[:, :size]).log()).sqrt() * (2 * torch.pi * both[:, size:]).cos()  # Box, Muller
        return self._clip(torch.add(self._clip(h), normal.view_as(h).to(h.dtype), alpha=2 * self.bound * self.noise))

    def _clip(self, h: Tensor) -> Tensor:
        length: Tensor = h.norm(dim=-1, keepdim=True)
        return h * (self.bound / length.clamp_min(self.bound))

    def guaranteed(self, rounds: int, both_sets: bool) -> dict[str, float | str]:
        """For the summary of a run."""
        return {
            "covers": "shared scores; one row of one client replaced by another of the same label",
            "epsilon": self.epsilon(rounds, both_sets=both_sets),
            "delta": DELTA,
            "releases": (rounds + 1) * (2 if both_sets else 1),
        }


class SharingScores(Pairing, Protocol):
    """The hyperparameters of pairwise algorithms that share scores."""

    @property
    def buffer_rounds(self) -> int: ...  # noqa: D102
    @property
    def sharing(self) -> str: ...  # noqa: D102
    @property
    def privacy(self) -> ScorePrivacy | None: ...  # noqa: D102
    @property
    def guard(self) -> float: ...  # noqa: D102


def check_sharing(algorithm: SharingScores) -> None:
    """Validate the hyperparameters."""
    check(algorithm)
    whole("buffer_rounds", algorithm.buffer_rounds)
    choice("sharing", algorithm.sharing, ("all", "sub-sampled"))
    number("guard", algorithm.guard, above=1, infinite=True)
    if algorithm.privacy is not None:
        instance("privacy", algorithm.privacy, ScorePrivacy, "give fs.ScorePrivacy(bound=2.0, noise=4.0), or None")


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


def lazy_batches(algorithm: Pairing, site: Site, rows: Tensor, side: int, parts: int = 0) -> list[Lazy]:
    """B_{i,1} or B_{i,2}: for each step the next B rows in each client's own random order; again from the first where
    there are too few."""
    size = rows_per_step(algorithm, side)
    count = algorithm.local_steps * size
    order = site.uniforms(0, len(rows), ORDER + side).topk(min(count, len(rows)), dim=1, largest=False).indices
    order = order.repeat(1, -(-count // order.shape[1]))[:, :count]
    columns = Columns.of(algorithm.problem, side, parts)
    return [columns.unpack(part) for part in torch.split(rows[order], size, 1)]


def scores_per_round(algorithm: SharingScores, side: int, cohort: int) -> int:
    """How many scores of a set each client shares in a round: all K B, or the ⌈K B / m⌉ that suffice."""
    every = algorithm.local_steps * rows_per_step(algorithm, side)
    return every if algorithm.sharing == "all" else -(-every // cohort)


class Shared:
    """H_{i,1} or H_{i,2}: the scores of one set that clients share in a round, collected step by step."""

    def __init__(self, algorithm: SharingScores, site: Site, side: int, sizes: Tensor, cohort: int) -> None:
        self.algorithm, self.site, self.side, self.sizes = algorithm, site, side, sizes
        self.total = scores_per_round(algorithm, side, cohort)
        self.scores: list[Lazy] = []
        self.rows: list[Tensor] = []

    def at(self, k: int) -> int:
        """Number of scores collected at step k; they are spread evenly over the steps."""
        K = self.algorithm.local_steps
        return (k + 1) * self.total // K - k * self.total // K

    def release(self, k: int, a: Scores, count: int | None = None) -> Scores:
        """The scores of the first rows that step k shares, with noise if there is privacy."""
        count = self.at(k) if count is None else count
        h, privacy = a.h[:, :count], self.algorithm.privacy
        return Scores(h if privacy is None else privacy.hide(h, self.site, k, NOISE + self.side), a.y[:, :count])

    def add(self, z: Batch, a: Scores, u: Tensor | None = None) -> None:
        """Released scores of the first rows of z, weighted by |S_i|, and in FedX2 their u."""
        count = a.h.shape[1]
        weight = row_weights(z, self.sizes)[:, :count]
        self.scores.append(Lazy(a.h, a.y, weight, a.h[..., :0] if u is None else u))
        if z.rows is not None:
            self.rows.append(z.rows[:, :count])

    def packed(self) -> Tensor:
        """All of the round, `(C, rows, columns)`; with privacy, a row that was drawn before has weight 0."""
        s = self.scores
        every = Lazy(
            torch.cat([a.h for a in s], 1),
            torch.cat([a.y for a in s], 1),
            torch.cat([a.weight for a in s], 1),
            torch.cat([a.u for a in s], 1),
        )
        if self.algorithm.privacy is not None:
            every = _once_each(every, torch.cat(self.rows, 1))
        return Columns.of(self.algorithm.problem, self.side).pack(every)


def _once_each(s: Lazy, rows: Tensor) -> Lazy:
    """Zero out repeated rows and rescale the weights so that their sum is unchanged."""
    once = ~_repeated(rows)
    weight = (s.weight * once).mul_(once.shape[1] / once.sum(1, keepdim=True))
    return Lazy(s.h * once.unsqueeze(-1), s.y * once, weight, s.u * once.unsqueeze(-1))


def _repeated(rows: Tensor) -> Tensor:
    """Whether the same number occurs earlier in the row, (C, B)."""
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
    """Client to server, once: first scores, and counts of which the server sees only the mean."""

    scores1: Annotated[Pooled, ExactBounds.WEIGHTS_FIRST]  # H_{i,1}^0
    scores2: Annotated[Pooled, ExactBounds.WEIGHTS_FIRST]
    count1: Annotated[Averaged, ExactBounds.COUNT]  # |S1_i|
    count2: Annotated[Averaged, ExactBounds.COUNT]
    any1: Annotated[Averaged, ExactBounds.COUNT]  # 1 where S1_i is not empty
    any2: Annotated[Averaged, ExactBounds.COUNT]


def first_scores(algorithm: SharingScores, sent: Opening, site: Site) -> First:
    """H_{i,1}^0 and H_{i,2}^0: scores of as many rows as the client will share each round."""
    w = site.broadcast(sent.w)
    n1, n2 = set_sizes(algorithm, site, w)
    found: list[Tensor] = []
    for side, sizes in ((FIRST, n1), (SECOND, n2)):
        H = Shared(algorithm, site, side, sizes, sent.cohort)
        z = site.minibatch(0, H.total, ACTIVE + side, set_label(algorithm.problem, side))
        h = algorithm.problem.scores_of(w, z.x).detach()
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
        """Append this round's scores, shuffled, and drop those older than τ rounds.

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
class BufferState(Pace):
    """The buffers as flat fields of the server's state, for checkpoints; None before the first round."""

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

    def paced(self, pace: Pace) -> Self:
        """The same state a round later, with this pace."""
        return replace(self, pace=pace.pace, reference=pace.reference, rounds=self.rounds + 1)

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


def watch(algorithm: SharingScores, reference: float, cohort: int, like: Tensor) -> Watch | None:
    """What notes the gradients of a round; None without a guard."""
    κ = algorithm.guard
    return None if κ == math.inf else Watch(κ, reference, algorithm.local_steps, cohort, like)


def update_buffers(algorithm: SharingScores, R: Buffers, reply: Reply, round: int, rng: np.random.Generator) -> Buffers:
    """R_1 and R_2 after a round."""
    R1, R2, τ = *R, algorithm.buffer_rounds
    return R1.updated(reply.scores1, round, τ, rng), R2.updated(reply.scores2, round, τ, rng)


def collect_first_scores(
    algorithm: SharingScores, task: Task[Own, Opening, First], w: Tensor, clients: Clients, rng: np.random.Generator
) -> Buffers:
    """R_1^0 and R_2^0, from all clients."""
    everyone = rng.choice(clients.count, clients.count, replace=False)  # the order of the buffer tells nothing
    answered, first = clients.ask(everyone, task, Opening(w, clients.count))
    for side, holders in ((FIRST, first.any1), (SECOND, first.any2)):
        if float(holders) == 0:
            label = set_label(algorithm.problem, side)
            if len(answered) == clients.count:
                raise BadInput("label", label, "no client has rows of this label; choose another, or other data")
            raise NobodyAnswered(f"no client with rows of label {label} answered")
    R1 = _empty(first.scores1, float(first.count1), float(first.any1))
    R2 = _empty(first.scores2, float(first.count2), float(first.any2))
    return update_buffers(algorithm, (R1, R2), first, 0, rng)


def _empty(like: Tensor, mean: float, holders: float) -> Buffer:
    return Buffer(like[:0], torch.zeros(0, dtype=torch.int64), mean, mean / holders)


def guarantee(algorithm: SharingScores, rounds: int) -> dict[str, float | str] | None:
    """The privacy guarantee of the noise on shared scores after `rounds` rounds; None without noise."""
    overlap = algorithm.problem.first is None or algorithm.problem.second is None
    return None if algorithm.privacy is None else algorithm.privacy.guaranteed(rounds, overlap)

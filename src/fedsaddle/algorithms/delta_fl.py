"""Δ-FL: the superquantile of the clients' losses, which is the mean loss of the worst share of clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedavg import Start
from fedsaddle.algorithms.local_steps import cohort_size, draw_cohort
from fedsaddle.algorithms.term import LossesFirst
from fedsaddle.arguments import choice, number
from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged
from fedsaddle.numerics.schedules import if_scheduled

BINS = 256
LEAST, MOST = 1e-6, 1e6  # losses that are distinguished
FAR = 1e300


def tail_weights(losses: Floats, sizes: Floats, tail: float, boundary: str) -> Floats:
    """How much each client counts: its size above the (1 - tail)-quantile of the losses, nothing below.

    At the quantile itself it counts wholly, or with `boundary="fractional"` so that all together are the share `tail`.

    Examples:
        >>> tail_weights(np.array([1.0, 3.0, 2.0]), np.ones(3), 0.5, "whole").tolist()
        [0.0, 1.0, 1.0]
        >>> tail_weights(np.array([1.0, 3.0, 2.0]), np.ones(3), 0.5, "fractional").tolist()
        [0.0, 1.0, 0.5]
    """
    order = np.argsort(losses, kind="stable")
    below = np.cumsum(sizes[order])
    total = below[-1]
    at = int(np.searchsorted(below, (1 - tail) * total * (1 - 1e-12)))  # the first with that much of the mass
    quantile = losses[order[min(at, len(order) - 1)]]
    above, level = losses > quantile, losses == quantile
    share = 1.0
    if boundary == "fractional":
        share = float(np.clip((tail * total - sizes[above].sum()) / sizes[level].sum(), 0, 1))
    counts: Floats = sizes * (above + share * level)
    return counts


@dataclass(frozen=True)
class Bins:
    """Bins of losses between `low` and `high`; `share` of the clients in between belong to the tail."""

    low: float
    high: float
    share: float = 1.0

    @classmethod
    def all(cls) -> Bins:
        """All losses."""
        return cls(LEAST, MOST)

    @property
    def edges(self) -> Tensor:
        """Where bins part; losses outside of `low` to `high` fall into the first and the last."""
        inner = np.geomspace(max(self.low, LEAST), min(self.high, MOST), BINS - 1)
        return torch.from_numpy(inner)

    def holding(self, mass: Tensor, tail: float) -> Bins:
        """The bin that holds the (1 - tail)-quantile, from the mass of clients in each."""
        edges, inside = self.edges.numpy(), mass.numpy()
        upto, total = np.cumsum(inside), float(inside.sum())
        at = min(int(np.searchsorted(upto, (1 - tail) * total * (1 - 1e-12))), len(edges))
        share = float(np.clip((tail * total - (total - upto[at])) / inside[at], 0, 1)) if inside[at] > 0 else 1.0
        return Bins(float(edges[at - 1]) if at else -FAR, float(edges[at]) if at < len(edges) else FAR, share)


NAMED = {
    "Delta-FL": {
        "class": "DeltaFl",
        "about": "the worst share of clients: superquantile",
        "source": "Pillutla et al. 2023",
        "kind": "minimisation",
    },
}


@dataclass(frozen=True)
class Ladder:
    """Server to client: a model, and the losses that part one bin from the next."""

    w: Tensor
    edges: Tensor


@dataclass(frozen=True)
class Counts:
    """Client to server: a one in the bin of its loss; only sums over clients are seen."""

    bins: Averaged


@dataclass(frozen=True)
class TailStart:
    """Server to client: the model to start from, and which losses count."""

    w: Tensor
    low: float  # losses from here on count, by `share`
    high: float  # from here on they count wholly
    share: float
    step: float | None = None


@dataclass(frozen=True)
class TailUpdate:
    """Client to server: how far it moved, times how much it counts, and how much it counts."""

    moved: Averaged
    counts: Averaged


@dataclass(frozen=True)
class DeltaFlState:
    """The server's state."""

    w: Tensor
    rounds: int = 0


@dataclass(frozen=True, kw_only=True)
class DeltaFl(LossesFirst):
    """Δ-FL (Laguel et al. 2021; Pillutla et al. 2023): FedAvg over the share θ of clients with the largest losses.

    It minimises the superquantile `max {Σ q_k F_k : Σ q_k = 1, 0 ≤ q_k ≤ α_k / θ}` with `α_k = n_k / n`. θ = 1 is
    FedAvg, θ → 0 the worst client.

    With `threshold="counts"` no loss is seen: two exchanges of counts find the threshold, and clients decide themselves
    whether they count.

    Args:
        problem: the problem to solve.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        local_optimiser: optimiser of the local steps, of `fs.optimisers`; None is SGD.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.
        trimmed: share of the largest losses that is ignored, such as those of wrong labels (ε of DORO); 0 is the box.
        tail: θ, share of the clients, those with the largest losses, that the risk is the mean of.
        weighting: α_k, n_k / n with "size", 1 / N with "uniform".
        boundary: "whole" counts the client at the threshold in full, "fractional" by the rest of the share.
        threshold: "losses" computes the threshold from each client's loss, "counts" from counts alone.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.DeltaFl(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), tail=0.3).boundary
        'whole'

    **Deviations from the paper**: written after the authors' code, whose rounds are those of the documentation's box;
    τ steps instead of epochs. `boundary="fractional"` gives the client at the threshold the rest of the share, so that
    the step is a subgradient of the superquantile. `threshold="counts"` is ours; losses below 1e-6 or above 1e6 are
    taken for these.
    """

    tail: float = 0.5  # θ
    weighting: str = "size"  # α_k = n_k / n
    boundary: str = "whole"
    threshold: str = "losses"

    def __post_init__(self) -> None:
        super().__post_init__()
        number("tail", self.tail, above=0, most=1)
        choice("weighting", self.weighting, ("size", "uniform"))
        choice("boundary", self.boundary, ("whole", "fractional"))
        choice("threshold", self.threshold, ("losses", "counts"))
        if self.threshold == "counts" and self.trimmed:
            raise BadInput("trimmed", self.trimmed, "needs the losses; use threshold = 'losses'")

    def start(self, clients: Clients) -> DeltaFlState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        return DeltaFlState(self.problem.initial())

    def round(self, server: DeltaFlState, clients: Clients, rng: np.random.Generator) -> DeltaFlState:
        """Lines 2-6 of the box."""
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))  # line 2
        η = if_scheduled(self.primal_step, server.rounds)
        if self.threshold == "counts":
            return DeltaFlState(self._unseen(server.w, clients, S, η), server.rounds + 1)
        S, F = self.ask_losses(clients, S, server.w)  # line 3
        q = tail_weights(F.numpy(), self._sizes(clients, S), self.tail, self.boundary)  # lines 4-5
        _, local = clients.ask(S[q > 0], self.local_sgd, Start(server.w, η), weights=q[q > 0])  # line 6
        return DeltaFlState(local.final, server.rounds + 1)  # line 6

    def model(self, server: DeltaFlState) -> Tensor:
        """The solution so far."""
        return server.w

    def count(self, own: None, sent: Ladder, site: Site) -> tuple[None, Counts]:
        """A one in the bin of the client's loss."""
        F = self.problem.value(site.broadcast(sent.w), site.everything())
        bins = torch.bucketize(F.double(), sent.edges.to(F.device), right=True)
        return None, Counts(torch.nn.functional.one_hot(bins, len(sent.edges) + 1).to(torch.float64))

    def tail_sgd(self, own: None, sent: TailStart, site: Site) -> tuple[None, TailUpdate]:
        """τ local steps of a client whose loss counts; the others send zeros."""
        w = site.broadcast(sent.w)
        F = self.problem.value(w, site.everything()).double()
        counts = (sent.high <= F).double() + sent.share * ((sent.low <= F) & (sent.high > F))
        _, local = self.local_sgd(None, Start(sent.w, sent.step), site)
        return None, TailUpdate((local.final - w) * counts.to(w.dtype)[:, None], counts)

    def _unseen(self, w: Tensor, clients: Clients, S: Ints, η: float | None) -> Tensor:
        """The new model, by counts alone."""
        bins = Bins.all()
        for _ in range(2):  # line 3: first roughly, then within the bin that holds the threshold
            S, counts = clients.ask(S, self.count, Ladder(w, bins.edges), weights=self._sizes(clients, S))
            bins = bins.holding(counts.bins.double().cpu(), self.tail)  # line 4
        share = bins.share if self.boundary == "fractional" else 1.0  # line 5
        sent = TailStart(w, bins.low, bins.high, share, η)
        _, update = clients.ask(S, self.tail_sgd, sent, weights=self._sizes(clients, S))  # line 6
        return w + update.moved / update.counts.to(w.dtype) if float(update.counts) > 0 else w  # line 6

    def _sizes(self, clients: Clients, S: Ints) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """n_k, or ones."""
        return clients.sizes[S].astype(np.float64) if self.weighting == "size" else np.ones(len(S))

"""Compositional pairwise risks: `mean over z in S1 of f(mean over z' in S2 of ℓ(h(z), h(z')))`, eq. (1) of FedX."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsaddle.arguments import LARGEST_WHOLE, instance
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.tensors import InPlace, Keys
from fedsaddle.problems.outers import NO_CAPS, Identity, Outer, RatioCaps, inner_parts, log_mean
from fedsaddle.problems.pair_losses import PairLoss, Scores, SquaredHinge, WeightedScores
from fedsaddle.problems.protocols import AllRows, MinimisationProblem, PrimalGradient
from fedsaddle.problems.scored import OverModel, pooled_auroc

MOST_PARTNERS = 2048  # rows of S2 that a row's loss is measured against


@dataclass(frozen=True, kw_only=True)
class PairwiseRisk(OverModel, MinimisationProblem):
    """`F(w) = mean over z in S1 of f(mean over z' in S2 of ℓ(h(w; z), h(w; z')))` (eq. 1 of FedX).

    Args:
        model: h, any network: one output for rankings, several for metric learning.
        loss: ℓ, of `fs.pair_losses`; for outer functions of exponentials the L of `ℓ = exp(L / λ)`.
        outer: f, of `fs.outers`; the identity unless given.
        first: label of S1; None takes all rows, whose labels are then sent with their scores.
        second: label of S2, likewise.
        project_x: projection of w, of `fs.projections`; none by default.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        l2_biases: whether the penalty applies to biases, too.
        clip: largest norm of a gradient; longer ones are scaled down to it; None does not clip.

    Raises:
        BadInput: An argument is of another kind, or ℓ has not as many parts as f takes.

    Examples:
        >>> from fedsaddle import PairwiseRisk, models, pair_losses
        >>> risk = PairwiseRisk(model=models.mlp(30, [16], 1), loss=pair_losses.Sigmoid())
        >>> risk.outer.linear
        True
    """

    loss: PairLoss = field(default_factory=SquaredHinge)
    outer: Outer = field(default_factory=Identity)
    first: int | None = 1  # S1
    second: int | None = 0  # S2

    def __post_init__(self) -> None:
        instance("model", self.model, nn.Module, "give a torch.nn.Module, such as fs.models.mlp(30, [16], 1)")
        _check_object("loss", self.loss, PairLoss, "give a pair loss, such as fs.pair_losses.SquaredHinge()")
        _check_object("outer", self.outer, Outer, "give an outer function, such as fs.outers.Kl(1.0)")
        _check_label("first", self.first)
        _check_label("second", self.second)
        super().__post_init__()
        wanted = inner_parts(self.outer)
        if wanted is not None and self.loss.parts != wanted:
            remedy = f"{type(self.outer).__name__} is of {wanted}; choose another outer function, or another pair loss"
            raise BadInput("loss.parts", self.loss.parts, remedy)

    @property
    def dimension(self) -> int:
        """Length d of the flat vector."""
        return self.flat.dimension

    def initial(self) -> Tensor:
        """The model's present parameters."""
        return self.flat.initial()

    def scores_of(self, w: Tensor, x: Tensor) -> Tensor:
        """h of each client's rows, (C, B, d_o)."""
        return self.flat.scores(w, x).flatten(2)

    def pushforward(self, w: Tensor, x: Tensor, watched: int = 0, keys: Keys | None = None) -> InPlace:
        """The scores in training mode, and what writes a gradient from a slope in them."""
        return self.flat.pushforward(w, x, watched, keys)

    def descend_(self, w: Tensor, batch: Batch, step: float) -> Tensor:
        """`w ← w - step ∇f(w; batch)` over the clients' own pairs."""
        g, statistics = self._gradient(w, batch)
        return self.write_statistics_(w.sub_(g, alpha=step), statistics)

    def primal_gradient(self, w: Tensor, batch: Batch) -> PrimalGradient:
        """The gradient over the clients' own pairs, and BatchNorm's new statistics."""
        return PrimalGradient(*self._gradient(w, batch))

    def inner_mean(self, a: Scores, b: WeightedScores) -> Tensor:
        """What u of each a is over these b: the weighted mean of ℓ, (C, A, q)."""
        return self.outer.observed(self.loss.value(a, b), b.weight)

    def slopes(
        self,
        a: WeightedScores,
        b: WeightedScores,
        u: Tensor | None = None,
        scale: Tensor | None = None,
        caps: RatioCaps | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The slopes, in h of a and of b, of the weighted mean over all pairs of `f'(u) ℓ`; no u: f'(u) = 1."""
        wa, wb = a.weight, b.weight
        factors = ((wa / wa.shape[1]).unsqueeze(2) * (wb / wb.shape[1]).unsqueeze(1)).unsqueeze(-1)
        if u is not None:
            factors = factors * self.outer.factors(u, self.loss.value(a, b), scale, caps or NO_CAPS)
        return self.loss.slopes(a, b, factors)

    def value(self, w: Tensor, batch: Batch) -> Tensor:
        """The risk of each client's own batch, over all its pairs; 0 where it has none."""
        a, b = self._sides(self.flat.scores(w, batch.x).flatten(2), batch)
        f = self.outer.value(self.inner_mean(a, b))
        has_pairs: Tensor = (a.weight.amax(1) > 0) & (b.weight.amax(1) > 0)
        return self.penalised(torch.where(has_pairs, self.outer.total(f, a.weight), 0.0), w)

    def gradient(self, w: Tensor, batch: Batch) -> Tensor:
        """Its gradient: u is exact, so that any minimising algorithm can optimise the clients' own pairs."""
        return self._gradient(w, batch)[0]

    def _gradient(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        scores, pull, statistics = self.flat.pullback(w, batch.x, batch.keys, batch.sizes)
        a, b = self._sides(scores.flatten(2), batch)
        u = self.inner_mean(a, b)
        scale = None
        if self.outer.tracked:
            scale = log_mean(self.outer.value(u), a.weight).unsqueeze(1)
        to_a, to_b = self.slopes(a, b, u, scale)
        return pull((to_a + to_b).view_as(scores)), statistics

    def _sides(self, h: Tensor, batch: Batch) -> tuple[WeightedScores, WeightedScores]:
        """All rows as S1 and as S2: weights have a mean of 1, and are all 0 where a client has no such row."""
        weight = torch.ones_like(h[..., 0]) if batch.weight is None else batch.weight.to(h.dtype)
        both = []
        for label in (self.first, self.second):
            mine = weight if label is None else weight * (batch.y == label).to(h.dtype)
            both.append(WeightedScores(h, batch.y, mine / mine.mean(1, keepdim=True).clamp_min(1e-30)))
        return both[0], both[1]

    def client_measures(
        self, w: Tensor, x: Tensor, y: Tensor, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
        """For each client, its rows of S1 and the mean of their f(u), u over S2 of all clients (at most 2048 rows)."""
        h = self.scores(w, x).flatten(1)
        ups, downs = (_where(y, label) for label in (self.first, self.second))
        client = np.searchsorted(offsets, ups.cpu().numpy(), side="right") - 1
        counts = np.bincount(client, minlength=len(offsets) - 1).astype(np.int64)
        total: NDArray[np.float64] = np.zeros(len(counts))
        if not len(ups) or not len(downs):  # no pairs, no loss
            return np.diff(offsets), {"loss": total}
        downs = downs[:: -(-len(downs) // MOST_PARTNERS)]
        b = WeightedScores(h[None, downs], y[None, downs], h.new_ones(1, len(downs)))
        parts = [self._risks_of_rows(Scores(h[None, at], y[None, at]), b) for at in torch.split(ups, 1024)]
        np.add.at(total, client, torch.cat(parts).double().cpu().numpy())
        return counts, {"loss": np.where(counts > 0, total / np.maximum(counts, 1), np.nan)}

    def _risks_of_rows(self, a: Scores, b: WeightedScores) -> Tensor:
        """The risk of each row of a alone, (A,)."""
        f = self.outer.value(self.inner_mean(a, b))[0].unsqueeze(1)
        return self.outer.total(f, torch.ones_like(f))

    def row_measures(self, w: Tensor, x: Tensor, y: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """Each row's f(u) over the rows given; 0 for rows outside of S1. Clients are measured over all rows instead."""
        offsets = np.arange(len(x) + 1, dtype=np.int64)
        _, measures = self.client_measures(w, x, y, offsets)
        return {"loss": torch.from_numpy(np.nan_to_num(measures["loss"]))}

    def pooled_measures(self, w: Tensor, dual: Tensor | None, rows: AllRows) -> dict[str, float]:
        """AUROC, partial AUROC and average precision of all clients' rows together, for single scores."""
        return pooled_auroc(self.ranking(w, rows.x), rows.y)

    def ranking(self, w: Tensor, rows: Tensor) -> Tensor | None:
        """The score that ranks rows; None for models of several outputs."""
        h = self.scores(w, rows).flatten(1)
        return h[:, 0] if h.shape[1] == 1 else None


def _where(y: Tensor, label: int | None) -> Tensor:
    return torch.arange(len(y), device=y.device) if label is None else torch.nonzero(y == label).flatten()


def _check_object(key: str, value: object, kind: type, remedy: str) -> None:
    """An object that follows a protocol; its class will not do."""
    if isinstance(value, type) or not isinstance(value, kind):
        raise BadInput(key, value, remedy)


def _check_label(key: str, value: object) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or abs(int(value)) > LARGEST_WHOLE:
        raise BadInput(key, value, "must be a label, which is a whole number, or None for all rows")

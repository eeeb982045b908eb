"""The compositional AUC objective: min-max AUC after a step of cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedsaddle.arguments import number
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.passes import shrink_
from fedsaddle.numerics.shaped import ShapedModel
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.facts import DataFacts, ModelMaker
from fedsaddle.problems.losses import Logistic
from fedsaddle.problems.protocols import DualGradient, Gradients
from fedsaddle.problems.supervised import shares


@dataclass(frozen=True, kw_only=True)
class CompositionalAuc(MinimaxAuc):
    """`min_{w,a,b} max_α AUC(u; a, b, α) + ρ CE(w) + (l2 / 2) |w|²` with `u = w - η₀ ∇CE(w)`.

    Yuan, Guo, Chawla, Yang, "Compositional training for end-to-end deep AUC maximization", 2022.

    For any min-max algorithm. Both gradients are of the same batch, and that of AUC, taken at u, goes to w as it is:
    the second derivatives of the chain rule are left out, as the authors' optimiser does. The trained model is w.

    - ρ = `inner_weight` = 1 is their published optimiser, which goes on from u instead of w: with η₀ the length of
      its steps, `u - η₀ ∇AUC(u) = w - η₀ (∇AUC(u) + ∇CE(w))`.
    - ρ = 0 is the objective as it is written. It makes u good, and w only as far as w is near u; networks that start
      at random hardly learn by it.
    - η₀ = 0 is plain min-max AUC, whatever ρ.

    u is of all rows of a batch, so that the objective is no mean over rows: it cannot be private row by row, and
    measures such as `squared_gradient_of_phi` go through the clients one by one, each at its own u; the gradient that
    they measure leaves out the second derivatives, too. The `loss` of clients that evaluation shows is that of plain
    min-max AUC at w, the model that is delivered, and can be compared with runs of `MinimaxAuc`. The penalty `l2` is on
    w alone, and `clip` bounds the whole gradient in w.

    Example:
        >>> import fedsaddle as fs
        >>> fs.CompositionalAuc(model=fs.models.logistic_regression(30, 1), positive_share=0.1).inner_step
        0.1

    **Deviations from the paper**: the paper's optimiser keeps a running mean of u; here u is of the present batch alone
    (its β₀ = 1), so that clients need no memory, and CODA+, CODASCA and Local SGDA run it unchanged.
    """

    row_by_row: ClassVar[bool] = False

    inner_step: float = 0.1  # η₀
    inner_weight: float = 1.0  # ρ
    _bare: FlatModel = field(init=False, repr=False, compare=False)  # the model without penalty and bound

    def __post_init__(self) -> None:
        super().__post_init__()
        number("inner_step", self.inner_step, least=0)
        number("inner_weight", self.inner_weight, least=0)
        shaped = isinstance(self.flat, ShapedModel)
        bare = FlatModel(self.model, self.allows_statistics) if shaped else self.flat
        object.__setattr__(self, "_bare", bare)

    @classmethod
    def from_data(
        cls,
        facts: DataFacts,
        model_for: ModelMaker,
        *,
        inner_step: float = 0.1,
        inner_weight: float = 1.0,
        margin: float | None = None,
        sigmoid: bool = False,
        l2: float = 0.0,
        l2_biases: bool = True,
        clip: float | None = None,
    ) -> CompositionalAuc:
        """The problem for data of two classes; p is the share of the second over all clients."""
        facts.need_classes("compositional-auc")
        facts.need_two_classes("problem.name", "compositional-auc")
        return cls(
            model=model_for(1),
            positive_share=facts.counts[1] / sum(facts.counts),
            inner_step=inner_step,
            inner_weight=inner_weight,
            margin=margin,
            sigmoid=sigmoid,
            l2=l2,
            l2_biases=l2_biases,
            clip=clip,
        )

    def inner_gradient(self, x: Tensor, batch: Batch) -> Tensor:
        """∇CE(w) of each client's rows, with zeros for a and b."""
        w = self.weights(x).contiguous()
        scores, pull, _ = self._bare.pullback(w, batch.x, batch.keys)
        slope = Logistic().slope(scores, batch.y)
        share = shares(slope, batch)
        gradient = pull(slope * (share.unsqueeze(-1) if isinstance(share, Tensor) else share))
        return torch.nn.functional.pad(gradient, (0, x.shape[1] - self.flat.dimension))

    def inner_point(self, x: Tensor, batch: Batch) -> Tensor:
        """x with u in the place of w."""
        return x - self.inner_step * self.inner_gradient(x, batch) if self.inner_step else x

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """AUC at the inner point, cross-entropy at w, and the penalty on w."""
        u = self.inner_point(x, batch)
        rows = self._rows(self._h(self.flat.scores(self.weights(u), batch.x)), u, y, batch.y)
        if self.inner_step and self.inner_weight:
            inner = Logistic().value(self.flat.scores(self.weights(x).contiguous(), batch.x), batch.y)
            rows = rows + self.inner_weight * inner
        return self.penalised((rows * shares(rows, batch)).sum(1), x)

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """Those of plain AUC at the inner point, and at w ρ times that of cross-entropy and that of the penalty."""
        if not self.inner_step:
            return super().gradients(x, y, batch)
        inner = self.inner_gradient(x, batch)
        u = x - self.inner_step * inner
        scores, pull, statistics = self._bare.pullback(self.weights(u), batch.x, batch.keys, batch.sizes)
        at = self.slopes(scores, u, y, batch)
        assert at.rest is not None
        gx = torch.cat([pull(at.scores), at.rest], 1).add_(inner, alpha=self.inner_weight)
        if isinstance(self.flat, ShapedModel):
            self.flat.shape_(self.weights(gx), self.weights(x))
        return Gradients(gx, at.y, statistics)

    def best_response(self, x: Tensor, batch: Batch) -> Tensor:
        """`argmax_α` at the inner point of weighted rows `(n, ...)`, taken as one client's."""
        weight = None if batch.weight is None else batch.weight[None]
        α = self.best_dual(x[None], Batch(batch.x[None], batch.y[None], weight))[0]
        return self.project_y(α)

    def descend_(self, x: Tensor, y: Tensor, batch: Batch, step: float, keep: float = 1.0) -> DualGradient:
        """`x ← keep x - step ∇_x`, with the gradient of the inner point."""
        g = self.gradients(x, y, batch)
        shrink_(x, keep).sub_(g.x, alpha=step)
        return DualGradient(g.y, g.statistics)

    def scores_of(self, x: Tensor, batch: Batch) -> Tensor:
        """h of each client's rows at the inner point, (C, B)."""
        return super().scores_of(self.inner_point(x, batch), batch)

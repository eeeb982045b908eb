"""The compositional AUC objective: min-max AUC after a step of cross-entropy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsaddle.arguments import number
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.passes import shrink_
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.facts import DataFacts, ModelMaker
from fedsaddle.problems.losses import Logistic
from fedsaddle.problems.protocols import DualGradient, Gradients
from fedsaddle.problems.supervised import shares


@dataclass(frozen=True, kw_only=True)
class CompositionalAuc(MinimaxAuc):
    """`min_{w,a,b} max_α AUC(w - η₀ ∇CE(w); a, b, α)` (Yuan, Guo, Chawla, Yang 2022), for any min-max algorithm.

    The gradient is taken at the inner point `u = w - η₀ ∇CE(w)` of the same batch, and goes to w as it is: the second
    derivatives that the chain rule has are left out, as the authors' optimiser does. η₀ = 0 is plain min-max AUC.
    The trained model is w.

    Example:
        >>> import fedsaddle as fs
        >>> fs.CompositionalAuc(model=fs.models.logistic_regression(30, 1), positive_share=0.1).inner_step
        0.1

    **Deviations from the paper**: the paper's optimiser keeps a running mean of u; here u is of the present batch alone
    (its β₀ = 1), so that clients need no memory, and CODA+, CODASCA and Local SGDA run it unchanged.
    """

    inner_step: float = 0.1  # η₀

    def __post_init__(self) -> None:
        super().__post_init__()
        number("inner_step", self.inner_step, least=0)

    @classmethod
    def from_data(
        cls,
        facts: DataFacts,
        model_for: ModelMaker,
        *,
        inner_step: float = 0.1,
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
            margin=margin,
            sigmoid=sigmoid,
            l2=l2,
            l2_biases=l2_biases,
            clip=clip,
        )

    def inner_point(self, x: Tensor, batch: Batch) -> Tensor:
        """x with u in the place of w."""
        w = self.weights(x).contiguous()
        scores, pull, _ = self.flat.pullback(w, batch.x, batch.keys)
        slope = Logistic().slope(scores, batch.y)
        share = shares(slope, batch)
        gradient = pull(slope * (share.unsqueeze(-1) if isinstance(share, Tensor) else share))
        return torch.cat([w - self.inner_step * gradient, x[:, self.flat.dimension :]], 1)

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """At the inner point."""
        return super().value(self.inner_point(x, batch), y, batch)

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """Those of plain AUC at the inner point."""
        return super().gradients(self.inner_point(x, batch), y, batch)

    def descend_(self, x: Tensor, y: Tensor, batch: Batch, step: float, keep: float = 1.0) -> DualGradient:
        """`x ← keep x - step ∇_x`, with the gradient of the inner point."""
        g = self.gradients(x, y, batch)
        shrink_(x, keep).sub_(g.x, alpha=step)
        return DualGradient(g.y, g.statistics)

    def scores_of(self, x: Tensor, batch: Batch) -> Tensor:
        """h of each client's rows at the inner point, (C, B)."""
        return super().scores_of(self.inner_point(x, batch), batch)

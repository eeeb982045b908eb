"""Min-max AUC: the square surrogate as eq. (2) of CODASCA, the margin form, and the compositional objective."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from fedsaddle.arguments import flag, number
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.flat import FlatModel, ShapedModel
from fedsaddle.numerics.projections import Box, Everywhere, Projection
from fedsaddle.numerics.tensors import shrink_
from fedsaddle.problems.losses import Logistic
from fedsaddle.problems.protocols import AllRows, DataFacts, DualGradient, Gradients, ModelMaker
from fedsaddle.problems.scored import ByScores, Slopes, pooled_auroc
from fedsaddle.problems.supervised import flat_shares, shares


@dataclass(frozen=True, kw_only=True)
class MinimaxAuc(ByScores):
    """x = (w, a, b) and y = α.

    Square form: `(1-p)(h-a)²[+] + p(h-b)²[-] + 2(1+α)(p h[-] - (1-p) h[+]) - p(1-p) α²`.
    Margin form: the coupling is `2α(p(1-p) m + p h[-] - (1-p) h[+])` with α >= 0, for a margin m.
    With `sigmoid`, h is `1 / (1 + exp(-s))` of the model's score s: the squares then cannot blow up, whatever the
    features. Rows are ranked by s in either case.

    Args:
        model: network with one output, the score s.
        project_x: projection of the model's parameters, of `fs.projections`; none by default.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        l2_biases: whether the penalty applies to biases, too.
        clip: largest norm of a gradient in the parameters; longer ones are scaled down to it; None does not clip.
        positive_share: p, share of positive rows over all clients.
        margin: m of the margin form; None is the square form.
        sigmoid: whether h is the sigmoid of the score s; else h = s.

    Examples:
        >>> import fedsaddle as fs
        >>> x, y = fs.MinimaxAuc(model=fs.models.logistic_regression(30, 1), positive_share=0.1).initial()
        >>> len(x), len(y)  # the weights with a and b; α
        (33, 1)
    """

    positive_share: float  # p
    margin: float | None = None  # m
    sigmoid: bool = False
    project_y: Projection = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        number("positive_share", self.positive_share, above=0, below=1)
        if self.margin is not None:
            number("margin", self.margin)
        flag("sigmoid", self.sigmoid)
        inside: Projection = Everywhere() if self.margin is None else Box(0.0, float("inf"))
        object.__setattr__(self, "project_y", inside)

    @classmethod
    def from_data(
        cls,
        facts: DataFacts,
        model_for: ModelMaker,
        *,
        margin: float | None = None,
        sigmoid: bool = False,
        l2: float = 0.0,
        l2_biases: bool = True,
        clip: float | None = None,
    ) -> MinimaxAuc:
        """The problem for data of two classes; p is the share of the second over all clients."""
        facts.need_classes("auc")
        facts.need_two_classes("problem.name", "auc")
        share = facts.counts[1] / sum(facts.counts)
        return cls(
            model=model_for(1),
            positive_share=share,
            margin=margin,
            sigmoid=sigmoid,
            l2=l2,
            l2_biases=l2_biases,
            clip=clip,
        )

    def initial(self) -> tuple[Tensor, Tensor]:
        """The model's parameters with a = b = 0, and α = 0."""
        w = self.flat.initial()
        return torch.cat([w, w.new_zeros(2)]), w.new_zeros(1)

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's rows."""
        h = self._h(self.flat.scores(self.weights(x), batch.x))
        rows = self._rows(h, x, y, batch.y)
        return self.penalised((rows * shares(rows, batch)).sum(1), x)

    def slopes(self, scores: Tensor, x: Tensor, y: Tensor, batch: Batch) -> Slopes:
        """In s, in α, and in a and b; `coupling` is `2 (p[-] - (1-p)[+])`, times what each row counts."""
        p, d, α = self.positive_share, self.flat.dimension, y
        h, positive = self._h(scores), batch.y.to(scores.dtype)
        coupling = torch.rsub(positive, 2 * p, alpha=2).mul_(shares(h, batch))
        away = coupling.abs() * (h - torch.lerp(x[:, d + 1 :], x[:, d : d + 1], positive))  # from a[+] or b[-]
        slope = torch.addcmul(away, 1 + α if self.margin is None else α, coupling)
        if self.sigmoid:
            slope = slope * h * (1 - h)
        gy = torch.add((coupling * h).sum(1, keepdim=True), α, alpha=-2 * p * (1 - p))
        if self.margin is not None:
            gy += 2 * p * (1 - p) * self.margin
        from_a = (away * positive).sum(1)
        return Slopes(slope.unsqueeze(-1), gy, torch.stack([-from_a, from_a - away.sum(1)], 1))

    def row_slopes(self, scores: Tensor, x: Tensor, y: Tensor, batch: Batch) -> Slopes:
        """The same of each row on its own: y is (C, B, 1), and rest (C, B, 2)."""
        p, d, α = self.positive_share, self.flat.dimension, y
        h, positive = self._h(scores), batch.y.to(scores.dtype)
        coupling = 2 * p - 2 * positive
        away = coupling.abs() * (h - torch.lerp(x[:, d + 1 :], x[:, d : d + 1], positive))
        slope = away + (1 + α if self.margin is None else α) * coupling
        if self.sigmoid:
            slope = slope * h * (1 - h)
        gy = coupling * h + 2 * p * (1 - p) * ((0.0 if self.margin is None else self.margin) - α)
        from_a = away * positive
        return Slopes(slope.unsqueeze(-1), gy.unsqueeze(-1), torch.stack([-from_a, from_a - away], 2))

    def best_response(self, x: Tensor, batch: Batch) -> Tensor:
        """`argmax_α` over weighted rows `(n, ...)`: `E[p h[-] - (1-p) h[+]] / (p(1-p))`, and the margin."""
        h = self._h(self.scores(x, batch.x))
        up, down = self._sides(h, batch.y)
        p = self.positive_share
        α = ((down - up) * h * flat_shares(batch, h)).sum()[None] / (p * (1 - p))
        return α if self.margin is None else self.project_y(α + self.margin)

    def best_dual(self, x: Tensor, batch: Batch) -> Tensor:
        """The α that is best for each client's batch, before projection, (C, 1); means of it are best for means."""
        h = self.scores_of(x, batch)
        up, down = self._sides(h, batch.y)
        p = self.positive_share
        coupling = ((down - up) * h * shares(h, batch)).sum(1, keepdim=True) / (p * (1 - p))
        return coupling if self.margin is None else coupling + self.margin

    def scores_of(self, x: Tensor, batch: Batch) -> Tensor:
        """h of each client's rows, (C, B)."""
        with torch.no_grad():
            return self._h(self.flat.scores(self.weights(x).contiguous(), batch.x))

    def known_classes(self, rows: Tensor) -> int:
        """Two; the model gives one score."""
        scores = self.scores(self.initial()[0], rows).shape[-1]
        if scores != 1:
            raise BadInput("model", f"{scores} scores", "the AUC problem needs a model with one score")
        return 2

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """The objective at the present pair, row by row."""
        h = self._h(self.scores(x, rows))[None]
        y = x.new_zeros(1, 1) if dual is None else dual[None]
        return {"loss": self._rows(h, x[None], y, labels[None])[0]}

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """AUROC of all clients' rows together; never a mean of local ones."""
        return pooled_auroc(self.ranking(x, rows.x), rows.y)

    def ranking(self, x: Tensor, rows: Tensor) -> Tensor:
        """One number a row, higher for likely positives."""
        return self.scores(x, rows).squeeze(-1)

    def _h(self, scores: Tensor) -> Tensor:
        s = scores.squeeze(-1)
        return s.sigmoid() if self.sigmoid else s

    def _sides(self, h: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """(1-p)[+] and p[-] of each row."""
        positive = labels.to(h.dtype)
        return (1 - self.positive_share) * positive, self.positive_share * (1 - positive)

    def _rows(self, h: Tensor, x: Tensor, y: Tensor, labels: Tensor) -> Tensor:
        p, d, α = self.positive_share, self.flat.dimension, y
        up, down = self._sides(h, labels)
        a, b = x[:, d, None], x[:, d + 1, None]
        coupling = (down - up) * h
        linear = 2 * (1 + α) * coupling if self.margin is None else 2 * α * (p * (1 - p) * self.margin + coupling)
        return up * (h - a).square() + down * (h - b).square() + linear - p * (1 - p) * α.square()


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

    u is of all rows of a batch, so that the objective is not a mean over rows: it cannot be private row by row, and
    measures such as `squared_gradient_of_phi` go through the clients one by one, each at its own u; the gradient that
    they measure leaves out the second derivatives, too. The `loss` of clients that evaluation shows is that of plain
    min-max AUC at w, the model that is delivered, and can be compared with runs of `MinimaxAuc`. The penalty `l2` is on
    w alone, and `clip` bounds the whole gradient in w.

    Args:
        model: network with one output, the score s.
        project_x: projection of the model's parameters, of `fs.projections`; none by default.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        l2_biases: whether the penalty applies to biases, too.
        clip: largest norm of a gradient in the parameters; longer ones are scaled down to it; None does not clip.
        positive_share: p, share of positive rows over all clients.
        margin: m of the margin form; None is the square form.
        sigmoid: whether h is the sigmoid of the score s; else h = s.
        inner_step: η₀, length of the step of cross-entropy.
        inner_weight: ρ, weight of the cross-entropy; 1 is the authors' optimiser.

    Examples:
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

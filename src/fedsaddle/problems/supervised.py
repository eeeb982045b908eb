"""Supervised learning: each client i has f_i(w), the mean loss over its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedsaddle.arguments import flag, number
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.flat import FlatModel, check_clip, clip_, without_penalty
from fedsaddle.numerics.modules import step_numbers
from fedsaddle.numerics.tensors import Constant, SlopeMap
from fedsaddle.problems.losses import CrossEntropy, HasCurvature, Loss, as_loss
from fedsaddle.problems.protocols import AllRows, DataFacts, HasHessian, ModelMaker, PrimalGradient, SecondOrder
from fedsaddle.problems.rare_losses import FromCounts
from fedsaddle.problems.regression import LinearLayout, linear_layout, linear_second_order, need_curvature
from fedsaddle.problems.scored import in_blocks, pooled_auroc

ROUNDING = 1e-9  # of a product that should be a whole number


@dataclass(frozen=True)
class Supervised(HasHessian):
    """`f_i(w) = mean over rows of loss(model_w(x), y) + (l2 / 2) |w|^2`, for any `nn.Module`.

    The module gives the starting vector and the shapes; its own parameters are never changed, and those that require no
    gradient are frozen. The loss is one of `fs.losses`, or a module of torch's such as `nn.HuberLoss()`. With
    `l2_biases=False`, parameters with a single axis (biases, scales) have no penalty. A client's gradient of a batch
    whose norm exceeds `clip` is clipped to it, including the penalty, as `torch.nn.utils.clip_grad_norm_` does.

    With `trimmed` ε and `hardest` α the mean of each batch is CVaR-DORO (Zhai, Dan, Kolter, Ravikumar 2021): the
    `⌊ε b⌋` largest losses of its b rows, which may be of wrong labels, are left out, and of the others only the
    largest count, down to place `⌊(ε + α (1 - ε)) b⌋`, divided by `α (b - ⌊ε b⌋)`. ε = 0 is CVaR, α = 1 the trimmed
    mean. Clients report the same mean where they report a loss; measures are of all rows.

    Args:
        model: the network, any `nn.Module`.
        loss: loss of a row, of `fs.losses`, or a module of torch's; cross-entropy by default.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        compiled: whether the gradient of a cohort is compiled, which pays in long runs of unusual models.
        l2_biases: whether the penalty applies to biases, too.
        clip: largest norm of a gradient; longer ones are scaled down to it; None does not clip.
        trimmed: ε of DORO: share of each batch, the rows with the largest losses, that is left out.
        hardest: α of CVaR: share of the remaining rows, those with the largest losses, that count.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Supervised(fs.models.mlp(30, [16], 1), loss=fs.losses.Logistic(), l2=1e-4).dimension
        513
    """

    model: nn.Module
    loss: Loss = field(default_factory=CrossEntropy)
    l2: float = 0.0
    compiled: bool = False
    l2_biases: bool = True
    clip: float | None = None
    trimmed: float = 0.0  # ε
    hardest: float = 1.0  # α
    flat: FlatModel = field(init=False, repr=False, compare=False)
    _free: Constant | None = field(init=False, repr=False, compare=False)  # places of what has no penalty
    _gradient_of: Callable[[Tensor, Batch], tuple[Tensor, Tensor | None]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", as_loss("loss", self.loss))
        number("l2", self.l2, least=0)
        flag("compiled", self.compiled)
        flag("l2_biases", self.l2_biases)
        check_clip(self.clip)
        number("trimmed", self.trimmed, least=0, below=1)
        number("hardest", self.hardest, above=0, most=1)
        if self.compiled and self._of_some_rows:
            raise BadInput("compiled", True, "cannot be combined with trimmed or hardest; leave it out")
        object.__setattr__(self, "flat", FlatModel(self.model, statistics=not self.compiled))
        if self.compiled and step_numbers(self.model):
            self.flat.keep_apart()  # recurrent layers by hand are not compiled
        free = without_penalty(self.flat, self.l2_biases) if self.l2 else None
        object.__setattr__(self, "_free", None if free is None else Constant(free))
        object.__setattr__(self, "_gradient_of", torch.compile(self._gradient) if self.compiled else self._gradient)

    @classmethod
    def from_data(
        cls,
        facts: DataFacts,
        model_for: ModelMaker,
        *,
        loss: Loss | None = None,
        l2: float = 0.0,
        compiled: bool = False,
        l2_biases: bool = True,
        clip: float | None = None,
        from_base_rate: bool = False,
        trimmed: float = 0.0,
        hardest: float = 1.0,
    ) -> Supervised:
        """The problem for data of that kind; by default with cross-entropy.

        With `from_base_rate`, a model with one score starts from the log odds of the second class among all training
        rows, which are agreed by counts: then sites need not learn it, each at its own pace.
        """
        loss = CrossEntropy() if loss is None else loss
        loss = loss.with_counts(facts.counts) if isinstance(loss, FromCounts) else loss
        name, scores = loss.name, loss.scores(len(facts.classes))
        if bool(facts.classes) == (scores is None):
            fits = "cross-entropy" if facts.classes else "square"
            raise BadInput("problem.loss", name, f"the data are for loss = {fits!r}")
        if scores == 1:
            facts.need_two_classes("problem.loss", name, "; use cross-entropy")
        model = model_for(scores or 1)
        if from_base_rate and scores == 1:
            start_from_base_rate_(model, facts.counts)
        return cls(model, loss, l2, compiled, l2_biases, clip, trimmed, hardest)

    @property
    def _of_some_rows(self) -> bool:
        """Whether some rows of a batch do not count."""
        return self.trimmed > 0 or self.hardest < 1

    @property
    def dimension(self) -> int:
        """Length d of the flat vector."""
        return self.flat.dimension

    @property
    def tail(self) -> int:
        """BatchNorm's running statistics at the end of it."""
        return self.flat.tail

    def initial(self) -> Tensor:
        """The module's present parameters."""
        return self.flat.initial()

    def value(self, w: Tensor, batch: Batch) -> Tensor:
        """Mean loss of each client's batch, with the penalty."""
        values = self.loss.value(self.flat.scores(w, batch.x), batch.y)
        share = loss_shares(self.loss, values, batch)
        mean = (values * (self._some(values, share, batch) if self._of_some_rows else share)).sum(1)
        if not self.l2:
            return mean
        squares = (
            w.square().sum(-1)
            if self._free is None
            else w.square().sum(-1) - w[:, self._free.to(w.device)].square().sum(-1)
        )
        return mean + self.l2 / 2 * squares

    def gradient(self, w: Tensor, batch: Batch) -> Tensor:
        """Its gradient, through the slope of the loss in the scores."""
        return self._compiled(w, batch)[0] if self.compiled else self._gradient(w, batch)[0]

    def descend_(self, w: Tensor, batch: Batch, step: float) -> Tensor:
        """`w ← w - step ∇f`: for a chain of plain layers without a gradient in between."""
        chain = None if self.compiled or self.clip is not None else self.flat.by_hand(w, batch.x)
        if chain is None:
            g, statistics = self.primal_gradient(w, batch)
            return self.flat.write_statistics_(w.sub_(g, alpha=step), statistics)
        at = None if self._free is None else self._free.to(w.device)
        free = None if at is None else w[:, at]
        chain.descend_(w, batch.x, *self._slope_and_gain(batch, step), 1 - step * self.l2)
        if free is not None:
            w[:, at] += step * self.l2 * free
        return w

    def primal_gradient(self, w: Tensor, batch: Batch) -> PrimalGradient:
        """The gradient, and BatchNorm's new statistics."""
        return PrimalGradient(*(self._compiled(w, batch) if self.compiled else self._gradient(w, batch)))

    def write_statistics_(self, w: Tensor, statistics: Tensor | None) -> Tensor:
        """Write BatchNorm's statistics into w, after a step."""
        return self.flat.write_statistics_(w, statistics)

    def _compiled(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        if self.flat.draws(batch.x):
            raise BadInput("compiled", True, "the model has dropout, which is not compiled; use compiled=False")
        self.flat.takes_cohorts(batch.x)  # to know it before the compiler looks
        return self._gradient_of(w, Batch(batch.x, batch.y, batch.weight))

    def _gradient(self, w: Tensor, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The gradient, and BatchNorm's new statistics."""
        scores, pull, statistics = self.flat.pullback(w, batch.x, batch.keys, batch.sizes)
        g = pull(self._slope(scores, batch))
        if self.l2:
            g.add_(w, alpha=self.l2)
            if self._free is not None:
                free = self._free.to(w.device)
                g[:, free] -= self.l2 * w[:, free]
        if self.clip is not None:
            clip_(g, self.clip, self.dimension - self.tail)
        return g, statistics

    def _slope_and_gain(self, batch: Batch, step: float) -> tuple[SlopeMap, float]:
        """A slope in the scores, and the step along it; where rows count alike, their share is in the step."""
        if batch.weight is None and getattr(self.loss, "row_counts", None) is None and not self._of_some_rows:
            return lambda scores: self.loss.slope(scores, batch.y), step / batch.y.shape[1]
        return lambda scores: self._slope(scores, batch), step

    def _slope(self, scores: Tensor, batch: Batch) -> Tensor:
        """Of each client's mean loss in its scores."""
        slope = self.loss.slope(scores, batch.y)
        share = loss_shares(self.loss, slope, batch)
        if self._of_some_rows:
            share = self._some(self.loss.value(scores, batch.y), share, batch)
        slope *= share.view(*share.shape, *(1,) * (slope.ndim - share.ndim)) if isinstance(share, Tensor) else share
        return slope

    def _some(self, values: Tensor, share: Tensor | float, batch: Batch) -> Tensor:
        """The shares of those rows alone that count, (C, B)."""
        real = torch.ones_like(values, dtype=torch.bool) if batch.weight is None else batch.weight > 0
        return doro_shares(values.detach(), share * real.to(values.dtype), real, self.trimmed, self.hardest)

    def row_measures(self, w: Tensor, x: Tensor, y: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """Loss and, for classes, accuracy of each row under one model `w (d,)`."""
        scores = self.flat.scores(w[None], x[None])
        correct = self.loss.correct(scores, y[None])
        measures = {"loss": self.loss.value(scores, y[None])[0]}
        return measures if correct is None else {**measures, "accuracy": correct[0]}

    def known_classes(self, rows: Tensor) -> int | None:
        """How many classes labels may name; None where they are no classes."""
        with torch.no_grad():
            return self.loss.classes(self.flat.scores(self.initial()[None], rows[None]))

    def ranking(self, w: Tensor, rows: Tensor) -> Tensor | None:
        """One number a row, higher for the second of two classes; None where there are not two."""
        if self.loss.ranking(self.flat.scores(w[None], rows[None, :2])) is None:  # BatchNorm takes no row by itself
            return None
        return self.loss.ranking(in_blocks(lambda part: self.flat.scores(w[None], part[None])[0], rows))

    def pooled_measures(self, w: Tensor, dual: Tensor | None, rows: AllRows) -> dict[str, float]:
        """AUROC of all clients' rows together, where there are two classes."""
        return pooled_auroc(self.ranking(w, rows.x), rows.y)

    def module(self, w: Tensor) -> nn.Module:
        """A copy of the model that carries the parameters `w`."""
        return self.flat.module_with(w)

    def layout(self) -> LinearLayout:
        """The linear model, where the model is one and the loss has a second derivative."""
        for key, without in (("clip", None), ("trimmed", 0.0), ("hardest", 1.0)):
            if getattr(self, key) != without:
                raise BadInput(key, getattr(self, key), "has no Hessian in closed form; leave it out, or use fs.FedAvg")
        layout = linear_layout(self.flat, softmax=isinstance(self.loss, CrossEntropy))
        need_curvature(self.loss, layout.outputs)
        return layout

    def ridge(self) -> Tensor:
        """`l2`, and 0 for biases if they have no penalty."""
        weights = torch.full((self.dimension,), float(self.l2), dtype=torch.float64)
        if self._free is not None:
            weights[self._free.to(weights.device)] = 0
        return weights

    def estimates_variance(self) -> bool:
        """For the square loss."""
        return isinstance(self.loss, HasCurvature) and self.loss.estimates_variance

    def second_order(self, w: Tensor, batch: Batch, products: bool = False) -> SecondOrder:
        """Mean loss of each client, and its derivatives, without the penalty: see `layout` for where it has them."""
        layout = self.layout()
        alike = torch.full(batch.x.shape[:2], 1.0, dtype=torch.float64, device=w.device)
        each = alike * shares(alike, batch)
        return linear_second_order(layout, need_curvature(self.loss, layout.outputs), w, batch, each, products)


def start_from_base_rate_(model: nn.Module, counts: Sequence[int]) -> None:
    """Set the bias of the last linear layer to the log odds of the second class."""
    last = next((part for part in reversed([*model.modules()]) if isinstance(part, nn.Linear)), None)
    if last is not None and last.bias is not None and len(counts) == 2 and min(counts) > 0:
        with torch.no_grad():
            last.bias.fill_(math.log(counts[1] / counts[0]))


def shares(like: Tensor, batch: Batch) -> Tensor | float:
    """What each row counts in its client's mean: 1/B, or by its weight where rows are padding.

    Args:
        like: tensor whose type and device the result has.
        batch: the rows.
    """
    if batch.weight is None:
        return 1 / like.shape[1]
    weight = batch.weight.to(like.dtype)
    return weight / weight.sum(1, keepdim=True)


def loss_shares(loss: Loss, like: Tensor, batch: Batch) -> Tensor | float:
    """The same in the mean of a loss whose rows count by their targets, such as a weighted cross-entropy."""
    share, counts_of = shares(like, batch), getattr(loss, "row_counts", None)
    counts: Tensor | None = None if counts_of is None else counts_of(batch.y, like.dtype)
    if counts is None:
        return share
    total = (counts * share).sum(1, keepdim=True)
    return share / torch.where(total > 0, total, 1)


def doro_shares(values: Tensor, share: Tensor, real: Tensor, trimmed: float, hardest: float) -> Tensor:
    """CVaR-DORO's shares of rows: values, shares and whether a row is none of padding, all (C, B).

    One row at least counts. Where rows count alike, each that counts has `1 / (α (b - ⌊ε b⌋))`.

    Examples:
        >>> values, alike = torch.tensor([[1.0, 9.0, 3.0, 2.0]]), torch.full((1, 4), 0.25)
        >>> doro_shares(values, alike, alike > 0, 0.25, 2 / 3).tolist()  # without 9, the mean of 3 and 2
        [[0.0, 0.0, 0.5, 0.5]]
    """
    place = values.masked_fill(~real, -torch.inf).argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    b = real.sum(1, keepdim=True)
    gone = torch.minimum((trimmed * b + ROUNDING).floor(), b - 1)  # n_2
    until = torch.maximum(((trimmed + hardest * (1 - trimmed)) * b + ROUNDING).floor(), gone + 1)  # n_1
    rest = torch.where((place >= gone) & real, share, 0.0)
    return torch.where(place < until, rest, 0.0) / (hardest * rest.sum(1, keepdim=True))


def flat_shares(batch: Batch, like: Tensor) -> Tensor | float:
    """The same for rows without a clients' axis, `(n, ...)`."""
    if batch.weight is None:
        return 1 / len(like)
    weight = batch.weight.to(like.dtype)
    return weight / weight.sum()

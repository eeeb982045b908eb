"""Groups that cross sites: the worst mixture of the losses of groups such as women and men, wherever their rows are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedsaddle.arguments import number, vector
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import CappedSimplex, Projection, Simplex
from fedsaddle.numerics.regularisers import Regulariser, check_regulariser
from fedsaddle.numerics.tensors import Constant
from fedsaddle.problems.fair import FAR, softmax_slopes
from fedsaddle.problems.losses import CrossEntropy, Loss, as_loss
from fedsaddle.problems.protocols import AllRows, DataFacts, ModelMaker
from fedsaddle.problems.scored import ByScores, Slopes, pooled_auroc
from fedsaddle.problems.supervised import flat_shares, shares

PROXIMAL, PROXIMAL_STEPS = 10.0, 100  # of the best response to a regularised mixture


@dataclass(frozen=True, kw_only=True)
class GroupFair(ByScores):
    """`min_x max_{y in Λ} Σ_g y_g F_g(x) + g(y) - (penalty / 2) |y|²`, with F_g the mean loss of group g's rows.

    A row's target is the pair (label, group), `y (..., 2)`; a group has rows at any number of sites. A row counts
    `y_g / share_g`, so that the mean over all rows is the objective: take `weighting="size"`. What leaves a site is the
    gradient in y, sums by group over its rows, which are averaged over sites. One local step with all rows is FedMinMax
    (Papadaki et al. 2022).

    Args:
        model: the network, any `nn.Module`.
        project_x: projection of the model's parameters, of `fs.projections`; none by default.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        l2_biases: whether the penalty applies to biases, too.
        clip: largest norm of a gradient in the parameters; longer ones are scaled down to it; None does not clip.
        groups: names of the groups, in the order of their numbers.
        loss: loss of a row, of `fs.losses`; cross-entropy by default.
        group_shares: shares of the groups in all rows; None is equal.
        penalty: λ, weight of the penalty on the mixture y.
        regulariser: g, of `fs.regularisers`; None is 0.
        mixture_ceiling: largest weight of a group, as a multiple of 1 / groups; None is the whole simplex.

    Raises:
        BadInput: if a group has no rows, a ceiling is below 1, or another argument is invalid.

    Examples:
        >>> import fedsaddle as fs
        >>> model = fs.models.logistic_regression(14, 2)
        >>> fair = fs.GroupFair(model=model, groups=("women", "men"), mixture_ceiling=1.5)
        >>> fair.project_y(torch.tensor([2.0, 0.0])).tolist()
        [0.75, 0.25]
    """

    groups: tuple[str, ...]
    loss: Loss = field(default_factory=CrossEntropy)
    group_shares: Tensor | None = None
    penalty: float = 0.0  # λ
    regulariser: Regulariser | None = None  # g
    mixture_ceiling: float | None = None
    project_y: Projection = field(init=False, repr=False, compare=False)  # Π_Λ
    _shares: Constant = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.groups
        if not isinstance(given, tuple | list) or len(given) < 2:
            raise BadInput("groups", given, "give the names of two groups or more")
        number("penalty", self.penalty, least=0)
        object.__setattr__(self, "loss", as_loss("loss", self.loss))
        check_regulariser(self.regulariser)
        object.__setattr__(self, "project_y", self._set_of_mixtures())
        if self.group_shares is not None:
            object.__setattr__(self, "_shares", Constant(self._checked(vector("group_shares", self.group_shares))))

    def _checked(self, shares: Tensor) -> Tensor:
        if len(shares) != len(self.groups):
            raise BadInput("group_shares", shares.tolist(), f"give one for each of the {len(self.groups)} groups")
        for name, share in zip(self.groups, shares.tolist(), strict=True):
            if not share > 0:
                raise BadInput("group_shares", share, f"group {name!r} has no rows at any site; leave it out")
        return shares

    def _set_of_mixtures(self) -> Projection:
        if self.mixture_ceiling is None:
            return Simplex()
        number("mixture_ceiling", self.mixture_ceiling)
        if self.mixture_ceiling < 1:
            remedy = "must be at least 1, in multiples of 1 / groups: below it no mixture sums to 1"
            raise BadInput("mixture_ceiling", self.mixture_ceiling, remedy)
        if self.regulariser is not None:
            remedy = "cannot be combined with a regulariser, whose maximum is over the full simplex; leave one out"
            raise BadInput("mixture_ceiling", self.mixture_ceiling, remedy)
        return CappedSimplex(min(1.0, self.mixture_ceiling / len(self.groups)))

    @classmethod
    def from_data(
        cls,
        facts: DataFacts,
        model_for: ModelMaker,
        *,
        groups: Sequence[str] = (),
        loss: Loss | None = None,
        penalty: float = 0.0,
        regulariser: Regulariser | None = None,
        mixture_ceiling: float | None = None,
        l2: float = 0.0,
        l2_biases: bool = True,
        clip: float | None = None,
    ) -> GroupFair:
        """The problem for data with classes whose rows have a group, agreed by counts; `groups` are the columns."""
        facts.need_classes("group-fair")
        if not facts.groups:
            raise BadInput("problem.groups", list(groups), "the rows have no groups; give data.with_groups(columns)")
        counts = torch.tensor(facts.groups_by_class, dtype=torch.float64)  # (groups, classes)
        for name, own in zip(facts.groups, counts, strict=True):
            if int((own > 0).sum()) == 1:
                only = facts.classes[int(own.argmax())]
                told = f"all {int(own.sum())} training rows of {name!r} have the label {only!r}"
                remedy = "nothing can be learnt of such a group; merge it with another, or cross fewer columns"
                raise BadInput("problem.groups", list(groups), f"{told}: {remedy}")
        loss = CrossEntropy() if loss is None else loss
        scores = loss.scores(len(facts.classes))
        if scores is None:
            raise BadInput("problem.loss", loss.name, "is no loss of classes; take 'cross-entropy' or 'logistic'")
        if scores == 1:
            facts.need_two_classes("problem.loss", loss.name, "; use cross-entropy")
        return cls(
            model=model_for(scores),
            groups=facts.groups,
            loss=loss,
            group_shares=counts.sum(1) / counts.sum(),
            penalty=penalty,
            regulariser=regulariser,
            mixture_ceiling=mixture_ceiling,
            l2=l2,
            l2_biases=l2_biases,
            clip=clip,
        )

    def initial(self) -> tuple[Tensor, Tensor]:
        """The model's parameters and the uniform mixture."""
        x = self.flat.initial()
        return x, x.new_full((len(self.groups),), 1 / len(self.groups))

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's rows."""
        label, group = batch.y.unbind(-1)
        losses = self.loss.value(self.flat.scores(x, batch.x), label)
        rows = losses * (y * self._rarity(y)).gather(1, group)
        mixture = self.penalty / 2 * y.square().sum(-1) - self._regularised(y)
        return self.penalised((rows * shares(rows, batch)).sum(1) - mixture, x)

    def slopes(self, scores: Tensor, x: Tensor, y: Tensor, batch: Batch) -> Slopes:
        """A row's slope counts `y_g / share_g`; the slope in y_g is the mean loss of group g."""
        label, group = batch.y.unbind(-1)
        if isinstance(self.loss, CrossEntropy) and scores.ndim == 3:
            found = softmax_slopes(scores, batch, (label, group), y, self._rarity(y), self.penalty)
            return found if self.regulariser is None else found._replace(y=found.y + self._slope(y))
        share, rarity = shares(scores, batch), self._rarity(y)
        factors = (y * rarity).gather(1, group) * share
        sums = torch.zeros_like(y).scatter_add_(1, group, self.loss.value(scores, label) * share)
        slope = self.loss.slope(scores, label) * factors.view(*factors.shape, *[1] * (scores.ndim - 2))
        return Slopes(slope, sums * rarity - self.penalty * y + self._slope(y))

    def row_slopes(self, scores: Tensor, x: Tensor, y: Tensor, batch: Batch) -> Slopes:
        """The same of each row on its own: y is (C, B, groups)."""
        label, group = batch.y.unbind(-1)
        losses, slope, rarity = self.loss.value(scores, label), self.loss.slope(scores, label), self._rarity(y)
        slope = slope * (y * rarity).gather(1, group).unsqueeze(-1)
        own = losses.new_zeros(*losses.shape, len(self.groups))
        own = own.scatter_(2, group.unsqueeze(-1), losses.unsqueeze(-1)) * rarity
        return Slopes(slope, own + (self._slope(y) - self.penalty * y).unsqueeze(1))

    def best_response(self, x: Tensor, batch: Batch) -> Tensor:
        """`argmax_y` over weighted rows `(n, ...)`."""
        label, group = batch.y.unbind(-1)
        losses = self.loss.value(self.scores(x, batch.x)[None], label[None])[0]
        sums = losses.new_zeros(len(self.groups)).scatter_add_(0, group, losses * flat_shares(batch, losses))
        F = sums * self._rarity(losses)
        if self.regulariser is not None:
            u = torch.full_like(F, 1 / len(F)).double()
            for _ in range(PROXIMAL_STEPS):  # of the proximal point method
                c = PROXIMAL / (1 + PROXIMAL * self.penalty)
                u = self.regulariser.prox((u + PROXIMAL * F.double()) / (1 + PROXIMAL * self.penalty), c)
            return u.to(F.dtype)
        if self.penalty > 0:
            return self.project_y(F / self.penalty)
        return self.project_y(F.double() * (FAR / F.abs().max().clamp_min(1e-30))).to(F.dtype)

    def known_classes(self, rows: Tensor) -> int:
        """As many as the loss tells from the scores."""
        return int(self.loss.classes(self.scores(self.flat.initial(), rows)) or 0)

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """Plain loss and accuracy of each row; rows that are held out have no group."""
        labels = labels[..., 0] if labels.ndim > 1 else labels
        scores = self.scores(x, rows)[None]
        found, right = {"loss": self.loss.value(scores, labels[None])[0]}, self.loss.correct(scores, labels[None])
        return found if right is None else found | {"accuracy": right[0]}

    def pooled_measures(self, x: Tensor, dual: Tensor | None, rows: AllRows) -> dict[str, float]:
        """AUROC and its kin where there are two classes; of rows with a group also the largest loss of a group."""
        labels = rows.y[..., 0] if rows.y.ndim > 1 else rows.y
        found = pooled_auroc(self.ranking(x, rows.x), labels)
        if rows.y.ndim > 1:
            each = self.row_measures(x, rows.x, rows.y)["loss"].double()
            count = torch.bincount(rows.y[:, 1], minlength=len(self.groups))
            mean = torch.bincount(rows.y[:, 1], weights=each, minlength=len(self.groups)) / count.clamp_min(1)
            found["worst_group_loss"] = float(mean.max())
        return found

    def ranking(self, x: Tensor, rows: Tensor) -> Tensor | None:
        """The score that ranks rows, where there are two classes."""
        found: Tensor | None = self.loss.ranking(self.scores(x, rows))
        return found

    def _regularised(self, y: Tensor) -> Tensor | float:
        g = self.regulariser
        return 0.0 if g is None else torch.stack([g.value(row) for row in y])

    def _slope(self, y: Tensor) -> Tensor | float:
        g = self.regulariser
        return 0.0 if g is None else torch.stack([g.gradient(row) for row in y])

    def _rarity(self, like: Tensor) -> Tensor | float:
        """1 / share_g."""
        if self.group_shares is None:
            return float(len(self.groups))
        return 1 / self._shares.to(like.device, like.dtype)

"""Class-fair classification: the worst mixture of the classes' losses."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedsaddle.arguments import number, vector, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Projection, Simplex, check_projection
from fedsaddle.numerics.tensors import Constant
from fedsaddle.problems.losses import CrossEntropy
from fedsaddle.problems.protocols import AllRows, DataFacts, ModelMaker
from fedsaddle.problems.scored import ByScores, Slopes
from fedsaddle.problems.supervised import flat_shares, shares

MOST_CLASSES = 10_000_000
FAR = 1e6  # how far outside of a set a direction points at its edge


def softmax_slopes(
    scores: Tensor,
    batch: Batch,
    rows: tuple[Tensor, Tensor],
    y: Tensor,
    rarity: Tensor | float,
    penalty: float,
) -> Slopes:
    """The slopes of `Σ_g y_g F_g - (penalty / 2) |y|²`, of the label and the group of each row; rarity is 1 / share."""
    log, share, (label, group) = scores.mT.log_softmax(-2), shares(scores, batch), rows  # log (C, k, B)
    at = label.unsqueeze(-2)
    own = log.gather(-2, at).squeeze(-2)  # of its class, of each row: -loss
    if not isinstance(share, Tensor):
        rarity = rarity * share  # the same for all rows: fewer numbers to multiply
    factors = (y * rarity).gather(1, group)
    if isinstance(share, Tensor):
        own *= share
        factors *= share
    sums = (y * (penalty / rarity)).scatter_add_(1, group, own)
    slope = log.exp_().mul_(factors.unsqueeze(-2)).scatter_add_(-2, at, factors.neg_().unsqueeze(-2))
    return Slopes(slope.mT, sums.mul_(-rarity))


@dataclass(frozen=True, kw_only=True)
class ClassFair(ByScores):
    """`min_x max_{y in simplex} Σ_c y_c F_c(x) - (penalty / 2) |y|²`, with F_c the mean cross-entropy of class c.

    `class_shares` are the classes' shares of all rows, agreed once by counts (default: equal). A client's rows of
    class c then count `y_c / share_c`, so that the mean over all rows is the objective, however classes are spread.

    Args:
        model: the network, any `nn.Module`.
        project_x: projection of the model's parameters, of `fs.projections`; none by default.
        l2: weight of the penalty `(l2 / 2) |w|²`.
        l2_biases: whether the penalty applies to biases, too.
        clip: largest norm of a gradient in the parameters; longer ones are scaled down to it; None does not clip.
        classes: number of classes.
        penalty: λ, weight of the penalty on the mixture y.
        class_shares: shares of the classes over all clients; None is equal.
        project_y: projection of y; the simplex by default.

    Examples:
        >>> import fedsaddle as fs
        >>> fair = fs.ClassFair(model=fs.models.logistic_regression(64, 10), classes=10)
        >>> len(fair.initial()[1])  # y, a mixture of the classes
        10
    """

    classes: int
    penalty: float = 0.1  # λ
    class_shares: Tensor | None = None
    project_y: Projection = field(default_factory=Simplex)
    _shares: Constant = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("classes", self.classes, most=MOST_CLASSES)
        number("penalty", self.penalty, least=0)
        if self.class_shares is not None:
            given = vector("class_shares", self.class_shares)
            if len(given) != self.classes or (given <= 0).any():
                raise BadInput("class_shares", given.tolist(), f"give {self.classes} positive shares")
            object.__setattr__(self, "_shares", Constant(given))
        check_projection("project_y", self.project_y, self.initial()[1])

    @classmethod
    def from_data(
        cls,
        facts: DataFacts,
        model_for: ModelMaker,
        *,
        penalty: float = 0.1,
        l2: float = 0.0,
        l2_biases: bool = True,
        clip: float | None = None,
    ) -> ClassFair:
        """The problem for data with classes, whose shares are those over all clients."""
        facts.need_classes("class-fair")
        counts = torch.tensor(facts.counts).double()
        if (counts == 0).any():
            name = facts.classes[int(counts.argmin())]
            raise BadInput("problem.name", "class-fair", f"class {name!r} has no training rows")
        classes = len(facts.classes)
        return cls(
            model=model_for(classes),
            classes=classes,
            penalty=penalty,
            class_shares=counts / counts.sum(),
            l2=l2,
            l2_biases=l2_biases,
            clip=clip,
        )

    def initial(self) -> tuple[Tensor, Tensor]:
        """The model's parameters and the uniform mixture."""
        x = self.flat.initial()
        return x, x.new_full((self.classes,), 1 / self.classes)

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's rows."""
        losses = CrossEntropy().value(self.flat.scores(x, batch.x), batch.y)
        rows = losses * self._factors(y, batch.y)
        return self.penalised((rows * shares(rows, batch)).sum(1) - self.penalty / 2 * y.square().sum(-1), x)

    def slopes(self, scores: Tensor, x: Tensor, y: Tensor, batch: Batch) -> Slopes:
        """A row's slope counts `y_c / share_c`; the slope in y_c is the mean loss of class c."""
        return softmax_slopes(scores, batch, (batch.y, batch.y), y, self._rarity(y), self.penalty)

    def row_slopes(self, scores: Tensor, x: Tensor, y: Tensor, batch: Batch) -> Slopes:
        """The same of each row on its own: y is (C, B, classes)."""
        losses, slope = CrossEntropy().value(scores, batch.y), CrossEntropy().slope(scores, batch.y)
        rarity = self._rarity(y)
        slope *= (y * rarity).gather(1, batch.y).unsqueeze(-1)
        own = losses.new_zeros(*losses.shape, self.classes).scatter_(2, batch.y.unsqueeze(-1), losses.unsqueeze(-1))
        return Slopes(slope, torch.add(own * rarity, y.unsqueeze(1), alpha=-self.penalty))

    def best_response(self, x: Tensor, batch: Batch) -> Tensor:
        """`argmax_y` over weighted rows `(n, ...)`: `Π(F / penalty)`, or without a penalty the worst class.

        Without a penalty on a set other than the simplex it is `Π(F / ε)`, which has reached the face of a polytope
        where F is largest.
        """
        losses = CrossEntropy().value(self.scores(x, batch.x)[None], batch.y[None])[0]
        sums = losses.new_zeros(self.classes).scatter_add_(0, batch.y, losses * flat_shares(batch, losses))
        F = sums * self._rarity(losses)
        if self.penalty > 0:
            return self.project_y(F / self.penalty)
        if not isinstance(self.project_y, Simplex):
            return self.project_y(F.double() * (FAR / F.abs().max().clamp_min(1e-30))).to(F.dtype)
        return torch.nn.functional.one_hot(F.argmax(), self.classes).to(F.dtype)

    def known_classes(self, rows: Tensor) -> int:
        """As many as there are; the model must score each."""
        scores = self.scores(self.flat.initial(), rows).shape[-1]
        if scores != self.classes:
            raise BadInput("classes", self.classes, f"the model gives {scores} scores; give it one for each class")
        return self.classes

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """Plain loss and accuracy of each row."""
        scores = self.scores(x, rows)[None]
        loss = CrossEntropy()
        return {"loss": loss.value(scores, labels[None])[0], "accuracy": loss.correct(scores, labels[None])[0]}

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """The accuracy of the worst class, over all clients."""
        right = (self.scores(x, rows.x).argmax(-1) == rows.y).double()
        total = torch.bincount(rows.y, minlength=self.classes)
        each = torch.bincount(rows.y, weights=right, minlength=self.classes)[total > 0] / total[total > 0]
        return {"worst_class_accuracy": float(each.min()), "mean_class_accuracy": float(each.mean())}

    def _rarity(self, like: Tensor) -> Tensor | float:
        """1 / share_c."""
        return float(self.classes) if self.class_shares is None else 1 / self._shares.to(like.device, like.dtype)

    def _factors(self, y: Tensor, labels: Tensor) -> Tensor:
        """y_c / share_c for the class c of each row."""
        return (y * self._rarity(y)).gather(1, labels)

"""Losses on scores: `value` per row and its `slope` in the scores, with the clients' axis in front; losses of torch.

Scores are `(C, B, ..., k)`, targets `(C, B, ...)`; axes between the rows and the classes (the characters of a text)
are averaged.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedsaddle.arguments import function, number, whole
from fedsaddle.errors import BadInput
from fedsaddle.numerics.tensors import Constant


@runtime_checkable
class Loss(Protocol):
    """A loss of scores and targets. Inherit from it: by default there are no classes."""

    name: ClassVar[str] = "own"  # as configs write it

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of each row, (C, B)."""
        ...

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """The derivative of each row's loss in its scores, of the scores' shape."""
        ...

    def correct(self, scores: Tensor, y: Tensor) -> Tensor | None:
        """The share that is right in each row, (C, B); None for regression."""
        return None

    def scores(self, classes: int) -> int | None:
        """Scores of a row for that number of classes; None: targets are not classes."""
        return None

    def classes(self, scores: Tensor) -> int | None:
        """How many classes labels may name, given scores `(..., k)`; None where targets are no classes, or unknown."""
        return None

    def ranking(self, scores: Tensor) -> Tensor | None:
        """One number a row, higher for the second of two classes; None where there are not two classes."""
        return None


@runtime_checkable
class HasLoss(Protocol):
    """A problem with a loss of scores and targets."""

    @property
    def loss(self) -> Loss:
        """It."""
        ...


@runtime_checkable
class HasCurvature(Loss, Protocol):
    """A loss that is a negative log-likelihood with a second derivative in closed form, as Newton's method needs."""

    estimates_variance: ClassVar[bool] = False  # whether rows have a variance that is estimated, as normal ones

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """The second derivative of each row's loss in its scores, (C, B, k, k)."""
        ...


_MINUS_ONE = Constant(torch.full((), -1.0, device="cpu"))


def _rows(values: Tensor) -> Tensor:
    return values.flatten(2).mean(2) if values.ndim > 2 else values


@dataclass(frozen=True)
class CrossEntropy(HasCurvature):
    """`-log softmax(scores)[y]`, for classes 0 .. k-1."""

    name: ClassVar[str] = "cross-entropy"

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of each row."""
        picked = scores.gather(-1, y.unsqueeze(-1)).squeeze(-1)
        return _rows(scores.mT.logsumexp(-2) - picked)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`softmax(scores) - onehot(y)`."""
        d = scores.mT.softmax(-2).mT  # along the rows in memory: ten times quicker for few classes
        at = y.unsqueeze(-1)
        d.scatter_add_(-1, at, _MINUS_ONE.to(d.device, d.dtype).expand(at.shape))
        between = d.shape[2:-1].numel()
        return d / between if between > 1 else d

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """`diag(p) - p p^T` with p the softmax."""
        p = scores.softmax(-1)
        return torch.diag_embed(p) - p.unsqueeze(-1) * p.unsqueeze(-2)

    def correct(self, scores: Tensor, y: Tensor) -> Tensor:
        """Whether the largest score is the target's."""
        return _rows((scores.argmax(-1) == y).to(scores.dtype))

    def scores(self, classes: int) -> int:
        """One a class."""
        return classes

    def classes(self, scores: Tensor) -> int:
        """As many as scores."""
        return scores.shape[-1]

    def ranking(self, scores: Tensor) -> Tensor | None:
        """The difference of two scores."""
        return scores[..., 1] - scores[..., 0] if scores.shape[-1] == 2 else None


@dataclass(frozen=True)
class Logistic(HasCurvature):
    """`log(1 + exp(-s))` for y = 1 and `log(1 + exp(s))` for y = 0, on a single score s."""

    name: ClassVar[str] = "logistic"

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """Logistic loss of each row."""
        s = scores.squeeze(-1)
        return _rows(torch.nn.functional.softplus(s) - y * s)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`sigmoid(s) - y`."""
        d = (scores.squeeze(-1).sigmoid() - y).unsqueeze(-1)
        between = d.shape[2:-1].numel()
        return d / between if between > 1 else d

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """`p (1 - p)` with p the sigmoid."""
        return (scores.sigmoid() * (-scores).sigmoid()).unsqueeze(-1)

    def correct(self, scores: Tensor, y: Tensor) -> Tensor:
        """Whether the score is on the target's side of 0."""
        return _rows(((scores.squeeze(-1) > 0) == (y > 0)).to(scores.dtype))

    def scores(self, classes: int) -> int:
        """One."""
        return 1

    def classes(self, scores: Tensor) -> int:
        """Two."""
        return 2

    def ranking(self, scores: Tensor) -> Tensor:
        """The score itself."""
        return scores[..., 0]


@dataclass(frozen=True)
class Square(HasCurvature):
    """`(s - y)^2 / 2`, on a single score s."""

    name: ClassVar[str] = "square"
    estimates_variance: ClassVar[bool] = True

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """Half the squared error of each row."""
        return _rows((scores.squeeze(-1) - y).square() / 2)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`s - y`."""
        d = (scores.squeeze(-1) - y).unsqueeze(-1)
        between = d.shape[2:-1].numel()
        return d / between if between > 1 else d

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """1."""
        return torch.ones_like(scores).unsqueeze(-1)


@dataclass(frozen=True)
class Poisson(HasCurvature):
    """`m - y log m + log y!` with `m = e exp(s)`, for a count y and an exposure e, on a single score s.

    A target is a count, or two numbers: the count and its exposure, such as person-years. The exposure's logarithm is
    the offset of the score.

    Raises:
        BadInput: if a count is negative, or an exposure is not positive.
    """

    name: ClassVar[str] = "poisson"

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The negative log-likelihood of each row."""
        count, offset = self._targets(scores, y)
        s = scores.squeeze(-1) + offset
        return s.exp() - count * s + torch.lgamma(count + 1)

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """`m - y`."""
        count, offset = self._targets(scores, y)
        return ((scores.squeeze(-1) + offset).exp() - count).unsqueeze(-1)

    def curvature(self, scores: Tensor, y: Tensor) -> Tensor:
        """`m`."""
        _, offset = self._targets(scores, y)
        return (scores + offset.unsqueeze(-1)).exp().unsqueeze(-1)

    def _targets(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Counts and offsets, (C, B)."""
        y = y.to(scores.dtype)
        count, exposure = (y[..., 0], y[..., 1]) if y.ndim == scores.ndim else (y, torch.ones_like(y))
        if bool((count < 0).any()):
            raise BadInput("count", float(count.min()), "must be 0 or more for the Poisson loss")
        if bool((exposure <= 0).any()):
            raise BadInput("exposure", float(exposure.min()), "must be positive; leave out rows without any exposure")
        return count, exposure.log()


@dataclass(frozen=True)
class Custom(Loss):
    """A user's own loss: `function(scores, y)` gives each row's loss; its slope is found by autograd.

    Args:
        function: `function(scores, y)`, the loss of each row, differentiable by autograd.
    """

    function: Callable[[Tensor, Tensor], Tensor]

    def __post_init__(self) -> None:
        function("function", self.function, takes=2)

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of each row."""
        rows = self.function(scores, y)
        if rows.shape != scores.shape[:2]:
            want = tuple(scores.shape[:2])
            raise BadInput(
                "loss", tuple(rows.shape), f"must give the loss of each row, of shape {want}, not their mean"
            )
        return rows

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """By automatic differentiation."""
        at = scores.detach().requires_grad_()
        with torch.enable_grad():
            total = self.value(at, y).sum()
        return torch.autograd.grad(total, at)[0].contiguous()


_BY_CLASS = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss)  # k scores, one class a row
_WEIGHED = (nn.CrossEntropyLoss, nn.NLLLoss)  # whose mean divides by the weights of the targets
MOST_CLASSES = 10_000_000


@dataclass(frozen=True, eq=False)
class TorchLoss(Loss):
    """A loss of torch's, or a module of one's own with a `reduction`; `fs.Supervised(model, loss=...)` makes it.

    Each row's loss is that of `reduction="none"`, averaged over what the row has more of. The mean over a batch is
    torch's "mean": with weights or an `ignore_index`, cross-entropy divides by the sum of the weights of the targets.
    Where all targets are ignored, the mean is 0.

    Args:
        function: a loss module of torch's, or one with a `reduction`.
        name: name of the loss, as a config writes it.
        options: what the module's repr does not show, for the run's fingerprint.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]), label_smoothing=0.1)
        >>> fs.Supervised(fs.models.logistic_regression(30, 2), loss=loss).loss.ranking(torch.zeros(1, 2))
        tensor([0.])
    """

    function: nn.Module
    name: str = "of torch"  # type: ignore[misc]  # as configs write it
    options: str = ""
    _copies: dict[tuple[torch.device, torch.dtype], nn.Module] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        plain = (bool, int, float, str, type(None))
        given = {k: v for k, v in vars(self.function).items() if k != "training" and isinstance(v, plain)}
        tensors = {k: v.tolist() for k, v in self.function.named_buffers()}
        object.__setattr__(self, "options", str(sorted({**given, **tensors}.items())))

    def value(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of each row."""
        each = self._each(scores, y)
        return each.flatten(2).mean(2) if each.ndim > 2 else each

    def slope(self, scores: Tensor, y: Tensor) -> Tensor:
        """By automatic differentiation."""
        at = scores.detach().requires_grad_()
        with torch.enable_grad():
            total = self.value(at, y).sum()
        return torch.autograd.grad(total, at)[0].contiguous()

    def row_counts(self, y: Tensor, dtype: torch.dtype) -> Tensor | None:
        """What each row counts in the mean, (C, B): the weight of its target, 0 if it is ignored; None: all alike."""
        if not isinstance(self.function, _WEIGHED) or y.is_floating_point():
            return None
        real: Tensor = y.ne(self.function.ignore_index)
        if self.function.weight is None:
            counts = real.to(dtype)
        else:
            weight: Tensor = self._like(y.device, dtype).weight  # type: ignore[assignment]
            counts = weight[torch.where(real, y, 0)] * real
        return counts.flatten(2).mean(2) if counts.ndim > 2 else counts

    def correct(self, scores: Tensor, y: Tensor) -> Tensor | None:
        """Whether the largest score is the target's, or a single score is on its side of 0."""
        if isinstance(self.function, _BY_CLASS) and y.ndim == scores.ndim - 1:
            real = torch.ones_like(y) if self.ignored is None else y.ne(self.ignored)
            right = (scores.argmax(-1) == y).to(scores.dtype) * real
            return right.flatten(2).sum(2) / real.flatten(2).sum(2).clamp_min(1) if y.ndim > 2 else right
        if isinstance(self.function, nn.BCEWithLogitsLoss) and scores.shape[-1] == 1:
            return Logistic().correct(scores, y.view(scores.shape[:-1]))
        return None

    @property
    def ignored(self) -> int | None:
        """The label that marks targets to leave out; None: there is none."""
        return self.function.ignore_index if isinstance(self.function, _WEIGHED) else None

    def scores(self, classes: int) -> int | None:
        """One a class, or one; None for regression."""
        weight = getattr(self.function, "weight", None)
        if isinstance(self.function, _BY_CLASS):
            if weight is not None and len(weight) != classes:
                raise BadInput("weight", weight.tolist(), f"give one weight for each of the {classes} classes")
            return classes
        return 1 if isinstance(self.function, nn.BCEWithLogitsLoss) else None

    def classes(self, scores: Tensor) -> int | None:
        """As many as scores, or two."""
        if isinstance(self.function, _BY_CLASS):
            return scores.shape[-1]
        return 2 if isinstance(self.function, nn.BCEWithLogitsLoss) and scores.shape[-1] == 1 else None

    def ranking(self, scores: Tensor) -> Tensor | None:
        """The difference of two scores, or the score itself."""
        if isinstance(self.function, _BY_CLASS):
            return CrossEntropy().ranking(scores)
        return scores[..., 0] if isinstance(self.function, nn.BCEWithLogitsLoss) and scores.shape[-1] == 1 else None

    def _each(self, scores: Tensor, y: Tensor) -> Tensor:
        """The loss of every target, `(C, B, ...)`."""
        one_a_class = y.ndim == scores.ndim - 1 and not y.is_floating_point()
        by_class = isinstance(self.function, _BY_CLASS)
        if by_class or (one_a_class and not type(self.function).__module__.startswith("torch.")):
            values = self._call(scores.flatten(0, -2), y.flatten() if one_a_class else y.flatten(0, -2))
            return self._checked(values, scores.shape[:-1])
        target = y.unsqueeze(-1) if y.ndim == scores.ndim - 1 else y
        if target.shape != scores.shape:
            shapes = f"{tuple(target.shape[2:])} a row; the model gives {tuple(scores.shape[2:])} a row"
            raise BadInput("loss", type(self.function).__name__, f"does not fit targets of {shapes}")
        values = self._call(scores.flatten(0, 1), target.to(scores.dtype).flatten(0, 1))
        return self._checked(values, scores.shape[:2])

    def _call(self, scores: Tensor, y: Tensor) -> Tensor:
        """With `reduction="none"`, and weights of the scores' type and on their device."""
        values: Tensor = self._like(scores.device, scores.dtype)(scores, y)
        return values

    def _like(self, device: torch.device, dtype: torch.dtype) -> nn.Module:
        if (device, dtype) not in self._copies:
            made = copy.deepcopy(self.function).to(device, dtype)
            vars(made)["reduction"] = "none"
            self._copies[device, dtype] = made
        return self._copies[device, dtype]

    def _checked(self, values: Tensor, shape: torch.Size) -> Tensor:
        if values.ndim == 0 or len(values) != shape.numel():
            name, got = type(self.function).__name__, tuple(values.shape)
            remedy = f'gives a loss of shape {got} for {shape.numel()} rows with reduction="none"; give one a row'
            raise BadInput("loss", name, remedy)
        return values.view(*shape, *values.shape[1:])


def as_loss(key: str, loss: object) -> Loss:
    """A loss of this package as it is, or one of torch's adapted.

    Args:
        key: what an error calls the value.
        loss: a `Loss`, or a module of torch with a `reduction`.

    Raises:
        BadInput: A name, a class, a module that sums or has parameters of its own.
    """
    if isinstance(loss, nn.Module) and not isinstance(loss, Loss):
        kind = getattr(loss, "reduction", None)
        if kind is None:
            remedy = "has no `reduction`, so that the loss of a row is unknown; give fs.losses.Custom(function)"
            raise BadInput(key, type(loss).__name__, remedy)
        if kind not in ("mean", "none"):
            remedy = f'{type(loss).__name__} must be a mean: a sum grows with the batch; use reduction="mean"'
            raise BadInput(f"{key}.reduction", kind, remedy)
        if any(p.requires_grad for p in loss.parameters()):
            remedy = "has parameters of its own, which would not be trained; make them part of the model"
            raise BadInput(key, type(loss).__name__, remedy)
        return TorchLoss(loss)
    if isinstance(loss, type) or not isinstance(loss, Loss):
        remedy = "give an object such as fs.losses.Square() or torch.nn.L1Loss(), or fs.losses.Custom(function)"
        raise BadInput(key, loss, remedy)
    return loss


def cross_entropy(
    weight: Sequence[float] | None = None, label_smoothing: float = 0.0, ignore_index: int | None = None
) -> Loss:
    """Cross-entropy by its name in configs.

    Args:
        weight: weight of each class; None weighs all classes the same.
        label_smoothing: share of the target that is spread evenly over the classes.
        ignore_index: label whose rows do not count; None counts all rows.
    """
    if weight is None and label_smoothing == 0 and ignore_index is None:
        return CrossEntropy()
    number("label_smoothing", label_smoothing, least=0, most=1)
    weights = None if weight is None else torch.tensor([number("weight", v, least=0) for v in weight])
    left_out = -100 if ignore_index is None else whole("ignore_index", ignore_index, least=-MOST_CLASSES)
    return TorchLoss(
        nn.CrossEntropyLoss(weights, ignore_index=left_out, label_smoothing=label_smoothing), "cross-entropy"
    )


def logistic(pos_weight: float | None = None) -> Loss:
    """The logistic loss by its name in configs.

    Args:
        pos_weight: weight of the second class; None weighs both classes the same.
    """
    if pos_weight is None:
        return Logistic()
    return TorchLoss(
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([number("pos_weight", pos_weight, above=0)])), "logistic"
    )


def absolute() -> Loss:
    """The absolute error by its name in configs."""
    return TorchLoss(nn.L1Loss(), "absolute")


def huber(delta: float = 1.0) -> Loss:
    """The Huber loss by its name in configs.

    Args:
        delta: δ, the residual up to which the loss is quadratic; beyond it, it is linear.
    """
    return TorchLoss(nn.HuberLoss(delta=number("delta", delta, above=0)), "huber")

"""Losses of torch as they are: `nn.CrossEntropyLoss(weight=...)` and any other module with a `reduction`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput
from fedsaddle.problems.losses import CrossEntropy, Logistic, Loss

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
            name, found = type(self.function).__name__, tuple(values.shape)
            remedy = f'gives a loss of shape {found} for {shape.numel()} rows with reduction="none"; give one a row'
            raise BadInput("loss", name, remedy)
        return values.view(*shape, *values.shape[1:])


def as_loss(key: str, loss: object) -> Loss:
    """A loss of ours, or one of torch's adapted; refuses a name, a class and a sum."""
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
    """Cross-entropy, as configs name it: with weights of the classes, smoothed labels, or a label to leave out."""
    if weight is None and label_smoothing == 0 and ignore_index is None:
        return CrossEntropy()
    number("label_smoothing", label_smoothing, least=0, most=1)
    weights = None if weight is None else torch.tensor([number("weight", v, least=0) for v in weight])
    left_out = -100 if ignore_index is None else whole("ignore_index", ignore_index, least=-MOST_CLASSES)
    return TorchLoss(
        nn.CrossEntropyLoss(weights, ignore_index=left_out, label_smoothing=label_smoothing), "cross-entropy"
    )


def logistic(pos_weight: float | None = None) -> Loss:
    """The logistic loss, as configs name it: with a weight of the second class."""
    if pos_weight is None:
        return Logistic()
    return TorchLoss(
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([number("pos_weight", pos_weight, above=0)])), "logistic"
    )


def absolute() -> Loss:
    """The absolute error, as configs name it."""
    return TorchLoss(nn.L1Loss(), "absolute")


def huber(delta: float = 1.0) -> Loss:
    """The Huber loss, as configs name it."""
    return TorchLoss(nn.HuberLoss(delta=number("delta", delta, above=0)), "huber")

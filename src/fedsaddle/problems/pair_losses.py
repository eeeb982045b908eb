"""Losses of pairs: what a score `a` of one set and a score `b` of another cost together.

Scores are `(C, A, d_o)` and `(C, B, d_o)`; every a meets every b. A loss may have q parts, which an outer function of q
arguments takes together: its values are `(C, A, B, q)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import softplus

from fedsaddle.arguments import flag, function, instance, number, whole
from fedsaddle.errors import BadInput


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of some rows, with the rows' labels.

    Args:
        h: scores, `(C, B, d_o)`.
        y: labels, `(C, B)`.
    """

    h: Tensor  # (C, B, d_o)
    y: Tensor  # (C, B)


@dataclass(frozen=True, eq=False)
class WeightedScores(Scores):
    """Scores of rows that do not count alike: the risk is the mean over pairs of weight times weight times loss.

    Args:
        h: scores, `(C, B, d_o)`.
        y: labels, `(C, B)`.
        weight: `(C, B)`; 0 is padding.
    """

    weight: Tensor  # (C, B)


@runtime_checkable
class PairLoss(Protocol):
    """A loss of pairs of scores."""

    @property
    def parts(self) -> int:
        """Its number of parts q."""
        ...

    def value(self, a: Scores, b: Scores) -> Tensor:
        """The loss of every pair, (C, A, B, q)."""
        ...

    def slopes(self, a: Scores, b: Scores, c: Tensor) -> tuple[Tensor, Tensor]:
        """The derivatives of `Σ c · value` in the scores of a and of b; c is of the value's shape."""
        ...


@dataclass(frozen=True, kw_only=True)
class MarginLoss:
    """A loss of the margin `t = a - b` of two single scores, a being the one that should be higher.

    Args:
        first_is_higher: whether `t = a - b`, so that scores of S1 should be higher; else `t = b - a`.
    """

    first_is_higher: bool = True

    def __post_init__(self) -> None:
        flag("first_is_higher", self.first_is_higher)

    @property
    def parts(self) -> int:
        """One."""
        return 1

    def of(self, t: Tensor) -> Tensor:
        """The loss of a margin."""
        raise NotImplementedError

    def slope(self, t: Tensor) -> Tensor:
        """Its derivative."""
        raise NotImplementedError

    def value(self, a: Scores, b: Scores) -> Tensor:
        """The loss of every pair."""
        return self.of(self._margins(a, b)).unsqueeze(-1)

    def slopes(self, a: Scores, b: Scores, c: Tensor) -> tuple[Tensor, Tensor]:
        """In closed form."""
        d = self.slope(self._margins(a, b)) * c.squeeze(-1)
        to_a, to_b = d.sum(2).unsqueeze(-1), d.sum(1).unsqueeze(-1)
        return (to_a, -to_b) if self.first_is_higher else (-to_a, to_b)

    def _margins(self, a: Scores, b: Scores) -> Tensor:
        if a.h.shape[-1] != 1:
            raise BadInput("model", a.h.shape[-1], "this pair loss needs a model with a single score")
        t = a.h - b.h.mT
        return t if self.first_is_higher else -t


@dataclass(frozen=True, kw_only=True)
class SquaredMargin(MarginLoss):
    """`(m - t)²`: with the identity, what min-max AUC optimises.

    Args:
        first_is_higher: whether `t = a - b`, so that scores of S1 should be higher; else `t = b - a`.
        margin: m, margin up to which a pair has a loss.
    """

    margin: float = 1.0  # m

    def __post_init__(self) -> None:
        super().__post_init__()
        number("margin", self.margin)

    def of(self, t: Tensor) -> Tensor:  # noqa: D102
        return (self.margin - t).square()

    def slope(self, t: Tensor) -> Tensor:  # noqa: D102
        return 2 * (t - self.margin)


@dataclass(frozen=True, kw_only=True)
class SquaredHinge(MarginLoss):
    """`max(0, m - t)²`.

    Args:
        first_is_higher: whether `t = a - b`, so that scores of S1 should be higher; else `t = b - a`.
        margin: m, margin up to which a pair has a loss.
    """

    margin: float = 1.0  # m

    def __post_init__(self) -> None:
        super().__post_init__()
        number("margin", self.margin)

    def of(self, t: Tensor) -> Tensor:  # noqa: D102
        return (self.margin - t).relu().square()

    def slope(self, t: Tensor) -> Tensor:  # noqa: D102
        return -2 * (self.margin - t).relu()


@dataclass(frozen=True, kw_only=True)
class Hinge(MarginLoss):
    """`max(0, m - t)`.

    Args:
        first_is_higher: whether `t = a - b`, so that scores of S1 should be higher; else `t = b - a`.
        margin: m, margin up to which a pair has a loss.
    """

    margin: float = 1.0  # m

    def __post_init__(self) -> None:
        super().__post_init__()
        number("margin", self.margin)

    def of(self, t: Tensor) -> Tensor:  # noqa: D102
        return (self.margin - t).relu()

    def slope(self, t: Tensor) -> Tensor:  # noqa: D102
        return -(t < self.margin).to(t.dtype)


@dataclass(frozen=True, kw_only=True)
class LogisticMargin(MarginLoss):
    """`log(1 + exp(-s t))`.

    Args:
        first_is_higher: whether `t = a - b`, so that scores of S1 should be higher; else `t = b - a`.
        steepness: s, slope of the logistic function.
    """

    steepness: float = 1.0  # s

    def __post_init__(self) -> None:
        super().__post_init__()
        number("steepness", self.steepness, above=0)

    def of(self, t: Tensor) -> Tensor:  # noqa: D102
        return softplus(-self.steepness * t)

    def slope(self, t: Tensor) -> Tensor:  # noqa: D102
        return -self.steepness * torch.sigmoid(-self.steepness * t)


@dataclass(frozen=True, kw_only=True)
class Sigmoid(MarginLoss):
    """`1 / (1 + exp(t))` (PSM): symmetric, so that flipped labels do not move its minimiser.

    Args:
        first_is_higher: whether `t = a - b`, so that scores of S1 should be higher; else `t = b - a`.
    """

    def of(self, t: Tensor) -> Tensor:  # noqa: D102
        return torch.sigmoid(-t)

    def slope(self, t: Tensor) -> Tensor:  # noqa: D102
        s = torch.sigmoid(-t)
        return s * (s - 1)


@dataclass(frozen=True, kw_only=True)
class BarrierHinge(MarginLoss):
    """`max(r - β(r + t), β(t - r), r - t)` (Charoenphakdee, Lee, Sugiyama 2019): convex, symmetric for |t| <= r.

    Args:
        first_is_higher: whether `t = a - b`, so that scores of S1 should be higher; else `t = b - a`.
        slope_outside: β, slope for |t| > r.
        width: r, half the width of the symmetric part.
    """

    slope_outside: float = 200.0  # β
    width: float = 50.0  # r

    def __post_init__(self) -> None:
        super().__post_init__()
        number("slope_outside", self.slope_outside, above=1)
        number("width", self.width, above=0)

    def of(self, t: Tensor) -> Tensor:  # noqa: D102
        β, r = self.slope_outside, self.width
        return torch.maximum(torch.maximum(r - β * (r + t), β * (t - r)), r - t)

    def slope(self, t: Tensor) -> Tensor:  # noqa: D102
        β, r = self.slope_outside, self.width
        inside = r - t
        left, right = r - β * (r + t) > inside, β * (t - r) > inside
        return torch.where(left, -β, torch.where(right, β, -1.0)).to(t.dtype)


@dataclass(frozen=True, kw_only=True)
class Difference(MarginLoss):
    """`-t`: under an exponential outer function the exponential loss of p-norm push.

    Args:
        first_is_higher: whether `t = a - b`, so that scores of S1 should be higher; else `t = b - a`.
    """

    def of(self, t: Tensor) -> Tensor:  # noqa: D102
        return -t

    def slope(self, t: Tensor) -> Tensor:  # noqa: D102
        return -torch.ones_like(t)


MARGIN_LOSS = "give a loss of margins, such as fs.pair_losses.SquaredHinge()"


class Differentiated:
    """Slopes by automatic differentiation, for losses that only have a value."""

    def value(self, a: Scores, b: Scores) -> Tensor:
        """The loss of every pair."""
        raise NotImplementedError

    def slopes(self, a: Scores, b: Scores, c: Tensor) -> tuple[Tensor, Tensor]:
        """By automatic differentiation."""
        ha, hb = a.h.detach().requires_grad_(), b.h.detach().requires_grad_()
        with torch.enable_grad():
            total = (self.value(Scores(ha, a.y), Scores(hb, b.y)) * c).sum()
        to_a, to_b = torch.autograd.grad(total, (ha, hb), allow_unused=True)
        return _or_zero(to_a, ha), _or_zero(to_b, hb)


def _or_zero(slope: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if slope is None else slope


@dataclass(frozen=True)
class Contrastive(Differentiated):
    """Distance metric learning: `|a - b|²` for rows of one label, `max(0, m - |a - b|)²` for rows of two.

    For models with several outputs; both sets are all rows.

    Args:
        margin: m, distance beyond which rows of two labels have no loss.
    """

    margin: float = 1.0  # m
    parts: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        number("margin", self.margin, above=0)

    def value(self, a: Scores, b: Scores) -> Tensor:
        """The loss of every pair."""
        apart = (a.h.unsqueeze(2) - b.h.unsqueeze(1)).square().sum(-1)
        alike = (a.y.unsqueeze(2) == b.y.unsqueeze(1)).to(apart.dtype)
        distance = apart.clamp_min(1e-12).sqrt()
        return (alike * apart + (1 - alike) * (self.margin - distance).relu().square()).unsqueeze(-1)


@dataclass(frozen=True)
class Precision(Differentiated):
    """`([y_b = 1] L, L)` for a margin loss L: the two sums whose ratio is the precision at a.

    Args:
        surrogate: L, a margin loss.
    """

    surrogate: MarginLoss  # L
    parts: int = field(default=2, init=False)

    def __post_init__(self) -> None:
        instance("surrogate", self.surrogate, MarginLoss, MARGIN_LOSS)

    def value(self, a: Scores, b: Scores) -> Tensor:
        """The loss of every pair, and the same where b is positive."""
        every = self.surrogate.value(a, b)
        return torch.cat([every * self._positive(b, every), every], -1)

    def slopes(self, a: Scores, b: Scores, c: Tensor) -> tuple[Tensor, Tensor]:
        """Through the margin loss."""
        return self.surrogate.slopes(a, b, c[..., :1] * self._positive(b, c) + c[..., 1:])

    def _positive(self, b: Scores, like: Tensor) -> Tensor:
        return (b.y > 0).to(like.dtype)[:, None, :, None]


@dataclass(frozen=True)
class CustomPairLoss(Differentiated):
    """A user's own: `function(a, b)` of scores `(C, A, 1, d_o)` and `(C, 1, B, d_o)` gives `(C, A, B)`.

    With several parts it gives `(C, A, B, parts)`. With `labels`, it is called as `function(a, b, y_a, y_b)`.

    Args:
        function: `function(a, b)`, or `function(a, b, y_a, y_b)` with `labels`.
        parts: q, values for each pair.
        labels: whether the function takes the labels, too.
    """

    function: Callable[..., Tensor]
    parts: int = 1  # q
    labels: bool = False

    def __post_init__(self) -> None:
        function("function", self.function)
        whole("parts", self.parts)
        flag("labels", self.labels)

    def value(self, a: Scores, b: Scores) -> Tensor:
        """The loss of every pair."""
        more = (a.y.unsqueeze(2), b.y.unsqueeze(1)) if self.labels else ()
        pairs = self.function(a.h.unsqueeze(2), b.h.unsqueeze(1), *more)
        want = (*a.h.shape[:2], b.h.shape[1])
        if self.parts == 1 and pairs.shape == want:
            return pairs.unsqueeze(-1)
        if pairs.shape != (*want, self.parts):
            need = want if self.parts == 1 else (*want, self.parts)
            raise BadInput("loss", tuple(pairs.shape), f"must give the loss of each pair, of shape {need}")
        return pairs

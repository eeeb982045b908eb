"""Gradients of a module with a penalty (weight decay) and a bound on their norm, for every problem over a network."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedsaddle.arguments import flag, number
from fedsaddle.numerics.clipping import norms
from fedsaddle.numerics.constants import Constant
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.passes import Forward, InPlace, Keys, SlopeMap, shrink_

SMALL = 1e-6  # added to a norm before it is divided by, as torch.nn.utils.clip_grad_norm_ does


def flat_model(module: nn.Module, statistics: bool, l2: float, l2_biases: bool, clip: float | None) -> FlatModel:
    """The module as a function of a flat vector, with what its gradients need; checks the three options."""
    number("l2", l2, least=0)
    flag("l2_biases", l2_biases)
    check_clip(clip)
    if not l2 and clip is None:
        return FlatModel(module, statistics)
    return ShapedModel(module, statistics, l2, l2_biases, clip)


def check_clip(clip: object) -> None:
    """Validate the largest norm of a gradient; None: any."""
    if clip is not None:
        number("clip", clip, above=0)


def clip_(g: Tensor, limit: float, size: int) -> Tensor:
    """Shorten each client's gradient `g (C, d)` whose first `size` entries have a norm above `limit`."""
    own = g[:, :size]
    own *= (limit / (norms(own) + SMALL)).clamp_max(1.0).to(g.dtype)
    return g


def without_penalty(flat: FlatModel, biases: bool) -> Tensor | None:
    """The places that a penalty leaves out: BatchNorm's statistics, and with `biases=False` all with a single axis."""
    found, first = [], 0
    for shape in flat.shapes.values():
        if len(shape) < 2 and not biases:
            found.append(torch.arange(first, first + shape.numel()))
        first += shape.numel()
    if flat.tail:
        found.append(torch.arange(first, first + flat.tail))
    if not found:
        return None if biases else torch.zeros(0, dtype=torch.int64)
    return torch.cat(found)


class ShapedModel(FlatModel):
    """A flat model whose gradients are those of the loss and `(l2 / 2) |w|²`, and no longer than `clip`."""

    def __init__(self, module: nn.Module, statistics: bool, l2: float, l2_biases: bool, clip: float | None) -> None:
        super().__init__(module, statistics)
        self.l2, self.clip = l2, clip
        free = without_penalty(self, l2_biases) if l2 else None
        self.free = None if free is None else Constant(free)

    def penalty(self, w: Tensor) -> Tensor:
        """`(l2 / 2) |w|²` of each client, (C,)."""
        own = w[:, : self.dimension]
        squares = own.square().sum(-1)
        return (
            self.l2 / 2 * (squares if self.free is None else squares - own[:, self.free.to(w.device)].square().sum(-1))
        )

    def shape_(self, g: Tensor, w: Tensor) -> Tensor:
        """Add the penalty's gradient at w to that of the loss, and shorten the sum."""
        if self.l2:
            g.add_(w, alpha=self.l2)
            if self.free is not None:
                free = self.free.to(w.device)
                g[:, free] -= self.l2 * w[:, free]
        return self.bound_(g)

    def bound_(self, g: Tensor) -> Tensor:
        """Shorten a whole gradient."""
        return g if self.clip is None else clip_(g, self.clip, self.dimension - self.tail)

    def pullback(self, w: Tensor, x: Tensor, keys: Keys | None = None, sizes: Sequence[int] | None = None) -> Forward:
        """The scores in training mode, and the map from a slope in them to the gradient in `w`."""
        scores, pull, statistics = super().pullback(w, x, keys, sizes)
        return Forward(scores, lambda slope: self.shape_(pull(slope), w.detach()), statistics)

    def pushforward(self, w: Tensor, x: Tensor, watched: int = 0, keys: Keys | None = None) -> InPlace:
        """The same with a gradient that is written."""
        return self.pulled_forward(w, x, watched, keys)

    def descend_(
        self,
        w: Tensor,
        x: Tensor,
        slope_of: SlopeMap,
        step: float,
        keep: float = 1.0,
        keys: Keys | None = None,
        sizes: Sequence[int] | None = None,
    ) -> Tensor | None:
        """`w ← keep w - step gradient`; without a bound a chain by hand still forms none."""
        chain = self.by_hand(w, x) if self.clip is None else None
        if chain is not None:
            at = None if self.free is None else self.free.to(w.device)
            free = None if at is None else w[:, at]
            chain.descend_(w, x, slope_of, step, keep - step * self.l2)
            if free is not None:
                w[:, at] += step * self.l2 * free
            return None
        scores, pull, statistics = self.pullback(w, x, keys, sizes)
        gradient = pull(slope_of(scores))
        shrink_(w, keep).sub_(gradient, alpha=step)
        return statistics

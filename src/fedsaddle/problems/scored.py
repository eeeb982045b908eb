"""What min-max problems over a model share: x is the model's flat vector, perhaps with a few numbers behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan
from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsaddle.errors import BadInput
from fedsaddle.numerics.auroc import auroc
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.projections import Everywhere, Projection


class AllRows(Protocol):
    """The rows of all clients, one client after the other."""

    @property
    def x(self) -> Tensor: ...  # noqa: D102
    @property
    def y(self) -> Tensor: ...  # noqa: D102
    @property
    def sizes(self) -> NDArray[np.int64]: ...  # noqa: D102
    @property
    def count(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class OverModel:
    """A problem whose x holds the parameters of `model`."""

    allows_statistics: ClassVar[bool] = True  # whether the gradients run the model in training mode

    model: nn.Module
    project_x: Projection = field(default_factory=Everywhere)
    flat: FlatModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flat", FlatModel(self.model, statistics=self.allows_statistics))
        if self.flat.tail:
            if not isinstance(self.project_x, Everywhere):
                name = type(self.project_x).__name__
                raise BadInput("project_x", name, "would project BatchNorm's statistics too; use nn.GroupNorm")
            object.__setattr__(self, "project_x", self.flat.settled)  # every step is followed by it

    def weights(self, x: Tensor) -> Tensor:
        """The model's part of x."""
        return x[..., : self.flat.dimension]

    def scores(self, x: Tensor, rows: Tensor, block: int = 4096) -> Tensor:
        """The scores of rows under one x, (n, k)."""
        w = self.weights(x)[None]
        return in_blocks(lambda part: self.flat.scores(w, part[None])[0], rows, block)

    def module(self, x: Tensor) -> nn.Module:
        """A copy of the model that carries the parameters."""
        return self.flat.module_with(self.weights(x))


def in_blocks(score: Callable[[Tensor], Tensor], rows: Tensor, block: int = 4096) -> Tensor:
    """`score` of all rows, some at a time."""
    with torch.no_grad():
        return torch.cat([score(part) for part in torch.split(rows, block)])


def pooled_auroc(ranking: Tensor | None, labels: Tensor) -> dict[str, float]:
    """AUROC of all clients' rows together, never a mean of local ones; nothing where there are not two classes."""
    if ranking is None or labels.ndim > 1:
        return {}
    area = auroc(ranking, labels)
    return {} if isnan(area) else {"auroc": area}

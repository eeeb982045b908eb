"""What min-max problems over a model share: x is the model's flat vector, perhaps with a few numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

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

    model: nn.Module
    project_x: Projection = field(default_factory=Everywhere)
    flat: FlatModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "flat", FlatModel(self.model))

    def weights(self, x: Tensor) -> Tensor:
        """The model's part of x."""
        return x[..., : self.flat.dimension]

    def scores(self, x: Tensor, rows: Tensor, block: int = 4096) -> Tensor:
        """The scores of rows under one x, (n, k)."""
        w = self.weights(x)[None]
        with torch.no_grad():
            return torch.cat([self.flat.scores(w, part[None])[0] for part in torch.split(rows, block)])

    def module(self, x: Tensor) -> nn.Module:
        """A copy of the model that carries the parameters."""
        return self.flat.module_with(self.weights(x))

"""What makes training rows worse: labels that are wrong, and a shift of the features that differs between clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.federated import FederatedData
from fedsaddle.data.splits.partition import by_code, generator
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput

FLIP, SHIFT = 6, 7


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise in the training rows; test rows stay as they are.

    `flipped_labels`: this share of the rows of every class gets another class, drawn at random (20 % in FedX, table 2).
    Client i, counted from 0, has draws from `N(mean + i mean_step, variance)` added to each of its features, once and
    for all: FedX's pictures in [0, 1] have mean -0.08, step 0.01 and variance 0.04.
    """

    flipped_labels: float = 0.0
    mean: float = 0.0
    mean_step: float = 0.0
    variance: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.flipped_labels <= 1:
            raise BadInput("flipped_labels", self.flipped_labels, "must be a share from 0 to 1")
        for key in ("mean", "mean_step"):
            if not np.isfinite(getattr(self, key)):
                raise BadInput(key, getattr(self, key), "must be a finite number")
        if not 0 <= self.variance < float("inf"):
            raise BadInput("variance", self.variance, "must be a finite number of at least 0")

    def apply(self, data: FederatedData, seed: int = 0) -> FederatedData:
        """The same data with noise in the training rows."""
        train = data.train
        if self.flipped_labels:
            if not data.classes or train.y.ndim > 1:
                raise BadInput("flipped_labels", self.flipped_labels, "needs data with one class a row")
            train = replace(train, y=self._flipped(train.y, len(data.classes), seed))
        if self.mean or self.mean_step or self.variance:
            if not train.x.is_floating_point():
                raise BadInput("mean, variance", (self.mean, self.variance), "text has no features to add noise to")
            train = replace(train, x=self._shifted(train, seed))
        return replace(data, train=train)

    def _flipped(self, y: Tensor, classes: int, seed: int) -> Tensor:
        rng, labels = generator(seed, FLIP), y.numpy().copy()
        for rows in by_code(y.numpy(), classes):
            wrong = rng.permutation(rows)[: round(self.flipped_labels * len(rows))]
            labels[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
        return torch.from_numpy(labels)

    def _shifted(self, train: Stacked, seed: int) -> Tensor:
        x = train.x.clone()
        for i in range(train.count):
            own = x[int(train.offsets[i]) : int(train.offsets[i + 1])]
            draws = generator(seed, SHIFT, i).standard_normal(tuple(own.shape), dtype=np.float32)
            own += torch.from_numpy(draws).to(x.dtype) * self.variance**0.5 + (self.mean + i * self.mean_step)
        return x

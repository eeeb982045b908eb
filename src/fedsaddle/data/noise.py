"""Noise in training rows: flipped labels, and feature noise whose mean differs between clients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import instance, number, share, whole
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.splits.partition import generator, rows_by_code
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput

FLIP, SHIFT = 6, 7


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise in the training rows; validation and test rows are unchanged.

    Draws from `N(mean + i mean_step, variance)` are added to each feature of client i, counted from 0, once before the
    run: FedX's pictures in [0, 1] have mean -0.08, step 0.01 and variance 0.04.

    Args:
        flipped_labels: Share of the rows of each class that get another class at random (20 % in FedX, table 2);
            0 (default): none.
        mean: Mean of the noise in the features of client 0.
        mean_step: Difference of that mean between one client and the next.
        variance: Variance of the noise in the features; 0 (default): a constant shift.

    Raises:
        BadInput: if a number is out of range, or in `apply` if the data have no labels or features to change.

    Examples:
        >>> Noise(flipped_labels=0.2)
        Noise(flipped_labels=0.2, mean=0.0, mean_step=0.0, variance=0.0)
    """

    flipped_labels: float = 0.0
    mean: float = 0.0
    mean_step: float = 0.0
    variance: float = 0.0

    def __post_init__(self) -> None:
        share("flipped_labels", self.flipped_labels)
        number("mean", self.mean)
        number("mean_step", self.mean_step)
        number("variance", self.variance, least=0)

    def apply(self, data: FederatedData, seed: int = 0) -> FederatedData:
        """The same data with noise in the training rows."""
        train = instance("data", data, FederatedData, "must be federated data, such as federate(...) gives").train
        whole("seed", seed, least=0)
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
        for rows in rows_by_code(y.numpy(), classes):
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

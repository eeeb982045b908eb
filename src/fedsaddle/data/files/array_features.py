"""Features that are an array already, such as pixels: standardised by the training rows, or as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedsaddle.data.encoded import Encoded, Seen
from fedsaddle.data.files.encode import Scale
from fedsaddle.data.table import Array


@dataclass(frozen=True, eq=False)
class ArrayFeatures:
    """Rows of an array. Each feature has a mean and a deviation; pixels and other rows with several axes share one."""

    x: Array
    standardise: bool = True
    file: str = ""  # the column of file names that pictures come from

    def fit(self, train: Sequence[Array], names: Sequence[str]) -> FittedArray:
        """Settle mean and deviation."""
        if not self.standardise:
            return FittedArray(Scale(np.zeros(()), np.ones(())), self.file)
        rows = np.concatenate(train)
        whole = len(rows) == len(self.x)
        return FittedArray(Scale.fit(self.x if whole else self.x[rows]), self.file)


@dataclass(frozen=True, eq=False)
class FittedArray:
    """The scale of an array."""

    scale: Scale
    file: str = ""

    @property
    def encoding(self) -> tuple[Encoded, ...]:
        """Of pictures, mean and deviation of all pixels."""
        if not self.file:
            return ()
        return (Encoded(self.file, mean=float(self.scale.mean), std=float(self.scale.std)),)

    @property
    def names(self) -> tuple[str, ...]:
        """None."""
        return ()

    @property
    def seen(self) -> Seen:
        """Nothing, as there are no columns."""
        return Seen()

    def apply(self, pending: ArrayFeatures, parts: Sequence[Array], names: Sequence[str]) -> Array:
        """The rows of all parts, standardised."""
        rows = np.concatenate(parts)
        return self.scale.apply(pending.x[rows])

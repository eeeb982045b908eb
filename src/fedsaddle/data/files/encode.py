"""Encoding of raw columns as features: scaling, ordinal codes and one-hot columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.table import Array

Floats = NDArray[np.float32]
ROUNDING = 1e-12  # standard deviation of a constant column, relative to its mean


@dataclass(frozen=True, eq=False)
class Scale:
    """A mean and a standard deviation per feature; one pair for all pixels of an image."""

    mean: Array
    std: Array

    @classmethod
    def fit(cls, x: Array) -> Scale:
        """Compute the moments of `x`; a constant feature gets the standard deviation 1, so it becomes 0."""
        axis = 0 if x.ndim == 2 else None
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.mean(x, axis=axis, dtype=np.float64)
            std = np.std(x, axis=axis, dtype=np.float64)
        return cls.from_moments(np.asarray(mean), np.asarray(std))

    @classmethod
    def from_moments(cls, mean: Array, std: Array) -> Scale:
        """Build a scale from a known mean and standard deviation."""
        return cls(mean, np.where(is_constant(mean, std), 1.0, std))

    def apply(self, x: Array) -> Floats:
        """Subtract the mean and divide by the standard deviation. Overflow gives NaN, which `Table.check` reports."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((x - self.mean) / self.std, dtype=np.float32)


def is_constant(mean: Array | float, std: Array | float) -> NDArray[np.bool_]:
    """Whether a standard deviation is no more than the rounding error of a constant column with that mean.

    The bound is relative to the mean, so that the unit of a column does not matter.

    >>> is_constant(np.array([0.1, 0.0, 1e-15]), np.array([3e-17, 0.0, 1e-15])).tolist()
    [True, True, False]
    """
    return np.asarray(std <= ROUNDING * np.abs(mean))


def ordinal(values: Array, categories: Array) -> NDArray[np.int64]:
    """Positions in the sorted `categories`, and -1 for a value that is not among them."""
    at = np.minimum(np.searchsorted(categories, values), len(categories) - 1)
    return np.where(categories[at] == values, at, -1).astype(np.int64)


def one_hot(values: Array, categories: Array) -> Floats:
    """One column per category; a value that is not among them gives a row of zeros."""
    out = np.zeros((len(values), len(categories)), dtype=np.float32)
    codes = ordinal(values, categories)
    known = np.flatnonzero(codes >= 0)
    out[known, codes[known]] = 1.0
    return out

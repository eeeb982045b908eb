"""Running means, kept as one vector."""

from __future__ import annotations

from torch import Tensor


class Running:
    """The mean of the vectors added so far."""

    def __init__(self) -> None:
        self.count = 0
        self._sum: Tensor | None = None

    def add(self, v: Tensor) -> None:
        """Take one more vector."""
        self._sum = v.clone() if self._sum is None else self._sum.add_(v)
        self.count += 1

    @property
    def mean(self) -> Tensor:
        """Their mean."""
        if self._sum is None:
            raise ValueError("the mean of nothing")
        return self._sum / self.count

    @staticmethod
    def over(mean: Tensor | None, new: Tensor | None, before: int) -> Tensor | None:
        """The mean of `before + 1` vectors, from the mean of the first `before` and the new one."""
        if new is None:
            return mean
        return new if mean is None else mean + (new - mean) / (before + 1)

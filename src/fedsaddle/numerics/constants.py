"""Tensors that stay as they are, wherever they are needed."""

from __future__ import annotations

import torch
from torch import Tensor


class Constant:
    """A tensor and its copies on other devices and in other types, each made once."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {(value.device, value.dtype): value}

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
        """The tensor on that device, in that type or its own."""
        key = device, self.value.dtype if dtype is None else dtype
        if key not in self._copies:
            self._copies[key] = self.value.to(*key)
        return self._copies[key]

"""The draws of `randomness` once more, in torch: the same words bit for bit, made on the device that uses them.

A key for each client is all that has to be sent to a device in an exchange; its batches are drawn there.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_MODULUS = 1 << 64


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    word %= _MODULUS
    return word - _MODULUS if word >> 63 else word


_GAMMA = _signed(0x9E3779B97F4A7C15)
_A, _B = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _right(z: Tensor, by: int) -> Tensor:
    """Shift right and fill with zeros; torch repeats the sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _right(z, 30)) * _A
    z = (z ^ _right(z, 27)) * _B
    return z ^ _right(z, 31)


@dataclass(frozen=True)
class DeviceKeys:
    """One key per client for one exchange, `(C,)` int64 on the device."""

    keys: Tensor

    def words(self, step: int, size: int, stream: int = 0) -> Tensor:
        """`(C, size)` independent 64-bit words, as int64."""
        first = _signed(((stream << 56) + (step << 32)) * _GAMMA)
        at = torch.arange(size, dtype=torch.int64, device=self.keys.device) * _GAMMA + first
        return _mix(_mix(self.keys[:, None] + at) + _GAMMA)

    def rows(self, sizes: Tensor, step: int, size: int, stream: int = 0) -> Tensor:
        """`(C, size)` row numbers, uniform on `0 .. sizes[c] - 1` with replacement."""
        return (_right(self.words(step, size, stream), 32) * sizes[:, None]) >> 32

    def inner(self, step: int, stream: int = 0) -> Tensor:
        """A key for each client, (C,), for what is drawn inside of a batch's gradient."""
        at = _signed(((stream << 56) + (step << 32) + 0xFFFFFFFF) * _GAMMA)
        return _mix(_mix(self.keys + at) + _GAMMA)

    def uniforms(self, step: int = 0, size: int = 1, stream: int = 0) -> Tensor:
        """`(C, size)` float64 numbers uniform on [0, 1)."""
        return _right(self.words(step, size, stream), 11).to(torch.float64) * 2.0**-53

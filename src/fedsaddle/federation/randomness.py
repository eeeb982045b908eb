"""Stateless random draws: each is a function of (seed, round, exchange, client, step), the same on every engine.

A resumed run needs no generator state, and a client's batches do not depend on the other clients of the cohort.
Client draws are counters mixed by SplitMix64's finaliser (Steele, Lea, Flood 2014), applied twice, for a whole cohort
in one numpy expression. Server draws come from numpy's Philox generator keyed by (seed, round).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.array_types import Ints

Words = NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)


def _mix(z: Words) -> Words:
    z = (z ^ (z >> _S30)) * _A
    z = (z ^ (z >> _S27)) * _B
    return z ^ (z >> _S31)


def hash_words(*words: int) -> int:
    """Hash several words into one 64-bit word."""
    h = np.zeros(1, dtype=np.uint64)
    for word in words:
        h = _mix(h + np.array([word], dtype=np.uint64) * _GAMMA + _GAMMA)
    return int(h[0])


@dataclass(frozen=True)
class ClientKeys:
    """One key per client for one exchange.

    Args:
        keys: `(C,)`, the key of each client.
    """

    keys: Words

    @classmethod
    def of(cls, seed: int, round: int, exchange: int, clients: Ints) -> ClientKeys:
        """Keys that depend only on the arguments."""
        key = np.uint64(hash_words(seed, round, exchange))
        return cls(_mix(_mix(key + clients.astype(np.uint64) * _GAMMA) + _GAMMA))

    @classmethod
    def secret(cls, secret: bytes, round: int, exchange: int) -> ClientKeys:
        """The key of one client, which only who has the secret can know.

        Args:
            secret: 32 random bytes of the client, for this run alone.
            round: the round.
            exchange: the exchange.
        """
        content = hashlib.sha256(secret + f"draws {round} {exchange}".encode()).digest()
        return cls(np.frombuffer(content, dtype="<u8", count=1).astype(np.uint64))

    def words(self, step: int, size: int, stream: int = 0) -> Words:
        """`(C, size)` independent 64-bit words."""
        at = (np.uint64(stream) << np.uint64(56)) + (np.uint64(step) << _S32) + np.arange(size, dtype=np.uint64)
        return _mix(_mix(self.keys[:, None] + at * _GAMMA) + _GAMMA)

    def rows(self, sizes: Ints, step: int, size: int, stream: int = 0) -> Ints:
        """`(C, size)` row numbers, uniform on `0 .. sizes[c] - 1` with replacement."""
        high = self.words(step, size, stream) >> _S32
        return ((high * sizes.astype(np.uint64)[:, None]) >> _S32).astype(np.int64)

    def rows_of_steps(self, sizes: Ints, first: int, steps: int, size: int, stream: int = 0) -> Ints:
        """`rows` of `steps` steps from `first` on, `(steps, C, size)`: the same numbers, in fewer operations."""
        numbers: Words = np.arange(first, first + steps, dtype=np.uint64)
        at: Words = (numbers << _S32) + np.uint64(stream << 56)
        counters: Words = np.multiply(np.add.outer(at, np.arange(size, dtype=np.uint64)), _GAMMA)
        words: Words = _mix(_mix(self.keys[:, None] + counters[:, None]) + _GAMMA)
        words >>= _S32
        words *= sizes.astype(np.uint64)[:, None]
        words >>= _S32
        return words.view(np.int64)

    def inner(self, step: int, stream: int = 0) -> Words:
        """A key for each client, (C,), for what is drawn inside of a batch's gradient; apart from all other words."""
        at = np.array([(stream << 56) + (step << 32) + 0xFFFFFFFF], dtype=np.uint64)
        return _mix(_mix(self.keys + at * _GAMMA) + _GAMMA)

    def uniforms(self, step: int = 0, size: int = 1, stream: int = 0) -> NDArray[np.float64]:
        """`(C, size)` numbers uniform on [0, 1)."""
        return (self.words(step, size, stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53


Draw = Callable[
    [int, int, int, Ints], ClientKeys
]  # (seed, round, exchange, clients) -> the keys that an engine draws with


def server_generator(seed: int, round: int) -> np.random.Generator:
    """The server's generator for one round."""
    return np.random.Generator(np.random.Philox(key=[hash_words(seed, 0x5E12), round]))


_MODULUS = 1 << 64


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    word %= _MODULUS
    return word - _MODULUS if word >> 63 else word


_SIGNED_GAMMA = _signed(0x9E3779B97F4A7C15)
_SIGNED_A, _SIGNED_B = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _right(z: Tensor, by: int) -> Tensor:
    """Shift right and fill with zeros; torch repeats the sign."""
    return (z >> by) & ((1 << (64 - by)) - 1)


def _mix_signed(z: Tensor) -> Tensor:
    z = (z ^ _right(z, 30)) * _SIGNED_A
    z = (z ^ _right(z, 27)) * _SIGNED_B
    return z ^ _right(z, 31)


@dataclass(frozen=True)
class DeviceKeys:
    """One key per client for one exchange, `(C,)` int64 on the device."""

    keys: Tensor

    def words(self, step: int, size: int, stream: int = 0) -> Tensor:
        """`(C, size)` independent 64-bit words, as int64."""
        first = _signed(((stream << 56) + (step << 32)) * _SIGNED_GAMMA)
        at = torch.arange(size, dtype=torch.int64, device=self.keys.device) * _SIGNED_GAMMA + first
        return _mix_signed(_mix_signed(self.keys[:, None] + at) + _SIGNED_GAMMA)

    def rows(self, sizes: Tensor, step: int, size: int, stream: int = 0) -> Tensor:
        """`(C, size)` row numbers, uniform on `0 .. sizes[c] - 1` with replacement."""
        return (_right(self.words(step, size, stream), 32) * sizes[:, None]) >> 32

    def inner(self, step: int, stream: int = 0) -> Tensor:
        """A key for each client, (C,), for what is drawn inside of a batch's gradient."""
        at = _signed(((stream << 56) + (step << 32) + 0xFFFFFFFF) * _SIGNED_GAMMA)
        return _mix_signed(_mix_signed(self.keys + at) + _SIGNED_GAMMA)

    def uniforms(self, step: int = 0, size: int = 1, stream: int = 0) -> Tensor:
        """`(C, size)` float64 numbers uniform on [0, 1)."""
        return _right(self.words(step, size, stream), 11).to(torch.float64) * 2.0**-53

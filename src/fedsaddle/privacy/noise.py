"""Where noise comes from: in a simulation from the clients' keys, at a real site from a secret that stays there."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.federation.randomness import Words

NOISE_STREAM = 64  # offset of the stream that seeds noise; algorithms use lower ones
Floats = NDArray[np.float64]


class Normals(Protocol):
    """Standard normal numbers for the clients of a site."""

    def __call__(self, step: int, stream: int, call: int, size: int, like: Tensor) -> Tensor:
        """`(C, size)` numbers; other arguments give independent ones."""
        ...


@dataclass(frozen=True)
class SeededNormals:
    """From one seed a client, for simulations: the same on every engine. Whoever knows the seed knows the noise."""

    seeds: Floats  # (C,), uniform on [0, 1)

    def __call__(self, step: int, stream: int, call: int, size: int, like: Tensor) -> Tensor:
        """By torch's generator, seeded for each client and call."""
        found, generator = torch.empty(len(self.seeds), size, dtype=like.dtype), torch.Generator()
        for own, seed in zip(found.unbind(), self.seeds.tolist(), strict=True):
            own.normal_(generator=generator.manual_seed(_seed(int(seed * 2.0**53), call)))
        return found.to(like.device)


def _seed(word: int, call: int) -> int:
    """32 bits, as torch's generator makes use of no others; the calls of a word are kept apart by large odd numbers."""
    return ((word * 0x9E3779B97F4A7C15 + call * 0xBF58476D1CE4E5B9) >> 29) & 0xFFFFFFFF


@dataclass(frozen=True)
class SecretKeys:
    """A site's own draws: of rows and of noise, from a secret that never leaves it and all that a task was given.

    SHAKE-256 of the secret, of a digest of the task's input and of the draw's number: whoever does not know the secret
    cannot tell them from random numbers. The same input gives the same reply once more, which tells nothing new;
    another input gives other noise.
    """

    secret: bytes
    given: bytes  # digest of all that the reply depends on, besides the rows
    clients: int = 1

    def _stream(self, name: str, step: int, stream: int, call: int, words: int) -> Words:
        context = f"{name} {step} {stream} {call}".encode()
        content = hashlib.shake_256(self.secret + self.given + context).digest(8 * words)
        return np.frombuffer(content, dtype="<u8").astype(np.uint64).reshape(self.clients, -1)

    def words(self, step: int, size: int, stream: int = 0) -> Words:
        """`(C, size)` independent 64-bit words."""
        return self._stream("rows", step, stream, 0, self.clients * size)

    def uniforms(self, step: int = 0, size: int = 1, stream: int = 0) -> Floats:
        """`(C, size)` numbers uniform on [0, 1)."""
        return (self.words(step, size, stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def __call__(self, step: int, stream: int, call: int, size: int, like: Tensor) -> Tensor:
        """Normal numbers, by the method of Box and Muller."""
        pairs = -(-size // 2)
        words = self._stream("noise", step, stream, call, 2 * self.clients * pairs)
        shares = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # above 0 and below 1
        length, angle = np.sqrt(-2 * np.log(shares[:, :pairs])), 2 * math.pi * shares[:, pairs:]
        normal = np.concatenate([length * np.cos(angle), length * np.sin(angle)], 1)[:, :size]
        return torch.from_numpy(normal.copy()).to(like.dtype).to(like.device)

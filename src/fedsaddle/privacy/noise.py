"""Sources of noise: the clients' keys in a simulation, a local secret at a real site."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Floats
from fedsaddle.federation.randomness import Words

NOISE_STREAM = 64  # offset of the stream that seeds noise; algorithms use lower ones


class Normals(Protocol):
    """Standard normal numbers for the clients of a site."""

    def __call__(self, step: int, stream: int, call: int, size: int, like: Tensor) -> Tensor:
        """`(C, size)` numbers; other arguments give independent ones."""
        ...


@dataclass(frozen=True)
class SeededNormals:
    """From one seed a client, for simulations: the same on every engine. Not secret: the seed determines the noise."""

    seeds: Floats  # (C,), uniform on [0, 1)

    def __call__(self, step: int, stream: int, call: int, size: int, like: Tensor) -> Tensor:
        """By torch's generator, seeded for each client and call."""
        found, generator = torch.empty(len(self.seeds), size, dtype=like.dtype), torch.Generator()
        for own, seed in zip(found.unbind(), self.seeds.tolist(), strict=True):
            own.normal_(generator=generator.manual_seed(_seed(int(seed * 2.0**53), call)))
        return found.to(like.device)


def _seed(word: int, call: int) -> int:
    """A 32-bit seed, all that torch's generator uses; large odd multipliers separate the calls of a word."""
    return ((word * 0x9E3779B97F4A7C15 + call * 0xBF58476D1CE4E5B9) >> 29) & 0xFFFFFFFF


@dataclass(frozen=True)
class SecretKeys:
    """The draws of rows and noise at a site, derived from its secret and the input of the task.

    SHAKE-256 of the secret, a digest of the task's input and the draw's number: without the secret they are
    indistinguishable from random. A repeated input gives the same reply, which reveals nothing new; another input has
    fresh noise.
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


def digest_of(*given: object) -> bytes:
    """A digest of records, tensors, arrays and plain values."""
    found = hashlib.sha256()

    def add(thing: object) -> None:
        if isinstance(thing, np.ndarray):
            thing = torch.from_numpy(np.ascontiguousarray(thing))
        if isinstance(thing, Tensor):
            whole = thing.detach().cpu().clone(memory_format=torch.contiguous_format)
            found.update(f"tensor {whole.dtype} {tuple(whole.shape)} ".encode())
            found.update(whole.flatten().view(torch.uint8).numpy().tobytes() if whole.numel() else b"")
        elif is_dataclass(thing) and not isinstance(thing, type):
            found.update(f"record {type(thing).__name__} ".encode())
            for one in fields(thing):
                found.update(f"{one.name} ".encode())
                add(getattr(thing, one.name))
        elif isinstance(thing, Mapping):
            found.update(f"table {len(thing)} ".encode())
            for key in sorted(thing):
                add(str(key))
                add(thing[key])
        else:
            text = repr(thing).encode()
            found.update(f"{len(text)} ".encode() + text)

    for thing in given:
        add(thing)
    return found.digest()

"""Masks: the keystream of AES-256 in counter mode, as 64-bit words that are added modulo 2^64."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections.abc import Iterable

import numpy as np

from fedsaddle.secure.fixed_point import Words

SEED = 32  # bytes of a key or a seed
_CHUNK = 1 << 17  # bytes at a time: they stay in the cache
_ZEROS = memoryview(bytes(_CHUNK))
_room = threading.local()


def derive(key: bytes, purpose: str, *parts: bytes) -> bytes:
    """32 bytes that tell nothing of the key: HMAC-SHA-256 of the purpose and the parts, each with its length."""
    text = b"".join([len(part).to_bytes(8, "big") + part for part in (purpose.encode(), *parts)])
    return hmac.digest(key, text, hashlib.sha256)


def exclusive_or(a: bytes, b: bytes) -> bytes:
    """a ⊕ b."""
    return (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).to_bytes(len(a), "big")


def add_masks_(words: Words, seeds: Iterable[tuple[bytes, int]]) -> None:
    """Add the mask of each seed to the words if its sign is 1, or subtract it; a seed is used for one mask only."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    zero = CTR(bytes(16))  # each seed is a key of its own, so that all may count from 0
    streams = [
        (Cipher(AES(seed), zero).encryptor().update_into, np.add if sign > 0 else np.subtract) for seed, sign in seeds
    ]
    if not hasattr(_room, "bytes"):
        _room.bytes = np.empty(_CHUNK, dtype=np.uint8)
    room = _room.bytes
    for at in range(0, len(words), _CHUNK // 8):
        part = words[at : at + _CHUNK // 8]
        zeros, mask = _ZEROS[: part.nbytes], room.view("<u8")[: len(part)]
        for fill, apply in streams:
            fill(zeros, room)
            apply(part, mask, out=part)

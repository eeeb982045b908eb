"""Masks: the keystream of ChaCha20, as 64-bit words that are added modulo 2^64."""

from __future__ import annotations

import hashlib
import hmac
import threading

import numpy as np

from fedsaddle.secure.fixed_point import Words

SEED = 32  # bytes of a key or a seed
_CHUNK = 1 << 17  # bytes at a time: they stay in the cache
_ZEROS = bytes(_CHUNK)
_room = threading.local()


def derive(key: bytes, purpose: str, *parts: bytes) -> bytes:
    """32 bytes that tell nothing of the key: HMAC-SHA-256 of the purpose and the parts, each with its length."""
    text = b"".join(len(part).to_bytes(8, "big") + part for part in (purpose.encode(), *parts))
    return hmac.digest(key, text, hashlib.sha256)


def exclusive_or(a: bytes, b: bytes) -> bytes:
    """a ⊕ b."""
    return (int.from_bytes(a, "big") ^ int.from_bytes(b, "big")).to_bytes(len(a), "big")


def add_mask_(words: Words, seed: bytes, sign: int) -> None:
    """Add the mask of a seed to the words, or subtract it; a seed is used for one mask only."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(ChaCha20(seed, bytes(16)), None).encryptor()
    if not hasattr(_room, "bytes"):
        _room.bytes = np.empty(_CHUNK, dtype=np.uint8)
    room = _room.bytes
    mask, apply = room.view("<u8"), np.add if sign > 0 else np.subtract
    for at in range(0, len(words), _CHUNK // 8):
        part = words[at : at + _CHUNK // 8]
        stream.update_into(_ZEROS[: 8 * len(part)], room)
        apply(part, mask[: len(part)], out=part)

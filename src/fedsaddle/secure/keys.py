"""The keys of secure aggregation: one of each site for each run, signed with the site's long-term key."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from fedsaddle.errors import MissingData, Refused, install
from fedsaddle.secure.fixed_point import Words

SEED = 32  # bytes of a key or a seed
_CHUNK = 1 << 17  # bytes at a time: they stay in the cache
_ZEROS = memoryview(bytes(_CHUNK))
_room = threading.local()


def derive(key: bytes, purpose: str, *parts: bytes) -> bytes:
    """Derive 32 bytes from a key: HMAC-SHA-256 of the purpose and the parts, each with its length."""
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


_SALT = b"fedsaddle secure aggregation 1"


def require_cryptography() -> None:
    """Raise `MissingData` if the package `cryptography` is not installed."""
    if find_spec("cryptography") is None:
        raise MissingData(f"secure aggregation needs the package cryptography; {install('privacy')}")


@dataclass(frozen=True)
class RunKeys:
    """A site's secrets in a run: a private X25519 key, and the key of its own masks.

    Args:
        private: X25519 key.
        own: key of the site's own masks.
    """

    private: bytes
    own: bytes

    @classmethod
    def new(cls) -> RunKeys:
        """New random keys."""
        return cls(secrets.token_bytes(SEED), secrets.token_bytes(SEED))

    @property
    def public(self) -> bytes:
        """The public X25519 key."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def pair(self, other: bytes, roster: bytes, numbers: bytes) -> bytes:
        """The key shared by this site and the one with the public key `other`.

        It depends on the identities of the two as well: otherwise a site that signed the public key of another one as
        its own would share that one's secrets, and revealing them for the one would reveal them for the other.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        try:
            shared = X25519PrivateKey.from_private_bytes(self.private).exchange(
                X25519PublicKey.from_public_bytes(other)
            )
        except ValueError:
            raise Refused("an invalid public key of secure aggregation") from None
        parts = (roster, numbers, *sorted((self.public, other)))
        about = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return HKDF(algorithm=SHA256(), length=SEED, salt=_SALT, info=about).derive(shared)


def roster_of(run: str, names: Sequence[str], publics: Sequence[bytes]) -> bytes:
    """A digest of a run, its sites in their order, and their keys."""
    content = {"run": run, "sites": list(names), "keys": [public.hex() for public in publics]}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).digest()


def new_signing_key() -> bytes:
    """A private Ed25519 key, a site's signing key."""
    return secrets.token_bytes(SEED)


def signing_public(private: bytes) -> bytes:
    """The public key of a private Ed25519 key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(private: bytes, run: str, site: str, names: Sequence[str], public: bytes) -> bytes:
    """Sign that `public` is the site's key in a run of these sites."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(private).sign(_statement(run, site, names, public))


def verify(known: bytes, signature: bytes, run: str, site: str, names: Sequence[str], public: bytes) -> bool:
    """Whether `signature` is a valid signature by the owner of the public Ed25519 key `known`."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(known).verify(signature, _statement(run, site, names, public))
    except (InvalidSignature, ValueError):
        return False
    return True


def _statement(run: str, site: str, names: Sequence[str], public: bytes) -> bytes:
    content = {"key of secure aggregation": public.hex(), "run": run, "site": site, "sites": list(names)}
    return json.dumps(content, sort_keys=True).encode()

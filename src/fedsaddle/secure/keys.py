"""The keys of secure aggregation: a key of each site for each run, signed by the key that the site is known by."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from fedsaddle.errors import MissingData, Refused, install
from fedsaddle.secure.masks import SEED, derive

_SALT = b"fedsaddle secure aggregation 1"


def require_cryptography() -> None:
    """Raise `MissingData` if the package `cryptography` is not installed."""
    if find_spec("cryptography") is None:
        raise MissingData(f"secure aggregation needs the package cryptography; {install('privacy')}")


@dataclass(frozen=True)
class RunKeys:
    """What a site keeps for itself in a run: a private X25519 key, and the key of its own masks."""

    private: bytes
    own: bytes

    @classmethod
    def new(cls) -> RunKeys:
        """New random keys."""
        return cls(secrets.token_bytes(SEED), secrets.token_bytes(SEED))

    @property
    def public(self) -> bytes:
        """The key that others may know."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return X25519PrivateKey.from_private_bytes(self.private).public_key().public_bytes_raw()

    def pair(self, other: bytes, roster: bytes, numbers: bytes) -> bytes:
        """The key that only this site and the one with the public key `other` know.

        It depends on who the two are as well: a site that signed the public key of another one as its own would else
        have the same secrets with everybody as that one, and to open them for the one would open them for the other.
        """
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        try:
            shared = X25519PrivateKey.from_private_bytes(self.private).exchange(
                X25519PublicKey.from_public_bytes(other)
            )
        except ValueError:
            raise Refused("a public key of secure aggregation that is none") from None
        parts = (roster, numbers, *sorted((self.public, other)))
        about = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
        return HKDF(algorithm=SHA256(), length=SEED, salt=_SALT, info=about).derive(shared)


def roster_of(run: str, names: Sequence[str], publics: Sequence[bytes]) -> bytes:
    """A digest of a run, its sites in their order, and their keys."""
    told = {"run": run, "sites": list(names), "keys": [public.hex() for public in publics]}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).digest()


def new_signing_key() -> bytes:
    """A private Ed25519 key, by which a site signs."""
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
    """Whether the owner of the public Ed25519 key `known` signed that."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(known).verify(signature, _statement(run, site, names, public))
    except (InvalidSignature, ValueError):
        return False
    return True


def _statement(run: str, site: str, names: Sequence[str], public: bytes) -> bytes:
    told = {"key of secure aggregation": public.hex(), "run": run, "site": site, "sites": list(names)}
    return json.dumps(told, sort_keys=True).encode()


def fingerprint_of(known: bytes) -> str:
    """A short name of a public key, for people to compare."""
    return derive(known, "fingerprint").hex()[:16]

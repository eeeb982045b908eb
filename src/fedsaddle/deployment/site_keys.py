"""The keys by which sites know each other for secure aggregation: one private Ed25519 key each, and all public ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsaddle.atomic import write_atomically, write_json
from fedsaddle.errors import BadInput
from fedsaddle.secure.keys import new_signing_key, require_cryptography, signing_public
from fedsaddle.secure.masks import SEED
from fedsaddle.stored import read_object

SIGNING_KEY = "local/signing.key"  # in a site's kit: its private key,
SITE_KEYS = "local/site-keys.json"  # and the public keys of all sites


@dataclass(frozen=True)
class Identity:
    """What a site signs with, and the public keys of all sites by name."""

    name: str
    private: bytes
    known: Mapping[str, bytes]


def read_identity(kit: Path, name: str) -> Identity | None:
    """The keys in a site's kit; None if it has none."""
    private, known = kit / SIGNING_KEY, kit / SITE_KEYS
    if not private.is_file() or not known.is_file():
        return None
    try:
        keys = {str(site): bytes.fromhex(key) for site, key in read_object(known).items()}
    except (ValueError, TypeError):
        raise BadInput(SITE_KEYS, str(known), "is damaged; get the file again from who made the kit") from None
    return Identity(name, private.read_bytes(), keys)


def write_site_keys(kits: Mapping[str, Path], names: Sequence[str]) -> None:
    """Make the missing private keys, one in each site's kit, and write all public ones into every kit."""
    require_cryptography()
    known = {}
    for name in names:
        path = kits[name] / SIGNING_KEY
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_atomically(path, new_signing_key(), 0o600)
        private = path.read_bytes()
        if len(private) != SEED:
            raise BadInput(
                SIGNING_KEY, str(path), "is damaged; remove it, provision again, and hand out all kits again"
            )
        known[name] = signing_public(private).hex()
    for name in names:
        write_json(kits[name] / SITE_KEYS, known)

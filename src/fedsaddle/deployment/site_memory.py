"""What a client remembers, on its own disk: every version in a file of its own, written whole or not at all.

The server says which version a task starts from and which ones may still be needed; so a crash on either side, at any
moment, leaves the version that the last checkpoint speaks of.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fedsaddle.atomic import write_atomically
from fedsaddle.errors import BadCheckpoint, BadMessage
from fedsaddle.federation.wire import Kinds, Message, pack, unpack

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGEST = hashlib.sha256().digest_size


class Versions(Protocol):
    """Where a client's memory lives."""

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        ...

    def write(self, version: str, record: Any) -> None:
        """Keep a record under a new version."""
        ...

    def keep_only(self, versions: set[str]) -> None:
        """Drop all others."""
        ...


@dataclass
class InMemory:
    """Versions in this process, for tests and for runs that need not survive it."""

    kept: dict[str, bytes] = field(default_factory=dict)

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        if version not in self.kept:
            raise BadCheckpoint(f"memory {version} is not there")
        return unpack(self.kept[version], kinds).record

    def write(self, version: str, record: Any) -> None:
        """Keep a record under a new version."""
        self.kept[version] = pack(Message({}, record))

    def keep_only(self, versions: set[str]) -> None:
        """Drop all others."""
        self.kept = {k: v for k, v in self.kept.items() if k in versions}


@dataclass(frozen=True)
class OnDisk:
    """Versions as files of one folder, each with its checksum."""

    folder: Path

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        path = self._path(version)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise BadCheckpoint(f"memory {version} is not there") from None
        if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
            raise BadCheckpoint(f"memory {version} is damaged (the checksum differs)")
        return unpack(memoryview(content)[_DIGEST:], kinds).record

    def write(self, version: str, record: Any) -> None:
        """Keep a record under a new version."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = pack(Message({}, record))
        write_atomically(self._path(version), hashlib.sha256(content).digest() + content)

    def keep_only(self, versions: set[str]) -> None:
        """Drop all others."""
        for path in self.folder.glob("*.memory"):
            if path.stem not in versions:
                path.unlink(missing_ok=True)

    def _path(self, version: str) -> Path:
        return self.folder / f"{safe_name(version)}.memory"


def safe_name(name: str) -> str:
    """A name that came from elsewhere, fit to be a file's."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise BadMessage(f"{name!r:.60} cannot be the name of a file")
    return name

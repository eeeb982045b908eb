"""A client's memory on the disk of its site: one file per version, written atomically.

The server names the version that a task starts from and the versions to keep. So the version of the last checkpoint
survives a crash of either side at any time.
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
    """The store of a client's memory."""

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        ...

    def write(self, version: str, record: Any) -> None:
        """Store a record under a new version."""
        ...

    def keep_only(self, versions: set[str]) -> None:
        """Delete all other versions."""
        ...


@dataclass
class InMemory:
    """Versions in this process, for tests and for runs that are not resumed."""

    kept: dict[str, bytes] = field(default_factory=dict)

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        if version not in self.kept:
            raise BadCheckpoint(f"memory {version} does not exist")
        return unpack(self.kept[version], kinds).record

    def write(self, version: str, record: Any) -> None:
        """Store a record under a new version."""
        self.kept[version] = pack(Message({}, record))

    def keep_only(self, versions: set[str]) -> None:
        """Delete all other versions."""
        self.kept = {k: v for k, v in self.kept.items() if k in versions}


@dataclass(frozen=True)
class OnDisk:
    """Versions as files in one folder, each with a checksum."""

    folder: Path

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        path = self._path(version)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise BadCheckpoint(f"memory {version} does not exist") from None
        if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
            raise BadCheckpoint(f"memory {version} is damaged (the checksum differs)")
        return unpack(memoryview(content)[_DIGEST:], kinds).record

    def write(self, version: str, record: Any) -> None:
        """Store a record under a new version."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = pack(Message({}, record))
        write_atomically(self._path(version), hashlib.sha256(content).digest() + content)

    def keep_only(self, versions: set[str]) -> None:
        """Delete all other versions."""
        for path in self.folder.glob("*.memory"):
            if path.stem not in versions:
                path.unlink(missing_ok=True)

    def _path(self, version: str) -> Path:
        return self.folder / f"{safe_name(version)}.memory"


def safe_name(name: str) -> str:
    """Check that a received name is safe as a file name."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise BadMessage(f"{name!r:.60} is not a valid file name")
    return name

"""Finds the files of the public data sets on this machine and checks them. Nothing is downloaded.

A file is looked for in the folder of the environment variable FEDSADDLE_DATA, then in the cache folder
(`$XDG_CACHE_HOME/fedsaddle`, or `~/.cache/fedsaddle`), unpacked or with `.gz` or `.xz` at the end of its name.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from fedsaddle.errors import BadInput, MissingData

PACKED = ("", ".gz", ".xz")

_verified: set[tuple[str, int, int]] = set()


@dataclass(frozen=True)
class PublicFile:
    """A file of a public data set; `sha256` is that of the unpacked bytes, as packed ones vary."""

    folder: str
    name: str
    sha256: str
    source: str
    inside: str = ""  # the folder that an archive unpacks to, where the file may lie as well

    def read(self) -> bytes:
        """The unpacked, verified bytes."""
        path = self.find()
        data = unpack(path)
        stat = path.stat()
        key = (str(path), stat.st_size, stat.st_mtime_ns)
        if key not in _verified:
            self._verify(path, data)
            _verified.add(key)
        return data

    def find(self) -> Path:
        """Where the file is; raises `MissingData` with the places and the source."""
        for root in search_folders():
            for folder in dict.fromkeys((root / self.folder, root / self.folder / self.inside)):
                for ending in PACKED:
                    path = folder / f"{self.name}{ending}"
                    if path.is_file():
                        return path
        raise MissingData(self._how_to_get())

    def _how_to_get(self) -> str:
        chosen = os.environ.get("FEDSADDLE_DATA")
        first = str(Path(chosen) / self.folder) if chosen else "$FEDSADDLE_DATA (not set)"
        return (
            f"{self.name} (or with .gz or .xz at the end) is in neither {first} nor {cache_folder() / self.folder}; "
            f"get it from {self.source}, put it in a folder '{self.folder}' "
            f"and set FEDSADDLE_DATA to the folder above (SHA-256 of the unpacked file: {self.sha256})"
        )

    def _verify(self, path: Path, data: bytes) -> None:
        digest = hashlib.sha256(data).hexdigest()
        if digest != self.sha256:
            remedy = f"the unpacked SHA-256 should be {self.sha256}; get the file again from {self.source}"
            raise BadInput(f"SHA-256 of {path}", digest, remedy)


def search_folders() -> list[Path]:
    """The folders that are searched, in order."""
    chosen = os.environ.get("FEDSADDLE_DATA")
    return ([Path(chosen)] if chosen else []) + [cache_folder()]


def cache_folder() -> Path:
    """The user's cache folder of FedSaddle; it need not exist."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedsaddle"


def unpack(path: Path) -> bytes:
    """The bytes of a file, decompressed if its name ends in `.gz` or `.xz`."""
    data = path.read_bytes()
    if path.suffix not in PACKED[1:]:
        return data
    kind = "gzip" if path.suffix == ".gz" else "xz"
    try:
        return gzip.decompress(data) if kind == "gzip" else lzma.decompress(data)
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise BadInput("packed file", str(path), f"is a damaged {kind} file ({error}); get it again") from error

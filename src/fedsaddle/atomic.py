"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedsaddle.errors import CannotWrite

DISK_FAILS = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC), errno.EIO, errno.EFBIG)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # Windows has the second one only
_DRAFT = re.compile(r"\..+\.(\d+)\.tmp")  # with the number of the process that wrote it
_LONGEST = 150  # characters of a file's name in the name of its draft, which must not be too long


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """The file appears with all of its content, or not at all, even if the power fails.

    A symbolic link at that place is replaced, not followed. `mode` are the rights of the file, less those that the
    user's mask takes away.

    Raises:
        CannotWrite: if the disk is full or fails; what was there before is still there.
    """
    draft = path.with_name(f".{path.name[:_LONGEST]}.{os.getpid()}.tmp")
    try:
        with disk_failures(path):
            with suppress(FileNotFoundError):
                os.unlink(draft)  # of an earlier process with this number
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, mode), "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove what killed processes left half-written in a folder: drafts, and tensors of a checkpoint without its JSON.

    Only the process that holds the folder's lock may do so. Drafts of processes that still run are kept: `fedsaddle
    report` writes without the lock.
    """
    for place in (folder, folder / "checkpoints", folder / "trials"):
        if place.is_symlink() or not place.is_dir():
            continue
        for path in place.iterdir():
            draft = _DRAFT.fullmatch(path.name)
            orphan = place.name == "checkpoints" and path.suffix == ".safetensors"
            if (draft and not _runs(int(draft[1]))) or (orphan and not path.with_suffix(".json").exists()):
                with suppress(OSError):
                    path.unlink()


def _runs(process: int) -> bool:
    """Whether another process with that number runs on this machine."""
    try:
        if process != os.getpid():
            os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return process != os.getpid()


def write_json(path: Path, content: Any, mode: int = 0o666) -> None:
    """JSON, atomically."""
    write_atomically(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode(), mode)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file, whole or not at all; a symbolic link is not followed (OSError with ELOOP).

    Raises:
        CannotWrite: if the disk is full or fails; the file then ends as before.
    """
    with disk_failures(path):
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NO_LINKS, 0o666)
        try:
            before = os.fstat(number).st_size
            try:
                _write_all(number, f"{line}\n".encode())
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(number, before)
                raise
        finally:
            os.close(number)


def _write_all(number: int, content: bytes) -> None:
    while content:
        content = content[os.write(number, content) :]


def is_disk_failure(reason: BaseException) -> bool:
    """Whether an error says that a disk is full or fails."""
    return isinstance(reason, CannotWrite) or (isinstance(reason, OSError) and reason.errno in DISK_FAILS)


@contextmanager
def disk_failures(path: Path) -> Iterator[None]:
    """Turn the errors of a disk that is full or fails into `CannotWrite`."""
    try:
        yield
    except OSError as reason:
        if reason.errno in DISK_FAILS:
            raise CannotWrite(path, reason) from reason
        raise

"""Files that only their owner may read, from the moment they are made."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OTHERS = 0o077  # the rights of the group and of everybody else
_one_at_a_time = threading.RLock()  # the mask is that of the whole process


@contextmanager
def only_for_owner() -> Iterator[None]:
    """Make all files and folders that are created inside for the owner alone: 0600 and 0700."""
    with _one_at_a_time:
        before = os.umask(OTHERS)
        try:
            yield
        finally:
            os.umask(before)


def take_from_others(folder: Path) -> list[Path]:
    """Take the rights of others from a folder and all in it; return the files and folders where they had some.

    Symbolic links are not followed. Windows has other rights, which are not looked at.
    """
    if os.name != "posix" or not folder.exists():
        return []
    found = []
    for path in (folder, *sorted(folder.rglob("*"))):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & OTHERS:
            found.append(path)
            path.chmod(stat.S_IMODE(mode) & ~OTHERS)
    return found

"""Folders to write to: checked before the work begins, so that nothing is computed for nothing."""

from __future__ import annotations

import os
from pathlib import Path

from fedsaddle.atomic import disk_failures
from fedsaddle.errors import BadInput

_LONGEST_INSIDE = "x" * 100  # stands for the longest name of a file in the folder, with its draft's ending


def require_path(key: str, path: Path) -> None:
    """Refuse a path that no file can have: too long, through too many links, or with a zero character."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except (OSError, ValueError) as reason:
        why = reason.strerror if isinstance(reason, OSError) else reason
        raise BadInput(key, str(path), f"is no path that can be used ({why}); choose another") from None


def require_folder(key: str, path: Path) -> None:
    """Refuse a folder that cannot be made or written to: a file is in its way, or a right is missing."""
    require_path(key, path)
    require_path(key, path / _LONGEST_INSIDE)
    nearest = path
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        what = "is a broken link" if nearest.is_symlink() else "is a file"
        where = "" if nearest == path else f"'{nearest}' "
        raise BadInput(key, str(path), f"cannot write there ({where}{what}); choose another folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise BadInput(key, str(path), f"cannot write there (no permission in '{nearest}'); choose another folder")


def make_folder(key: str, path: Path) -> None:
    """Make the folder, with those above it, if it is not there."""
    require_folder(key, path)
    try:
        with disk_failures(path):
            path.mkdir(parents=True, exist_ok=True)
    except OSError as reason:
        raise BadInput(key, str(path), f"cannot write there ({reason.strerror}); choose another folder") from None

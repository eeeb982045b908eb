"""The lock of a run's folder: one process at a time writes to it.

The operating system releases the lock when the process ends for any reason, so that a file left behind by a killed
process blocks nobody.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadInput
from fedsaddle.files import disk_failures, remove_leftovers
from fedsaddle.text import visible

LOCK = ".lock"  # in a run's folder; holds the process and the machine of who has it
_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK)  # any other: the file system has no locks
_FAR = 1 << 30  # the locked byte on Windows, behind the text, which others may then read


class FolderInUse(BadInput):
    """A folder that another process writes to."""


@contextmanager
def only_writer(folder: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock of an existing folder, and remove what killed processes left there.

    Args:
        folder: the folder of the run.
        seconds: how long to wait for another process to end.

    Raises:
        FolderInUse: if another process has the lock; names it.
    """
    path, until = folder / LOCK, time.monotonic() + seconds
    while (number := _take(path)) is None:
        if time.monotonic() >= until:
            raise in_use(folder)
        time.sleep(0.2)
    try:
        files = RunFiles(folder)
        remove_leftovers((folder, files.checkpoints_folder, files.trials), files.checkpoints_folder)
        yield
    finally:
        try:
            if sys.platform != "win32":  # an open file cannot be removed there
                with suppress(OSError):
                    os.unlink(path)
        finally:
            os.close(number)


def require_unused(folder: Path) -> None:
    """Raise `FolderInUse` if another process has the lock of the folder; write nothing."""
    try:
        number = os.open(folder / LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return
    try:
        if not lock_file(number):
            raise in_use(folder)
    finally:
        os.close(number)


def is_held(folder: Path) -> bool | None:
    """Whether a process holds the lock of the folder; None if it cannot be told. Takes no lock itself.

    To try the lock would keep out a run that begins in that moment, so the system is asked who has it, or, where it
    does not tell, whether the process that the file names still runs.
    """
    try:
        content = (folder / LOCK).read_bytes()[:400].decode("utf-8", "replace")
        number = os.stat(folder / LOCK).st_ino
    except OSError:
        return False
    words = content.split()
    if len(words) < 4 or words[0] != "process" or not words[1].isdigit():
        return None
    if words[3] != socket.gethostname() or sys.platform == "win32":  # where the file stays, and nobody tells
        return None
    try:
        listed = Path("/proc/locks").read_text(encoding="ascii", errors="replace")
    except OSError:
        return _runs(int(words[1]))
    return any(f":{number} " in line and " FLOCK " in line for line in listed.splitlines())


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def in_use(folder: Path) -> FolderInUse:
    """The complaint about a folder that another process writes to."""
    who = ""
    with suppress(OSError):
        who = visible((folder / LOCK).read_bytes()[:200].decode("utf-8", "replace").strip())
    remedy = f"another run ({who or 'of an unknown process'}) writes there; wait for its end, or choose another folder"
    return FolderInUse("out", str(folder), remedy)


def _take(path: Path) -> int | None:
    """The open and locked file, or None if another process has it."""
    try:
        with disk_failures(path):
            number = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    except OSError as reason:
        raise BadInput(
            "out", str(path.parent), f"cannot write there ({reason.strerror}); choose another folder"
        ) from None
    kept = False
    try:
        if not lock_file(number) or not _still_there(number, path):
            return None
        os.ftruncate(number, 0)
        with disk_failures(path):
            os.write(number, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        kept = True
        return number
    finally:
        if not kept:
            os.close(number)


def _still_there(number: int, path: Path) -> bool:
    """Whether the locked file is the one in the folder, not one that its last holder has just removed."""
    try:
        return os.path.samestat(os.fstat(number), os.stat(path))
    except FileNotFoundError:
        return False


if sys.platform == "win32":

    def lock_file(number: int) -> bool:
        """Lock a byte of the file; False if another process has it."""
        import msvcrt

        os.lseek(number, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        except OSError as reason:
            return reason.errno not in _TAKEN
        finally:
            os.lseek(number, 0, os.SEEK_SET)
        return True

else:

    def lock_file(number: int) -> bool:
        """Lock the file; False if another process has it."""
        import fcntl

        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as reason:
            return reason.errno not in _TAKEN
        return True

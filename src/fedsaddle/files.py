"""Files of runs: folders checked before the work begins, files written whole or not at all, and read with care."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fedsaddle.errors import BadInput, CannotWrite
from fedsaddle.text import shortened

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


def remove_leftovers(folders: Iterable[Path], checkpoints: Path) -> None:
    """Remove what killed processes left half-written: drafts, and tensors of a checkpoint without its JSON.

    Only the process that holds the lock of a run may do so. Drafts of processes that still run are kept: `fedsaddle
    report` writes without the lock.

    Args:
        folders: Where to look.
        checkpoints: The one of them with the checkpoints.
    """
    for place in folders:
        if place.is_symlink() or not place.is_dir():
            continue
        for path in place.iterdir():
            draft = _DRAFT.fullmatch(path.name)
            orphan = place == checkpoints and path.suffix == ".safetensors"
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


def write_json(path: Path, content: object, mode: int = 0o666) -> None:
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
    """Whether an error means that a disk is full or fails."""
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


Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]  # a value that JSON can hold
JsonObject = dict[str, Any]  # an object as it was read
Record = JsonObject  # of one round, in metrics.jsonl
MOST_BYTES = 1 << 30  # of a file that is read


def read_object(path: Path) -> Record:
    """The JSON object in a file.

    Raises:
        ValueError: if there is none, with the reason.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError("the file is too large")
        return _object(path.read_bytes())
    except OSError as reason:
        raise ValueError(reason.strerror or str(reason)) from None


def read_records(path: Path) -> tuple[list[Record], list[str]]:
    """The records of a metrics.jsonl, in the order of their rounds, and for each line that is none where and why."""
    records: list[Record] = []
    damage: list[str] = []
    if not path.exists():
        return records, damage
    lines = path.read_bytes().split(b"\n")
    last = len(lines)
    for number, line in enumerate(lines, 1):
        if not line and number == last:
            continue
        try:
            record = _object(line)
            _check_round(record, records)
        except ValueError as reason:
            cut = number == last  # without a line break at its end
            damage.append(f"line {number} of {path} is {'incomplete' if cut else 'damaged'} ({reason})")
        else:
            records.append(record)
    return records, damage


def _check_round(record: Record, before: list[Record]) -> None:
    done = record.get("round")
    if isinstance(done, bool) or not isinstance(done, int) or done < 0:
        raise ValueError("it has no round")
    if before and done <= before[-1]["round"]:
        raise ValueError(f"its round {done} is not after {before[-1]['round']}")


def _object(content: bytes) -> Record:
    try:
        value: object = json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    except ValueError as reason:
        raise ValueError(shortened(str(reason), 200)) from None
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")
    return value


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
    """Raise `BadInput` for a folder that cannot be made or written to: a file is in its way, or a right is missing."""
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

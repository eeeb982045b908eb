"""The folder that a run writes to: its records, its model and its progress; one process at a time writes to it.

The operating system releases the lock of a folder when the process ends for any reason, so that a file left behind by
a killed process blocks nobody.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadCheckpoint, BadInput, MissingData
from fedsaddle.files import (
    Record,
    append_line,
    disk_failures,
    make_folder,
    read_object,
    read_records,
    remove_leftovers,
    require_folder,
    write_atomically,
    write_json,
)
from fedsaddle.runs import figures
from fedsaddle.runs.checkpoints import Checkpoint, Checkpoints, RunIdentity, to_safetensors
from fedsaddle.text import visible

SECONDS = 1.0  # between two writings


@dataclass
class ProgressFile:
    """Writes the number of finished rounds, at most once a second. Errors of the disk are ignored."""

    path: Path
    rounds: int
    after: int = 0  # rounds of earlier processes
    resumed: bool = False
    sites: Callable[[], Mapping[str, str]] | None = None  # of a deployed run: which are up
    began: float = field(default_factory=time.time)
    next: float = 0.0

    def __call__(self, done: int, seconds: float, now: bool = False) -> None:
        """Update the number of finished rounds and their seconds; `now` writes in any case."""
        clock = time.monotonic()
        if not now and clock < self.next:
            return
        self.next = clock + SECONDS
        content: Record = {
            "round": done,
            "rounds": self.rounds,
            "seconds": round(seconds, 3),
            "began": self.began,  # this process, as a time of the clock
            "after": self.after,
            "resumed": self.resumed,
            "updated": time.time(),
        }
        write_progress(self.path, content if self.sites is None else {**content, "sites": dict(self.sites())})


def seconds_per_round(content: Mapping[str, object]) -> float | None:
    """The pace of the process that wrote the file; None before its first round has ended."""
    known = [content.get(key) for key in ("round", "after", "began", "updated")]
    done, after, began, updated = (float(v) if isinstance(v, int | float) else None for v in known)
    if done is None or after is None or began is None or updated is None:
        return None
    return (updated - began) / (done - after) if done > after and updated > began else None


def write_progress(path: Path, content: Record) -> None:
    """Write the file whole, but without waiting for the disk: after a power cut it may be missing."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    try:
        with open(os.open(draft, flags, 0o666), "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            os.unlink(draft)


@dataclass(frozen=True)
class RunFolder(RunFiles):
    """The folder that a run writes to."""

    def checkpoints(self, identity: RunIdentity) -> Checkpoints:
        """The checkpoints of that run."""
        return Checkpoints(self.checkpoints_folder, identity)

    def prepare(self, resume: bool) -> None:
        """Raise `BadInput` if the folder cannot be written to, or contains a run and `resume` is False."""
        require_folder("out", self.path)
        self.refuse_links()
        if self.holds_run and not resume:
            raise BadInput("out", str(self.path), "holds a run already; resume it, or choose another folder")

    def refuse_links(self) -> None:
        """Raise `BadInput` if a file of the run is a symbolic link; the folder itself may be one."""
        folders = [self.checkpoints_folder, self.baseline.path]
        own = (self.metrics, self.config, self.summary, self.model, self.split, self.table_config, self.agreed)
        logs = (self.log, self.columns, self.progress, self.track)
        others = (self.features, self.deployment, self.code, *logs, *folders)
        inside = (p for folder in folders if folder.is_dir() and not folder.is_symlink() for p in folder.iterdir())
        for path in (*own, *others, *inside):
            if path.is_symlink():
                remedy = (
                    f"'{path.relative_to(self.path)}' in it is a symbolic link; remove it, or choose another folder"
                )
                raise BadInput("out", str(self.path), remedy)

    def resume(
        self, identity: RunIdentity, every: int, due: Callable[[int], bool], clients: Sequence[str] = ()
    ) -> tuple[Checkpoint | None, list[str]]:
        """The newest valid checkpoint, and warnings of newer ones and of records that are damaged or missing.

        Records after the checkpoint are removed. `every` is the number of rounds between evaluations.
        """
        found, refused = self.checkpoints(identity).newest()
        warnings = [f"{reason}; using the checkpoint before it" for reason in refused]
        records, damaged = read_records(self.metrics)
        damage = [f"{what}; it is left out" for what in damaged]
        done = found.rounds if found else 0
        if found is not None and not damage:
            damage = _missing_records(self.metrics.name, records, found, every)
        self.begin([r for r in records if r["round"] <= done and due(r["round"])], clients)
        return found, [*warnings, *damage]

    def begin(self, records: list[Record], clients: Sequence[str] = ()) -> None:
        """Create the folder and write these records; `clients` are the names in the table."""
        make_folder("out", self.path)
        try:
            write_atomically(self.metrics, "".join(json.dumps(record) + "\n" for record in records).encode())
            if records or self.columns.exists():
                figures.write_columns(self.columns, records, clients)
        except OSError as reason:
            remedy = f"cannot write there ({reason.strerror}); choose another folder"
            raise BadInput("out", str(self.path), remedy) from None

    def append(self, record: Record, clients: Sequence[str] = ()) -> None:
        """Append a record; `clients` are the names in the table."""
        try:
            append_line(self.metrics, json.dumps(record))
            figures.append_columns(self.columns, record, clients)
        except OSError as reason:
            if reason.errno != errno.ELOOP:
                raise
            name = Path(reason.filename or self.metrics).name
            remedy = f"{name!r} in it has become a symbolic link; remove it, or choose another folder"
            raise BadInput("out", str(self.path), remedy) from None

    def write_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Write the model's state dict."""
        write_atomically(self.model, to_safetensors(tensors))

    def write_config(self, config: Record, split: Record | None = None) -> None:
        """Write the config and, for a simulation, the split."""
        write_json(self.config, config)
        if split is not None:
            write_atomically(self.split, json.dumps(split).encode())

    def read_config(self) -> Record | None:
        """The config of the run in the folder; None if the run ended before it wrote one."""
        if not self.config.exists():
            if self.holds_run:
                return None
            raise MissingData(f"--out = {str(self.path)!r}: no run to resume there; leave out --resume to start one")
        try:
            return read_object(self.config)
        except ValueError as reason:
            raise BadCheckpoint(f"{self.config} is damaged ({reason}); correct it, or choose another --out") from None


def _missing_records(name: str, records: list[Record], checkpoint: Checkpoint, every: int) -> list[str]:
    """A warning about evaluations that the checkpoint counted and the file no longer holds."""
    counted = checkpoint.notes.get("evaluations")
    if not counted or counted["every"] != every:  # with other rounds between evaluations, some are dropped on purpose
        return []
    there = sum(r["round"] <= checkpoint.rounds and r["round"] % every == 0 for r in records)
    if there == counted["count"]:
        return []
    told = f"{name} holds {there} of the {counted['count']} evaluations up to round {checkpoint.rounds}"
    return [f"{told}: it was changed after the run wrote it, and curves and tables lack the rest"]


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
    """Whether a process holds the lock of the folder; None if that is not known. Takes no lock itself.

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
    if words[3] != socket.gethostname() or sys.platform == "win32":  # where the file stays, and the holder is not known
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

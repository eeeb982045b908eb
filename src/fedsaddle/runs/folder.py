"""The folder that a run writes to: its records, its model and its progress."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadCheckpoint, BadInput, MissingData
from fedsaddle.files import (
    Record,
    append_line,
    make_folder,
    read_object,
    read_records,
    require_folder,
    write_atomically,
    write_json,
)
from fedsaddle.runs import figures
from fedsaddle.runs.checkpoints import Checkpoint, Checkpoints, RunIdentity, to_safetensors

SECONDS = 1.0  # between two writings


@dataclass
class ProgressFile:
    """Writes the rounds that are done, at most once a second. A file that cannot be written is left as it is."""

    path: Path
    rounds: int
    after: int = 0  # rounds of earlier processes
    resumed: bool = False
    sites: Callable[[], Mapping[str, str]] | None = None  # of a deployed run: which are up
    began: float = field(default_factory=time.time)
    next: float = 0.0

    def __call__(self, done: int, seconds: float, now: bool = False) -> None:
        """So many rounds are done, in so many seconds; `now` writes in any case."""
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

"""The folder of a run: metrics.jsonl, checkpoints, the model, a summary and plots."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors.torch import save as save_tensors

from fedsaddle.errors import BadInput
from fedsaddle.runs.checkpoints import Checkpoint, Folder, write_atomically, write_json
from fedsaddle.runs.result import Result, read_history


@dataclass(frozen=True)
class RunFolder:
    """Where a run writes, and how often it saves."""

    path: Path
    fingerprint: str
    checkpoint_every: int

    @property
    def checkpoints(self) -> Folder:
        """Its checkpoints."""
        return Folder(self.path / "checkpoints", self.fingerprint)

    @property
    def metrics(self) -> Path:
        """Its records, one a line."""
        return self.path / "metrics.jsonl"


@dataclass
class Output:
    """Writes what a run has to say; without a folder it says nothing."""

    folder: RunFolder | None
    resume: bool
    refused: list[str] = field(default_factory=list)

    @classmethod
    def to(cls, folder: RunFolder | None, resume: bool) -> Output:
        """Refuse to write over another run."""
        if folder is None:
            if resume:
                raise BadInput("resume", True, "say with `out` which folder to resume")
            return cls(None, False)
        if folder.metrics.exists() and not resume:
            raise BadInput("out", str(folder.path), "holds a run already; resume it, or choose another folder")
        return cls(folder, resume)

    def resumed(self, due: Callable[[int], bool]) -> Checkpoint | None:
        """The checkpoint to go on from; notes why newer ones were refused, and keeps the records that are due."""
        if self.folder is None:
            return None
        found = None
        if self.resume:
            found, self.refused = self.folder.checkpoints.newest()
        kept = read_history(self.folder.metrics, found.rounds if found else 0)
        text = "".join(json.dumps(record) + "\n" for record in kept if due(record["round"]))
        try:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder.metrics, text.encode())
        except OSError as reason:
            remedy = f"cannot be written to ({reason.strerror}); choose another folder"
            raise BadInput("out", str(self.folder.path), remedy) from None
        return found

    def kept_history(self, rounds: int) -> list[dict[str, Any]]:
        """The records up to the checkpoint."""
        return [] if self.folder is None else read_history(self.folder.metrics, rounds)

    def record(self, record: dict[str, Any]) -> None:
        """One more line."""
        if self.folder is not None:
            with open(self.folder.metrics, "a") as out:
                out.write(json.dumps(record) + "\n")

    def due(self, done: int) -> bool:
        """Whether it is time for a checkpoint."""
        return self.folder is not None and done % self.folder.checkpoint_every == 0

    def save(self, done: int, server: Any, memory: dict[int, Any], notes: dict[str, Any]) -> None:
        """A checkpoint."""
        if self.folder is not None:
            self.folder.checkpoints.save(done, server, memory, notes)

    def finish(self, result: Result) -> None:
        """The model for plain PyTorch, and the summary."""
        if self.folder is None:
            return
        write_atomically(self.folder.path / "model.safetensors", save_tensors(result.state_dict()))
        write_json(self.folder.path / "summary.json", result.summary)

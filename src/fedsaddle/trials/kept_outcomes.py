"""Outcomes of trials in their folders, so that a search that goes on sees what it saw before.

A trial runs to a few rounds first and later to all of them, in one folder: what came of the few rounds is kept beside
the run, since the run itself has moved on.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.atomic import write_atomically, write_json
from fedsaddle.data.federated import FederatedData
from fedsaddle.errors import BadCheckpoint
from fedsaddle.runs.checkpoints import to_safetensors
from fedsaddle.runs.fingerprint import fingerprint
from fedsaddle.shown import visible
from fedsaddle.stored import read_object
from fedsaddle.writable import make_folder

FIELDS = ("rounds", "selected_round", "seconds", "failure")


@dataclass(frozen=True)
class Kept:
    """The files of a trial's outcome after some rounds, and what it belongs to."""

    folder: Path
    rounds: int
    of: str  # fingerprint of algorithm, rows and seed, and the aim

    @classmethod
    def at(cls, folder: Path, rounds: int, algorithm: Algorithm[Any], data: FederatedData, aim: str, seed: int) -> Kept:
        """The files of a trial with that algorithm on those rows."""
        assert data.validation is not None
        both = [fingerprint(algorithm, rows, seed) for rows in (data.train, data.validation)]
        return cls(folder, rounds, "-".join([*both, aim]))

    @property
    def about(self) -> Path:
        """Its figures."""
        return self.folder / f"after-{self.rounds}.json"

    @property
    def tensors(self) -> Path:
        """Its model and scores."""
        return self.about.with_suffix(".safetensors")

    def read(self) -> dict[str, Any] | None:
        """The fields of the outcome, None if there is none yet.

        Raises:
            BadCheckpoint: if it is of another search, or damaged.
        """
        if not self.about.exists():
            return None
        try:
            about = read_object(self.about)
        except ValueError as reason:
            raise self._damaged(self.about, reason) from reason
        if about.get("of") != self.of:
            raise BadCheckpoint(
                f"{visible(self.folder)} is of a search with other rows, options or seed; choose another --out"
            )
        found = {field: about.get(field) for field in FIELDS}
        if about.get("failure"):
            return found
        try:
            tensors = load_file(self.tensors)
            return {**found, "model": tensors["model"], "scores": tensors["scores"].numpy()}
        except (OSError, SafetensorError, KeyError) as reason:
            raise self._damaged(self.tensors, reason) from reason

    def _damaged(self, path: Path, reason: Exception) -> BadCheckpoint:
        return BadCheckpoint(f"{visible(path)} cannot be read ({reason}); remove {visible(self.folder)} and resume")

    def write(self, outcome: Any) -> None:
        """Keep an outcome."""
        make_folder("out", self.folder)
        if outcome.model is not None:
            tensors = {"model": outcome.model.contiguous(), "scores": torch.from_numpy(outcome.scores)}
            write_atomically(self.tensors, to_safetensors(tensors))
        write_json(self.about, {"of": self.of, **{field: getattr(outcome, field) for field in FIELDS}})

"""Outcomes of trials in their folders, and the time used, so that a search that goes on decides as it did before.

A trial runs to a few rounds first and later to all of them, in one folder: what came of the few rounds is kept beside
the run, since the run itself has moved on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.data.federated import FederatedData
from fedsaddle.errors import BadCheckpoint
from fedsaddle.files import make_folder, read_object, write_atomically, write_json
from fedsaddle.runs.checkpoints import fingerprint, to_safetensors
from fedsaddle.text import visible

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


@dataclass
class Clock:
    """The seconds that a search has used in all its processes, and the trials that have begun, kept in its folder.

    Once the budget is used up no other trial begins, in this process or in one that resumes the search; those that had
    begun run to their end. So a search that its budget ended chooses the same model, however often it was killed.
    """

    path: Path
    budget: float | None
    before: float = 0.0  # seconds of earlier processes
    ended: float | None = None  # the budget that was used up
    begun: set[str] = field(default_factory=set)  # names of trials, with their rounds
    _began: float = field(default_factory=time.monotonic)
    _kept: float = 0.0

    @classmethod
    def at(cls, folder: Path, budget: float | None) -> Clock:
        """The clock of the search in a folder.

        Raises:
            BadCheckpoint: if its file is damaged.
        """
        path = folder / "clock.json"
        if not path.exists():
            return cls(path, budget)
        try:
            stored = read_object(path)
            ended = None if stored["ended"] is None else float(stored["ended"])
            return cls(path, budget, float(stored["seconds"]), ended, set(map(str, stored["begun"])))
        except (ValueError, KeyError, TypeError) as reason:
            remedy = "remove it, and the budget starts anew"
            raise BadCheckpoint(f"{visible(path)} cannot be read ({reason}); {remedy}") from reason

    @property
    def seconds(self) -> float:
        """Used so far."""
        return self.before + time.monotonic() - self._began

    def may_begin(self, name: str) -> bool:
        """Whether a trial may begin, or go on if it had begun; it counts as begun from here on."""
        if name in self.begun:
            return True
        if self._over():
            return False
        self.begun.add(name)
        self.keep()
        return True

    def _over(self) -> bool:
        if self.budget is None:
            return False
        if (self.ended is None or self.ended < self.budget) and self.seconds > self.budget:
            self.ended = self.budget
            self.keep()
        return self.ended is not None and self.ended >= self.budget

    def tick(self) -> None:
        """Keep the seconds used now and then, so that a killed process loses few of them."""
        if time.monotonic() - self._kept > 1.0:
            self.keep()

    def keep(self) -> None:
        """Write the file."""
        self._kept = time.monotonic()
        make_folder("out", self.path.parent)
        write_json(self.path, {"seconds": round(self.seconds, 3), "ended": self.ended, "begun": sorted(self.begun)})

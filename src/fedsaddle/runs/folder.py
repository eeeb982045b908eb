"""The folder of a run: the only place that knows the names of its files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedsaddle.atomic import write_atomically, write_json
from fedsaddle.errors import BadCheckpoint, BadInput, MissingData
from fedsaddle.runs.checkpoints import Checkpoint, Checkpoints, to_safetensors

Record = dict[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """Where a run writes."""

    path: Path

    def checkpoints(self, fingerprint: str) -> Checkpoints:
        """The checkpoints of the run with that fingerprint."""
        return Checkpoints(self.path / "checkpoints", fingerprint)

    @property
    def metrics(self) -> Path:
        """Its records, one a line."""
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> Path:
        """The config as it was run, with every default."""
        return self.path / "config.json"

    @property
    def summary(self) -> Path:
        """The final figures and totals."""
        return self.path / "summary.json"

    @property
    def model(self) -> Path:
        """The model for plain PyTorch."""
        return self.path / "model.safetensors"

    @property
    def split(self) -> Path:
        """Who holds which rows, in numbers."""
        return self.path / "split.json"

    @property
    def table_config(self) -> Path:
        """The config that a run on a table of one's own has made up."""
        return self.path / "fedsaddle.toml"

    @property
    def agreed(self) -> Path:
        """What server and sites agreed on before the first round of a deployed run."""
        return self.path / "agreed.json"

    @property
    def deployment(self) -> Path:
        """The name under which server and sites know a deployed run."""
        return self.path / "deployment.json"

    @property
    def baseline(self) -> RunFolder:
        """The run that this one is compared with."""
        return RunFolder(self.path / "fedavg")

    def picture(self, name: str) -> Path:
        """A plot of that name."""
        return self.path / f"{name}.png"

    @property
    def holds_run(self) -> bool:
        """Whether a run has begun here."""
        return self.metrics.exists()

    def prepare(self, resume: bool) -> None:
        """Refuse to write over another run."""
        if self.holds_run and not resume:
            raise BadInput("out", str(self.path), "holds a run already; resume it, or choose another folder")

    def resume(self, fingerprint: str, due: Callable[[int], bool]) -> tuple[Checkpoint | None, list[str]]:
        """The newest good checkpoint, and why newer ones were refused; its records are those that are due."""
        found, refused = self.checkpoints(fingerprint).newest()
        self.begin([r for r in self.history(found.rounds if found else 0) if due(r["round"])])
        return found, refused

    def begin(self, records: list[Record]) -> None:
        """The folder with these records in it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.metrics, "".join(json.dumps(record) + "\n" for record in records).encode())
        except OSError as reason:
            remedy = f"cannot be written to ({reason.strerror}); choose another folder"
            raise BadInput("out", str(self.path), remedy) from None

    def history(self, most_rounds: int | None = None) -> list[Record]:
        """Its records, without a last line that was cut off and those after `most_rounds`."""
        return read_history(self.metrics, most_rounds)

    def append(self, record: Record) -> None:
        """One more line."""
        with open(self.metrics, "a") as out:
            out.write(json.dumps(record) + "\n")

    def write_model(self, tensors: Mapping[str, Tensor]) -> None:
        """The model, by the names of its parameters."""
        write_atomically(self.model, to_safetensors(tensors))

    def write_summary(self, summary: Record) -> None:
        """The final figures."""
        write_json(self.summary, summary)

    def write_config(self, config: Record, split: Record | None = None) -> None:
        """What is run and, in a simulation, who holds which rows."""
        write_json(self.config, config)
        if split is not None:
            write_atomically(self.split, json.dumps(split).encode())

    def read_config(self) -> Record | None:
        """The config of the run that has begun here; None where it ended before it could write one."""
        if not self.config.exists():
            if self.holds_run:
                return None
            raise MissingData(f"--out = {str(self.path)!r}: no run to resume there; leave out --resume to begin one")
        try:
            said: Record = json.loads(self.config.read_text())
        except (ValueError, OSError) as reason:
            raise BadCheckpoint(f"{self.config} is damaged ({reason}); put it right, or choose another --out") from None
        return said

    def read_summary(self) -> Record:
        """The summary of a finished run."""
        if not self.summary.exists() or not self.history():
            raise MissingData(f"{str(self.path)!r}: holds no finished run (no summary.json or metrics.jsonl)")
        try:
            said: Record = json.loads(self.summary.read_text())
        except ValueError as reason:
            raise BadInput("folders", str(self.path), f"has a damaged summary.json ({reason})") from None
        if "ledger" not in said:
            raise MissingData(f"{str(self.path)!r}: holds no finished run (it {said.get('stopped', 'is unknown')})")
        return said


def read_history(path: Path, most_rounds: int | None = None) -> list[Record]:
    """The records of a metrics.jsonl, without a last line that was cut off and those after `most_rounds`."""
    records: list[Record] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except ValueError:
            break
        if most_rounds is not None and record["round"] > most_rounds:
            break
        records.append(record)
    return records

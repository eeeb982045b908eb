"""The folder of a run and the names of its files."""

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
    """The folder that a run writes to."""

    path: Path

    def checkpoints(self, fingerprint: str) -> Checkpoints:
        """The checkpoints of the run with that fingerprint."""
        return Checkpoints(self.path / "checkpoints", fingerprint)

    @property
    def metrics(self) -> Path:
        """The evaluation records, one per line."""
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> Path:
        """The config of the run, with all defaults."""
        return self.path / "config.json"

    @property
    def summary(self) -> Path:
        """The final figures and totals."""
        return self.path / "summary.json"

    @property
    def model(self) -> Path:
        """The model's state dict, for plain PyTorch."""
        return self.path / "model.safetensors"

    @property
    def split(self) -> Path:
        """Row and class counts per client."""
        return self.path / "split.json"

    @property
    def table_config(self) -> Path:
        """The config that was generated for a run on your own table."""
        return self.path / "fedsaddle.toml"

    @property
    def agreed(self) -> Path:
        """The encoding that server and sites of a deployed run share."""
        return self.path / "agreed.json"

    @property
    def deployment(self) -> Path:
        """The name of a deployed run at server and sites."""
        return self.path / "deployment.json"

    @property
    def baseline(self) -> RunFolder:
        """The folder of the baseline run."""
        return RunFolder(self.path / "fedavg")

    def picture(self, name: str) -> Path:
        """The file of a plot."""
        return self.path / f"{name}.png"

    @property
    def holds_run(self) -> bool:
        """Whether the folder contains a run."""
        return self.metrics.exists()

    def prepare(self, resume: bool) -> None:
        """Raise `BadInput` if the folder contains a run and `resume` is False."""
        if self.holds_run and not resume:
            raise BadInput("out", str(self.path), "holds a run already; resume it, or choose another folder")

    def resume(self, fingerprint: str, due: Callable[[int], bool]) -> tuple[Checkpoint | None, list[str]]:
        """The newest valid checkpoint, and why newer ones were refused; later records are removed."""
        found, refused = self.checkpoints(fingerprint).newest()
        self.begin([r for r in self.history(found.rounds if found else 0) if due(r["round"])])
        return found, refused

    def begin(self, records: list[Record]) -> None:
        """Create the folder and write these records."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.metrics, "".join(json.dumps(record) + "\n" for record in records).encode())
        except OSError as reason:
            remedy = f"cannot write there ({reason.strerror}); choose another folder"
            raise BadInput("out", str(self.path), remedy) from None

    def history(self, most_rounds: int | None = None) -> list[Record]:
        """The records up to `most_rounds`, without an incomplete last line."""
        return read_history(self.metrics, most_rounds)

    def append(self, record: Record) -> None:
        """Append a record."""
        with open(self.metrics, "a") as out:
            out.write(json.dumps(record) + "\n")

    def write_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Write the model's state dict."""
        write_atomically(self.model, to_safetensors(tensors))

    def write_summary(self, summary: Record) -> None:
        """Write the summary."""
        write_json(self.summary, summary)

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
            config: Record = json.loads(self.config.read_text())
        except (ValueError, OSError) as reason:
            raise BadCheckpoint(f"{self.config} is damaged ({reason}); correct it, or choose another --out") from None
        return config

    def read_summary(self) -> Record:
        """The summary of a finished run."""
        if not self.summary.exists() or not self.history():
            raise MissingData(f"{str(self.path)!r}: holds no finished run (no summary.json or metrics.jsonl)")
        try:
            summary: Record = json.loads(self.summary.read_text())
        except ValueError as reason:
            raise BadInput("folders", str(self.path), f"has a damaged summary.json ({reason})") from None
        if "ledger" not in summary:
            raise MissingData(f"{str(self.path)!r}: holds no finished run (it {summary.get('stopped', 'is unknown')})")
        return summary


def read_history(path: Path, most_rounds: int | None = None) -> list[Record]:
    """The records of a metrics.jsonl up to `most_rounds`, without an incomplete last line."""
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

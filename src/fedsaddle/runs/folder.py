"""The folder of a run and the names of its files."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from fedsaddle.atomic import append_line, write_atomically, write_json
from fedsaddle.errors import BadCheckpoint, BadInput, MissingData
from fedsaddle.runs import progress_file
from fedsaddle.runs.checkpoints import Checkpoint, Checkpoints, to_safetensors
from fedsaddle.runs.fingerprint import Identity
from fedsaddle.stored import Record as Record
from fedsaddle.stored import read_object, read_records
from fedsaddle.tracking import columns, track_file
from fedsaddle.writable import make_folder, require_folder


@dataclass(frozen=True)
class RunFolder:
    """The folder that a run writes to."""

    path: Path

    def checkpoints(self, identity: Identity) -> Checkpoints:
        """The checkpoints of that run."""
        return Checkpoints(self.path / "checkpoints", identity)

    @property
    def metrics(self) -> Path:
        """The evaluation records, one per line."""
        return self.path / "metrics.jsonl"

    @property
    def columns(self) -> Path:
        """The same records as a table, for spreadsheets."""
        return self.path / columns.FILE

    @property
    def progress(self) -> Path:
        """The rounds that are done, also between evaluations."""
        return self.path / progress_file.FILE

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
    def features(self) -> Path:
        """How each feature is made from a column of a table."""
        return self.path / "features.json"

    @property
    def deployment(self) -> Path:
        """The name of a deployed run at server and sites."""
        return self.path / "deployment.json"

    @property
    def code(self) -> Path:
        """Digests of the own code that computed the run."""
        return self.path / "code.json"

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
        """Raise `BadInput` if the folder cannot be written to, or contains a run and `resume` is False."""
        require_folder("out", self.path)
        self.refuse_links()
        if self.holds_run and not resume:
            raise BadInput("out", str(self.path), "holds a run already; resume it, or choose another folder")

    def refuse_links(self) -> None:
        """Raise `BadInput` if a file of the run is a symbolic link; the folder itself may be one."""
        folders = [self.path / "checkpoints", self.baseline.path]
        own = (self.metrics, self.config, self.summary, self.model, self.split, self.table_config, self.agreed)
        logs = (self.path / "log.txt", self.columns, self.progress, self.path / track_file.FILE)
        others = (self.features, self.deployment, self.code, *logs, *folders)
        inside = (p for folder in folders if folder.is_dir() and not folder.is_symlink() for p in folder.iterdir())
        for path in (*own, *others, *inside):
            if path.is_symlink():
                remedy = (
                    f"'{path.relative_to(self.path)}' in it is a symbolic link; remove it, or choose another folder"
                )
                raise BadInput("out", str(self.path), remedy)

    def resume(
        self, identity: Identity, every: int, due: Callable[[int], bool], clients: Sequence[str] = ()
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
                columns.write_columns(self.columns, records, clients)
        except OSError as reason:
            remedy = f"cannot write there ({reason.strerror}); choose another folder"
            raise BadInput("out", str(self.path), remedy) from None

    def history(self, most_rounds: int | None = None) -> list[Record]:
        """The records up to `most_rounds`, without damaged lines."""
        return read_history(self.metrics, most_rounds)

    def append(self, record: Record, clients: Sequence[str] = ()) -> None:
        """Append a record; `clients` are the names in the table."""
        try:
            append_line(self.metrics, json.dumps(record))
            columns.append_columns(self.columns, record, clients)
        except OSError as reason:
            if reason.errno != errno.ELOOP:
                raise
            name = Path(reason.filename or self.metrics).name
            remedy = f"{name!r} in it has become a symbolic link; remove it, or choose another folder"
            raise BadInput("out", str(self.path), remedy) from None

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
            return read_object(self.config)
        except ValueError as reason:
            raise BadCheckpoint(f"{self.config} is damaged ({reason}); correct it, or choose another --out") from None

    def read_summary(self) -> Record:
        """The summary of a finished run."""
        if not self.summary.exists() or not self.metrics.exists():
            raise MissingData(f"{str(self.path)!r}: holds no finished run (no summary.json or metrics.jsonl)")
        try:
            summary = read_object(self.summary)
        except ValueError as reason:
            raise BadInput("folders", str(self.path), f"has a damaged summary.json ({reason})") from None
        if "ledger" not in summary:
            raise MissingData(f"{str(self.path)!r}: holds no finished run (it {summary.get('stopped', 'is unknown')})")
        return summary

    def read_finished(self) -> tuple[Record, list[Record]]:
        """The summary and the records of a finished run; damaged ones are refused."""
        summary = self.read_summary()
        records, damage = read_records(self.metrics)
        if damage:
            raise BadInput("folders", str(self.path), f"{damage[0]}; mend the line, or resume the run")
        if not records:
            raise MissingData(f"{str(self.path)!r}: holds no finished run (no summary.json or metrics.jsonl)")
        return summary, records


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


def read_history(path: Path, most_rounds: int | None = None) -> list[Record]:
    """The records of a metrics.jsonl up to `most_rounds`, without damaged lines."""
    records, _ = read_records(path)
    return [r for r in records if most_rounds is None or r["round"] <= most_rounds]

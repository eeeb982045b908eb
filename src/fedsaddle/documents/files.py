"""The names of the files in a run's folder, and the documents in them; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from fedsaddle.documents.stored import complete_rounds
from fedsaddle.documents.summary import (
    AnySummary,
    DivergedSummary,
    OutcomeSummary,
    RunSummary,
    SearchSummary,
    read_summary,
)
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.files import Record, read_records, write_json

MODEL = "model.safetensors"
METRICS = "metrics.jsonl"
BASELINE = "fedavg"  # the folder of the baseline
CHECKPOINTS = "checkpoints"
TRIALS = "trials"
LOG = "log.txt"
SIGNS = (METRICS, "deployment.json")  # a folder with one of these is that of a run


@dataclass(frozen=True)
class RunFiles:
    """The files of a run, by what they hold.

    Args:
        path: The run's folder.
    """

    path: Path

    @property
    def metrics(self) -> Path:
        """The evaluation records, one per line."""
        return self.path / METRICS

    @property
    def columns(self) -> Path:
        """The same records as a table, for spreadsheets."""
        return self.path / "metrics.csv"

    @property
    def progress(self) -> Path:
        """The rounds that are done, also between evaluations."""
        return self.path / "progress.json"

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
        return self.path / MODEL

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
    def log(self) -> Path:
        """What a deployed run reported."""
        return self.path / LOG

    @property
    def track(self) -> Path:
        """What trackers need to continue a run."""
        return self.path / "track.json"

    @property
    def predictions(self) -> Path:
        """Labels and scores of the held-out rows."""
        return self.path / "predictions.csv"

    @property
    def roc(self) -> Path:
        """Figures and curves of the ranking."""
        return self.path / "roc.json"

    @property
    def roc_table(self) -> Path:
        """The figures of the ranking as a table, for spreadsheets."""
        return self.path / "roc.csv"

    @property
    def search(self) -> Path:
        """The options of a search on a table."""
        return self.path / "search.json"

    @property
    def trials(self) -> Path:
        """A folder for each candidate of a search."""
        return self.path / TRIALS

    @property
    def trials_table(self) -> Path:
        """The candidates of a search and their figures."""
        return self.path / "trials.csv"

    @property
    def provenance(self) -> Path:
        """Versions, machine, date and command."""
        return self.path / "provenance.json"

    @property
    def release(self) -> Path:
        """The check of the model before it is handed on."""
        return self.path / "release.json"

    @property
    def report(self) -> Path:
        """The page about the run."""
        return self.path / "report.html"

    @property
    def card(self) -> Path:
        """The model card."""
        return self.path / "MODEL_CARD.md"

    @property
    def checkpoints_folder(self) -> Path:
        """The checkpoints."""
        return self.path / CHECKPOINTS

    @property
    def baseline(self) -> Self:
        """The folder of the baseline run."""
        return type(self)(self.path / BASELINE)

    def picture(self, name: str) -> Path:
        """The file of a plot.

        Args:
            name: Of the plot.
        """
        return self.path / f"{name}.png"

    @property
    def holds_run(self) -> bool:
        """Whether the folder contains a run."""
        return self.metrics.exists()

    def history(self, most_rounds: int | None = None) -> list[Record]:
        """The records without damaged lines.

        Args:
            most_rounds: The last round to read; None (default): all.
        """
        records, _ = read_records(self.metrics)
        return [r for r in records if most_rounds is None or r["round"] <= most_rounds]

    def write_summary(self, summary: AnySummary) -> None:
        """Write the summary.

        Args:
            summary: Of the run or search.
        """
        write_json(self.summary, summary.to_dict())

    def stored_summary(self) -> AnySummary | None:
        """Read the summary of a run, however it ended; None if there is none.

        Raises:
            OtherVersion: if another version wrote it.
            ValueError: if it is damaged; says why.
        """
        return read_summary(self.summary) if self.summary.exists() else None

    def read_summary(self) -> RunSummary | SearchSummary:
        """Read the summary of a finished run.

        Raises:
            MissingData: if there is none.
            BadInput: if it is damaged.
        """
        if not self.summary.exists() or not self.metrics.exists():
            raise self._unfinished("no summary.json or metrics.jsonl")
        try:
            summary = self.stored_summary()
        except ValueError as reason:
            raise BadInput("folders", str(self.path), f"has a damaged summary.json ({reason})") from None
        if summary is None or isinstance(summary, DivergedSummary):
            raise self._unfinished("it diverged")
        if isinstance(summary, OutcomeSummary):
            remedy = f"is a study of the outcome {summary.outcome!r}; this is for runs and studies of two classes"
            raise BadInput("folders", str(self.path), remedy)
        return summary

    def read_run(self) -> RunSummary:
        """Read the summary of a finished run; a search is refused."""
        summary = self.read_summary()
        if isinstance(summary, SearchSummary):
            raise self._unfinished("it is a search on a table")
        return summary

    def read_search(self) -> SearchSummary:
        """Read the summary of a finished search on a table."""
        summary = self.read_summary()
        if isinstance(summary, RunSummary):
            raise self._unfinished("it is no search on a table")
        return summary

    def read_finished(self) -> tuple[RunSummary | SearchSummary, list[Record]]:
        """Read the summary and the records of a finished run; damaged ones are refused."""
        summary = self.read_summary()
        records, damage = read_records(self.metrics)
        if damage:
            raise BadInput("folders", str(self.path), f"{damage[0]}; correct the line, or resume the run")
        if damage := complete_rounds(records)[1]:
            raise BadInput("folders", str(self.path), f"has a damaged metrics.jsonl ({damage[0]})")
        if not records:
            raise self._unfinished("no summary.json or metrics.jsonl")
        return summary, records

    def _unfinished(self, why: str) -> MissingData:
        return MissingData(f"{str(self.path)!r}: holds no finished run ({why})")

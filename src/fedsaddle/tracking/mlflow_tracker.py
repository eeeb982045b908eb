"""MLflow: a run in a store or at a server."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsaddle.arguments import optional, text
from fedsaddle.stored import Record
from fedsaddle.tracking.callbacks import Beginning
from fedsaddle.tracking.extras import require_package, require_parameters
from fedsaddle.tracking.figures import flat_figures, flat_parameters
from fedsaddle.tracking.track_file import read_track, write_track

ROUND = "round"  # the figure that says up to which round a run is tracked
_BATCH, _PARAMETERS = 900, 90  # of one request; MLflow takes 1000 and 100
_PATIENT = {  # of MLflow, unless the user has set others: a server that is down must not hold up a run for minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_STATUS = {"interrupted": "KILLED", "diverged": "FAILED", "failed": "FAILED"}


@dataclass
class MLflow:
    """Tracks a run with MLflow: parameters, figures by round, and at the end the pictures and the model.

    A resumed run continues the same run of MLflow, after the last round that is there.

    Args:
        uri: of the store: "http://127.0.0.1:5000", or "sqlite:///mlflow.db", which needs the whole package `mlflow`.
        experiment: the name of the experiment; made if there is none.
        name: of the run; by default that of the run's folder, or of the algorithm.
        parameters: more of them, such as a config; nested ones get dotted names.

    Example:
        >>> fs.trackers.MLflow("http://127.0.0.1:5000")  # doctest: +SKIP
    """

    uri: str
    experiment: str = "fedsaddle"
    name: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text("uri", self.uri)
        text("experiment", self.experiment)
        optional(text, "name", self.name)
        require_parameters(self.parameters)
        require_package("mlflow", "mlflow")
        self._client: Any = None
        self._last = -1

    def on_begin(self, beginning: Beginning) -> None:
        """Begin a run of MLflow, or find the one to continue."""
        for key, value in _PATIENT.items():
            os.environ.setdefault(key, value)
        from mlflow.tracking import MlflowClient

        self._client, self._run = MlflowClient(tracking_uri=self.uri), beginning
        stored = read_track(beginning.folder, "mlflow") if beginning.resumed else {}
        if stored.get("uri") == self.uri and isinstance(stored.get("run"), str):
            self._id = stored["run"]
            self._client.update_run(self._id, status="RUNNING")
            self._last = max((m.step for m in self._client.get_metric_history(self._id, ROUND)), default=-1)
            return
        self._last, self._id = -1, self._new_run(beginning)
        write_track(beginning.folder, "mlflow", {"uri": self.uri, "run": self._id})

    def _new_run(self, beginning: Beginning) -> str:
        from mlflow.entities import Param

        found = self._client.get_experiment_by_name(self.experiment)
        experiment = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
        name = self.name or (beginning.name if beginning.folder is None else beginning.folder.resolve().name)
        made: str = self._client.create_run(experiment, run_name=name).info.run_id
        given = flat_parameters({"algorithm_name": beginning.name, **beginning.parameters, **self.parameters})
        rows = [Param(key[:200], str(value)[:500]) for key, value in given.items()]
        for k in range(0, len(rows), _PARAMETERS):
            self._client.log_batch(made, params=rows[k : k + _PARAMETERS])
        return made

    def on_record(self, record: Record) -> None:
        """Send the figures of an evaluation, unless an earlier process has sent them."""
        from mlflow.entities import Metric

        if record["round"] <= self._last:
            return
        now, step = int(1000 * time.time()), int(record["round"])
        figures = {**flat_figures(record, self._run.clients), ROUND: step}  # the round last: then all are there
        rows = [Metric(key, float(value), now, step) for key, value in figures.items()]
        for k in range(0, len(rows), _BATCH):
            self._client.log_batch(self._id, metrics=rows[k : k + _BATCH])

    def on_end(self, summary: Record) -> None:
        """Send pictures and model, and end the run of MLflow."""
        if self._client is None:
            return
        for file in _files(self._run.folder):
            self._client.log_artifact(self._id, str(file))
        self._client.set_terminated(self._id, status=_STATUS.get(str(summary.get("stopped")), "FINISHED"))


def _files(folder: Path | None) -> list[Path]:
    """What is stored beside the figures: pictures, the model, the summary and the report."""
    if folder is None:
        return []
    others = [folder / name for name in ("model.safetensors", "summary.json", "report.html")]
    return [*sorted(folder.glob("*.png")), *(file for file in others if file.is_file())]

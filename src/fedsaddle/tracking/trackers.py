"""Callbacks that send a run to TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from fedsaddle.arguments import choice, optional, path, text
from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadInput, MissingData, install
from fedsaddle.files import Json, Record, read_object, write_json
from fedsaddle.runs.callbacks import Beginning, Callback
from fedsaddle.runs.figures import flat_figures, flat_parameters

if TYPE_CHECKING:
    import numpy as np
    from mlflow.tracking import MlflowClient
    from numpy.typing import NDArray
    from torch.utils.tensorboard.writer import SummaryWriter
    from wandb import Artifact, Run


def _require_parameters(given: object) -> None:
    """Raise `BadInput` if parameters are no dictionary."""
    if not isinstance(given, Mapping):
        raise BadInput("parameters", type(given).__name__, 'must be a dictionary, such as {"seed": 3}')


def _require_package(package: str, extra: str) -> None:
    """Raise `MissingData` if a package is not installed; names the command that installs it."""
    try:
        there = find_spec(package) is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        raise MissingData(f"track.{extra}: needs the package {package}; {install(extra)}")


def _read_track(folder: Path | None, tracker: str) -> Record:
    """What a tracker has stored; empty if nothing."""
    if folder is None or not RunFiles(folder).track.exists():
        return {}
    with suppress(ValueError):
        found = read_object(RunFiles(folder).track).get(tracker)
        if isinstance(found, dict):
            return found
    return {}


def _write_track(folder: Path | None, tracker: str, content: Record) -> None:
    """Store what a tracker has to know when the run is resumed."""
    if folder is None:
        return
    stored: Record = {}
    with suppress(ValueError):
        stored = read_object(RunFiles(folder).track)
    write_json(RunFiles(folder).track, {**stored, tracker: content})


ROUND = "round"  # the figure with the last round that is tracked
_BATCH, _PARAMETERS = 900, 90  # of one request; MLflow takes 1000 and 100
_PATIENT = {  # of MLflow, unless the user has set others: a server that is down must not hold up a run for minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
_STATUS = {"interrupted": "KILLED", "diverged": "FAILED", "failed": "FAILED"}


@dataclass
class MLflow(Callback):
    """Tracks a run with MLflow: parameters, figures by round, and at the end the pictures and the model.

    A resumed run continues the same run of MLflow, after the last round that is there.

    Args:
        uri: of the store: "http://127.0.0.1:5000", or "sqlite:///mlflow.db", which needs the whole package `mlflow`.
        experiment: the name of the experiment; made if there is none.
        name: of the run; by default that of the run's folder, or of the algorithm.
        parameters: more of them, such as a config; nested ones get dotted names.

    Examples:
        >>> fs.trackers.MLflow("http://127.0.0.1:5000")  # doctest: +SKIP
    """

    uri: str
    experiment: str = "fedsaddle"
    name: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text("uri", self.uri)
        text("experiment", self.experiment)
        optional(text, "name", self.name)
        _require_parameters(self.parameters)
        _require_package("mlflow", "mlflow")
        self._client: MlflowClient | None = None
        self._last = -1

    def on_begin(self, beginning: Beginning) -> None:
        """Begin a run of MLflow, or find the one to continue."""
        for key, value in _PATIENT.items():
            os.environ.setdefault(key, value)
        from mlflow.tracking import MlflowClient

        self._client, self._run = MlflowClient(tracking_uri=self.uri), beginning
        stored = _read_track(beginning.folder, "mlflow") if beginning.resumed else {}
        if stored.get("uri") == self.uri and isinstance(stored.get("run"), str):
            self._id = stored["run"]
            self._client.update_run(self._id, status="RUNNING")
            self._last = max((m.step for m in self._client.get_metric_history(self._id, ROUND)), default=-1)
            return
        self._last, self._id = -1, self._new_run(self._client, beginning)
        _write_track(beginning.folder, "mlflow", {"uri": self.uri, "run": self._id})

    def _new_run(self, client: MlflowClient, beginning: Beginning) -> str:
        from mlflow.entities import Param

        found = client.get_experiment_by_name(self.experiment)
        experiment = client.create_experiment(self.experiment) if found is None else found.experiment_id
        name = self.name or (beginning.name if beginning.folder is None else beginning.folder.resolve().name)
        made: str = client.create_run(experiment, run_name=name).info.run_id
        given = flat_parameters({"algorithm_name": beginning.name, **beginning.parameters, **self.parameters})
        rows = [Param(key[:200], str(value)[:500]) for key, value in given.items()]
        for k in range(0, len(rows), _PARAMETERS):
            client.log_batch(made, params=rows[k : k + _PARAMETERS])
        return made

    def on_round(self, done: int, record: Record | None) -> None:
        """Send the figures of an evaluation, unless an earlier process has sent them."""
        from mlflow.entities import Metric

        if record is None or done <= self._last or self._client is None:
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
    run = RunFiles(folder)
    others = (run.model, run.summary, run.report)
    return [*sorted(folder.glob("*.png")), *(file for file in others if file.is_file())]


FOLDER = "tensorboard"


@dataclass
class TensorBoard(Callback):
    """Writes event files for TensorBoard: figures by round, parameters, and the run's pictures.

    A resumed run writes another file to the same folder; points after the round that it resumes from are replaced.

    Args:
        folder: for the event files; by default `tensorboard` in the run's folder.
        parameters: more of them, such as a config; nested ones get dotted names.

    Examples:
        >>> fs.trackers.TensorBoard("events")  # doctest: +SKIP
    """

    folder: str | Path | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._given = optional(path, "folder", self.folder)
        _require_parameters(self.parameters)
        _require_package("tensorboard", "tensorboard")
        self._writer: SummaryWriter | None = None

    def on_begin(self, beginning: Beginning) -> None:
        """Open an event file and write the parameters."""
        from torch.utils.tensorboard.writer import SummaryWriter

        folder = self._given
        if folder is None:
            if beginning.folder is None:
                raise BadInput("folder", None, "name a folder for the events, or give the run one with `out`")
            folder = beginning.folder / FOLDER
        self._run = beginning
        self._writer = SummaryWriter(str(folder), purge_step=beginning.done + 1 if beginning.resumed else None)
        if not beginning.resumed:
            given = flat_parameters({**beginning.parameters, **self.parameters})
            lines = [f"| {_cell(key)} | {_cell(value)} |" for key, value in given.items()]
            self._writer.add_text("parameters", "\n".join(["| parameter | value |", "| --- | --- |", *lines]))

    def on_round(self, done: int, record: Record | None) -> None:
        """Write the figures of an evaluation."""
        if record is None or self._writer is None:
            return
        for key, value in flat_figures(record, self._run.clients).items():
            self._writer.add_scalar(key, value, record["round"])
        self._writer.flush()

    def on_end(self, summary: Record) -> None:
        """Write the pictures and close the file."""
        if self._writer is None:
            return
        for file in _pictures(self._run.folder):
            self._writer.add_image(f"pictures/{file.stem}", _pixels(file), summary.get("rounds"), dataformats="HWC")
        self._writer.close()
        self._writer = None


def _pictures(folder: Path | None) -> list[Path]:
    return [] if folder is None else sorted(folder.glob("*.png"))


def _pixels(file: Path) -> NDArray[np.uint8]:
    import numpy as np
    from PIL import Image

    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"))


def _cell(value: object) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(str(value).replace("|", "\\|").split())[:500]


MODES = ("online", "offline", "disabled")


@dataclass
class Wandb(Callback):
    """Tracks a run with Weights & Biases: parameters, figures by round, and at the end the pictures and the model.

    Nothing else leaves the machine: no code, no git state, no console, no figures of the machine. A resumed run
    continues the same run of W&B.

    Args:
        project: its name.
        entity: the user or team; by default that of the login.
        mode: "online", "offline" (send later with `wandb sync`) or "disabled"; by default `WANDB_MODE`.
        name: of the run; by default that of the run's folder, or of the algorithm.
        parameters: more of them, such as a config; nested ones get dotted names.

    Examples:
        >>> fs.trackers.Wandb("hospitals", mode="offline")  # doctest: +SKIP
    """

    project: str
    entity: str | None = None
    mode: str | None = None
    name: str | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text("project", self.project)
        optional(text, "entity", self.entity)
        optional(lambda key, value: choice(key, value, MODES), "mode", self.mode)
        optional(text, "name", self.name)
        _require_parameters(self.parameters)
        _require_package("wandb", "wandb")
        self._tracked: Run | None = None

    def on_begin(self, beginning: Beginning) -> None:
        """Begin a run of W&B, or continue the earlier one."""
        import wandb

        stored = _read_track(beginning.folder, "wandb") if beginning.resumed else {}
        known = stored.get("project") == self.project and isinstance(stored.get("run"), str)
        self._id = stored["run"] if known else secrets.token_hex(6)
        last = stored.get("last") if known else None
        self._run, self._last = beginning, last if isinstance(last, int) else -1
        self._tracked = wandb.init(
            project=self.project,
            entity=self.entity,
            id=self._id,
            resume="allow",
            name=self.name or (beginning.name if beginning.folder is None else beginning.folder.resolve().name),
            dir=None if beginning.folder is None else str(beginning.folder),
            config=dict(flat_parameters({**beginning.parameters, **self.parameters})),
            mode=self.mode,
            settings=wandb.Settings(
                console="off", silent=True, save_code=False, disable_git=True, disable_code=True,
                disable_job_creation=True, x_disable_stats=True, x_disable_meta=True, x_disable_machine_info=True,
            ),
        )  # fmt: skip
        self._tracked.define_metric("round")
        self._tracked.define_metric("*", step_metric="round")
        self._remember()

    def on_round(self, done: int, record: Record | None) -> None:
        """Log the figures of an evaluation, unless an earlier process has logged them."""
        if record is None or done <= self._last or self._tracked is None:
            return
        self._tracked.log({"round": int(record["round"]), **flat_figures(record, self._run.clients)})
        self._last = int(record["round"])
        self._remember()

    def on_end(self, summary: Record) -> None:
        """Log pictures and model, and end the run of W&B."""
        if self._tracked is None:
            return
        import wandb

        folder = self._run.folder
        pictures = [] if folder is None else sorted(folder.glob("*.png"))
        if pictures:
            self._tracked.log({f"pictures/{file.stem}": wandb.Image(str(file)) for file in pictures})
        if folder is not None and (model := RunFiles(folder).model).is_file():
            self._tracked.log_artifact(_model(self._id, model))
        self._tracked.finish(exit_code=1 if summary.get("stopped") in ("diverged", "failed") else 0)
        self._tracked = None

    def _remember(self) -> None:
        content = {"project": self.project, "run": self._id, "last": self._last}
        _write_track(self._run.folder, "wandb", content)


def _model(run: str, file: Path) -> Artifact:
    import wandb

    artifact = wandb.Artifact(f"model-{run}", type="model")
    artifact.add_file(str(file))
    return artifact


__all__ = ["MLflow", "TensorBoard", "Wandb", "flat_figures"]

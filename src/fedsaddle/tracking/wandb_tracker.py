"""Weights & Biases: a run of a project."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsaddle.arguments import choice, optional, text
from fedsaddle.stored import Record
from fedsaddle.tracking.callbacks import Beginning
from fedsaddle.tracking.extras import require_package, require_parameters
from fedsaddle.tracking.figures import flat_figures, flat_parameters
from fedsaddle.tracking.track_file import read_track, write_track

MODES = ("online", "offline", "disabled")


@dataclass
class Wandb:
    """Tracks a run with Weights & Biases: parameters, figures by round, and at the end the pictures and the model.

    Nothing else leaves the machine: no code, no git state, no console, no figures of the machine. A resumed run
    continues the same run of W&B.

    Args:
        project: its name.
        entity: the user or team; by default that of the login.
        mode: "online", "offline" (send later with `wandb sync`) or "disabled"; by default what `WANDB_MODE` says.
        name: of the run; by default that of the run's folder, or of the algorithm.
        parameters: more of them, such as a config; nested ones get dotted names.

    Example:
        >>> fs.trackers.Wandb("hospitals", mode="offline")  # doctest: +SKIP
    """

    project: str
    entity: str | None = None
    mode: str | None = None
    name: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text("project", self.project)
        optional(text, "entity", self.entity)
        optional(lambda key, value: choice(key, value, MODES), "mode", self.mode)
        optional(text, "name", self.name)
        require_parameters(self.parameters)
        require_package("wandb", "wandb")
        self._tracked: Any = None

    def on_begin(self, beginning: Beginning) -> None:
        """Begin a run of W&B, or continue the earlier one."""
        import wandb

        stored = read_track(beginning.folder, "wandb") if beginning.resumed else {}
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

    def on_record(self, record: Record) -> None:
        """Log the figures of an evaluation, unless an earlier process has logged them."""
        if record["round"] <= self._last:
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
        if folder is not None and (folder / "model.safetensors").is_file():
            self._tracked.log_artifact(_model(wandb, self._id, folder / "model.safetensors"))
        self._tracked.finish(exit_code=1 if summary.get("stopped") in ("diverged", "failed") else 0)
        self._tracked = None

    def _remember(self) -> None:
        content = {"project": self.project, "run": self._id, "last": self._last}
        write_track(self._run.folder, "wandb", content)


def _model(wandb: Any, run: str, file: Path) -> Any:
    artifact = wandb.Artifact(f"model-{run}", type="model")
    artifact.add_file(str(file))
    return artifact

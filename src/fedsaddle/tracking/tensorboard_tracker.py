"""TensorBoard: event files in the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedsaddle.arguments import optional, path
from fedsaddle.errors import BadInput
from fedsaddle.stored import Record
from fedsaddle.tracking.callbacks import Beginning
from fedsaddle.tracking.extras import require_package, require_parameters
from fedsaddle.tracking.figures import flat_figures, flat_parameters

FOLDER = "tensorboard"


@dataclass
class TensorBoard:
    """Writes event files for TensorBoard: figures by round, parameters, and the run's pictures.

    A resumed run writes another file to the same folder; points after the round that it resumes from are replaced.

    Args:
        folder: for the event files; by default `tensorboard` in the run's folder.
        parameters: more of them, such as a config; nested ones get dotted names.

    Example:
        >>> fs.trackers.TensorBoard("events")  # doctest: +SKIP
    """

    folder: str | Path | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._given = optional(path, "folder", self.folder)
        require_parameters(self.parameters)
        require_package("tensorboard", "tensorboard")
        self._writer: Any = None

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

    def on_record(self, record: Record) -> None:
        """Write the figures of an evaluation."""
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


def _pixels(file: Path) -> Any:
    import numpy as np
    from PIL import Image

    with Image.open(file) as picture:
        return np.asarray(picture.convert("RGB"))


def _cell(value: object) -> str:
    """Text for a cell of a Markdown table."""
    return " ".join(str(value).replace("|", "\\|").split())[:500]

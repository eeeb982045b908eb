"""The trackers that a config names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsaddle.config.schema import Config
from fedsaddle.tracking.callbacks import Callback
from fedsaddle.tracking.told import Told


def trackers_of(config: Config) -> list[Callback]:
    """The trackers of [track].

    Raises:
        MissingData: if the package of one is not installed; says how to install it.
    """
    track, found = config.track, list[Callback]()
    given: dict[str, Any] = config.model_dump(mode="json", exclude={"track"})
    if track.tensorboard:
        from fedsaddle.tracking.tensorboard_tracker import TensorBoard

        found.append(TensorBoard(parameters=given))
    if track.mlflow is not None:
        from fedsaddle.tracking.mlflow_tracker import MLflow

        found.append(MLflow(track.mlflow, parameters=given))
    if track.wandb is not None:
        from fedsaddle.tracking.wandb_tracker import Wandb

        found.append(Wandb(track.wandb, parameters=given))
    return found


def told_of(config: Config, warn: Callable[[str], None]) -> Told | None:
    """The trackers of [track], ready to be told; None without any."""
    found = trackers_of(config)
    return Told(found, warn) if found else None

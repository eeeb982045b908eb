"""The check that a run resumes with its original config."""

from __future__ import annotations

from fedsaddle.config.schema import Config, validate_config
from fedsaddle.errors import BadCheckpoint
from fedsaddle.runs.folder import RunFolder

# Keys that do not affect the trajectory. The loop itself compares the resulting `chunk` and `workers`.
CHANGEABLE = {
    "run.rounds",
    "run.target",
    "run.patience",
    "run.checkpoint_every",
    "run.compare",
    "engine.chunk",
    "engine.workers",
    "track.tensorboard",
    "track.mlflow",
    "track.wandb",
}


def require_same_config(config: Config, folder: RunFolder) -> Config:
    """Check that `config` can resume the run in `folder`, and return it.

    Raises:
        BadCheckpoint: if a key that affects the trajectory differs from the stored config.
        MissingData: if the folder contains no run.
    """
    stored = folder.read_config()
    if stored is None:  # the run ended before it wrote its config
        return config
    before = validate_config(stored)
    for section in Config.model_fields:
        old, new = getattr(before, section).model_dump(), getattr(config, section).model_dump()
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key) and f"{section}.{key}" not in CHANGEABLE:
                raise BadCheckpoint(
                    f"{section}.{key} = {new.get(key)!r}: the run in {folder.path} has {old.get(key)!r}; "
                    "resume with the same config, or choose another --out"
                )
    return config

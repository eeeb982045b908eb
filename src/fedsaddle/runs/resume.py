"""Compares the config of a run with the one it began with."""

from __future__ import annotations

from fedsaddle.config.schema import Config, validate_config
from fedsaddle.errors import BadCheckpoint
from fedsaddle.runs.folder import RunFolder

# What does not shape the trajectory may change; the loop itself compares `chunk` and `workers` as they turn out.
CHANGEABLE = {"run.rounds", "run.target", "run.checkpoint_every", "run.compare", "engine.chunk", "engine.workers"}


def require_same_config(config: Config, folder: RunFolder) -> Config:
    """The config with which to resume the run in `folder`.

    Raises:
        BadCheckpoint: at the first key that shapes the trajectory and differs from the config that was stored.
        MissingData: where there is no run.
    """
    stored = folder.read_config()
    if stored is None:  # the run ended before it could write its config
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

"""The check that a run resumes with its original config."""

from __future__ import annotations

from typing import Any

from fedsaddle.config.schema import Config, validate_config
from fedsaddle.errors import BadCheckpoint
from fedsaddle.runs.folder import RunFolder

BLOCKS = ("vectorised", "processes", "ray")  # engines that round alike: blocks of `chunk` clients, in cohort order
# Keys that do not affect the trajectory. The loop itself compares the resulting `chunk`.
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
    "engine.address",
    "engine.device",
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
    if config.privacy.epsilon is not None and config.privacy.rounds is None:  # the noise stays as it was planned
        config = _with_plan(config, before.privacy.rounds or before.run.rounds)
    for section in Config.model_fields:
        old, new = getattr(before, section).model_dump(), getattr(config, section).model_dump()
        for key in sorted(old.keys() | new.keys(), key=lambda key: (key != "name", key)):  # another name explains more
            if old.get(key) != new.get(key) and not _may_change(f"{section}.{key}", old.get(key), new.get(key)):
                raise BadCheckpoint(
                    f"{section}.{key} = {new.get(key)!r}: the run in {folder.path} has {old.get(key)!r}; "
                    "resume with the same config, or choose another --out"
                )
    return config


def _may_change(key: str, old: Any, new: Any) -> bool:
    """Whether a run may resume with another value of this key."""
    if key == "privacy.rounds" and old is None:
        return True
    return key in CHANGEABLE or (key == "engine.name" and old in BLOCKS and new in BLOCKS)


def _with_plan(config: Config, rounds: int) -> Config:
    """The config, whose privacy is planned for so many rounds; more cannot be run."""
    planned = config.model_copy(update={"privacy": config.privacy.model_copy(update={"rounds": rounds})})
    planned.privacy.settings(config.run.rounds)
    return planned


def rounding_of(settings: dict[str, Any]) -> dict[str, Any]:
    """What of an engine's settings rounds sums: the number of workers does not, nor which engine runs the blocks."""
    kept = {key: value for key, value in settings.items() if key not in ("workers", "device")}
    return {**kept, "name": BLOCKS[0]} if kept.get("name") in BLOCKS else kept


def on_another_device(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """A warning about a checkpoint of another kind of device."""
    old, new = before.get("device", "cpu"), now.get("device", "cpu")
    told = f"the run began on {old} and goes on on {new}"
    return [] if old == new else [f"{told}; sums are rounded differently there, so the last digits may differ"]


def cut_by_workers(settings: dict[str, Any]) -> list[str]:
    """A warning about a checkpoint of an earlier version, whose blocks followed the number of workers."""
    workers = settings.get("workers", 1)
    if workers == 1 or settings.get("chunk", 1) == 1:
        return []
    told = f"the run began in an earlier version, which cut cohorts by its {workers} workers"
    return [f"{told}; from here on blocks have {settings['chunk']} clients, and the last digits may differ"]

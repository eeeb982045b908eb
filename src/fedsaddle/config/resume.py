"""Compares the config of a run with the one it began with."""

from __future__ import annotations

import json
from pathlib import Path

from fedsaddle.config.schema import Config, validated
from fedsaddle.errors import BadCheckpoint, MissingData

FILE = "config.json"  # in a run's folder
# What does not shape the trajectory may change; the loop itself compares `chunk` and `workers` as they turn out.
FREE = {"run.rounds", "run.target", "run.checkpoint_every", "run.compare", "engine.chunk", "engine.workers"}


def same_config(config: Config, out: Path) -> Config:
    """The config with which to resume the run in `out`.

    Raises `BadCheckpoint` at the first key that shapes the trajectory and differs from the stored `config.json`, and
    `MissingData` where there is no run.
    """
    stored = out / FILE
    if not stored.exists():
        if (out / "metrics.jsonl").exists():  # the run ended before it could write its config
            return config
        raise MissingData(f"--out = {str(out)!r}: no run to resume there; leave out --resume to begin one")
    try:
        before = validated(json.loads(stored.read_text()))
    except (ValueError, TypeError) as reason:
        raise BadCheckpoint(f"{stored} is damaged ({reason}); put it right, or choose another --out") from None
    for section in Config.model_fields:
        old, new = getattr(before, section).model_dump(), getattr(config, section).model_dump()
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key) and f"{section}.{key}" not in FREE:
                raise BadCheckpoint(
                    f"{section}.{key} = {new.get(key)!r}: the run in {out} has {old.get(key)!r}; "
                    "resume with the same config, or choose another --out"
                )
    return config

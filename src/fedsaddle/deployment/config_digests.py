"""What server and sites must have alike in their configs, section by section, as digests that tell nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from fedsaddle.config.schema import Config

OWN = {"path", "test_path", "test_share"}  # keys of [data] that are each site's own affair


def digests(config: Config) -> dict[str, str]:
    """Section -> digest of all that shapes a task."""
    said: dict[str, Any] = {
        "data": {k: v for k, v in config.data.model_dump(mode="json").items() if k not in OWN},
        "model": config.model.model_dump(mode="json"),
        "problem": config.problem.model_dump(mode="json"),
        "algorithm": config.algorithm.model_dump(mode="json"),
        "run": {"seed": config.run.seed, "dtype": config.run.dtype},
    }
    return {k: hashlib.sha256(json.dumps(v, sort_keys=True).encode()).hexdigest()[:16] for k, v in said.items()}


def difference(own: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first section that differs; empty if none does."""
    return next((section for section in own if own[section] != other.get(section)), "")

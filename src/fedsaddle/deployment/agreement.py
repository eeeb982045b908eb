"""The agreement of server and sites before the first round: the same config, encoding and algorithm.

Server and sites compare digests of the config's sections, which reveal nothing else. A problem takes shapes, classes
and class shares from data, but no participant has all rows. So each builds the algorithm from placeholder data: zeros
with the shapes and class counts of the shared encoding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.atomic import write_json
from fedsaddle.config.build import build_algorithm, cast, precision
from fedsaddle.config.schema import Config
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.files.shared_encoding import merge_facts
from fedsaddle.data.store import Stacked
from fedsaddle.deployment.courier import Courier
from fedsaddle.errors import BadCheckpoint
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.stored import read_object

Facts = dict[str, Any]  # the facts of a site, or the shared encoding; plain JSON
SITE_KEYS = {"path", "test_path", "test_share", "validation_share"}  # keys of [data] that may differ between sites


def digests(config: Config) -> dict[str, str]:
    """Section -> digest of the keys that affect a task."""
    sections: dict[str, Any] = {
        "data": {k: v for k, v in config.data.model_dump(mode="json").items() if k not in SITE_KEYS},
        "model": config.model.model_dump(mode="json"),
        "problem": config.problem.model_dump(mode="json"),
        "algorithm": config.algorithm.model_dump(mode="json"),
        "run": {"seed": config.run.seed, "dtype": config.run.dtype},
    }
    return {k: hashlib.sha256(json.dumps(v, sort_keys=True).encode()).hexdigest()[:16] for k, v in sections.items()}


def difference(own: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first section that differs; empty if all are equal."""
    return next((section for section in own if own[section] != other.get(section)), "")


def agree_on_encoding(courier: Courier, config: Config, run: str, folder: RunFolder) -> tuple[list[Facts], Facts]:
    """The facts of all sites and the shared encoding; a resumed run uses the stored ones."""
    path, names = folder.agreed, courier.names
    if path.exists():
        try:
            stored = read_object(path)
            theirs, told, agreed = stored["names"], stored["told"], stored["agreed"]
        except (ValueError, KeyError) as reason:
            raise BadCheckpoint(f"{path} is damaged ({reason}); start a new run") from None
        if tuple(theirs) != names:
            raise BadCheckpoint(f"{path} belongs to the sites {theirs}, not {list(names)}; start a new run")
        return told, agreed
    replies = courier.request("facts", run, {"config": digests(config)}, everyone=True)
    facts = [replies[i] for i in range(len(names))]
    options = config.data.options()
    task, target = str(options.get("task", "auto")), str(options.get("target", "y"))
    encoding = merge_facts(facts, names, task, options.get("positive"), target)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write_config(config.model_dump(mode="json"))  # first, because the encoding is valid for this config only
    write_json(path, {"names": names, "told": facts, "agreed": encoding})
    return facts, encoding


def row_shape(features: list[Mapping[str, Any]]) -> tuple[int, ...]:
    """The shape of an encoded row."""
    if len(features) == 1 and len(features[0].get("shape", ())) > 1:
        return tuple(features[0]["shape"])
    return (sum(len(f["texts"]) if "texts" in f else int(np.prod(f["shape"])) for f in features),)


def placeholder_data(encoding: Mapping[str, Any], names: tuple[str, ...]) -> FederatedData:
    """Features of zeros, and labels with the counts over all sites."""
    shape, classes = row_shape(encoding["features"]), encoding["classes"]
    if classes is None:
        y = torch.zeros(2)
    else:
        y = torch.repeat_interleave(torch.arange(len(classes)), torch.tensor(encoding["counts"]))
    x = torch.zeros(1, *shape).expand(len(y), *shape)
    rows = Stacked(x, y, np.array([0, len(y)], dtype=np.int64))
    return FederatedData("sites", rows, None, names, tuple(map(str, classes or ())), ())


def build_from(
    config: Config, encoding: Mapping[str, Any], names: tuple[str, ...]
) -> tuple[Algorithm[Any], FederatedData]:
    """Build the algorithm from the shared encoding; return it with its placeholder data."""
    data = placeholder_data(encoding, names)
    if config.data.positives_per_batch is not None:
        data = data.balanced(config.data.positives_per_batch)
    with precision(config.run.dtype):
        return build_algorithm(config, data)[0], cast(data, config.run.dtype)

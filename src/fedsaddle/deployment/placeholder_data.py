"""Data that nobody has in one place: rows of zeros with the agreed shapes and class counts.

Problems take shapes, classes and class shares from data. This gives them the agreed ones, so that server and sites
build the very same algorithm, and so does a simulation with the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedsaddle.config.build import build_algorithm, cast, precision
from fedsaddle.config.schema import Config
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked


def row_shape(features: list[Mapping[str, Any]]) -> tuple[int, ...]:
    """The shape of an encoded row."""
    if len(features) == 1 and len(features[0].get("shape", ())) > 1:
        return tuple(features[0]["shape"])
    return (sum(len(f["texts"]) if "texts" in f else int(np.prod(f["shape"])) for f in features),)


def stand_in(agreed: Mapping[str, Any], names: tuple[str, ...]) -> FederatedData:
    """Zeros for features; labels as often as they occur over all sites."""
    shape, classes = row_shape(agreed["features"]), agreed["classes"]
    if classes is None:
        y = torch.zeros(2)
    else:
        y = torch.repeat_interleave(torch.arange(len(classes)), torch.tensor(agreed["counts"]))
    x = torch.zeros(1, *shape).expand(len(y), *shape)
    rows = Stacked(x, y, np.array([0, len(y)], dtype=np.int64))
    return FederatedData("sites", rows, None, names, tuple(map(str, classes or ())), ())


def build_from(config: Config, agreed: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Any, FederatedData]:
    """The algorithm that all build alike, and the stand-in it was built on."""
    data = stand_in(agreed, names)
    if config.data.positives_per_batch is not None:
        data = data.balanced(config.data.positives_per_batch)
    with precision(config.run.dtype):
        return build_algorithm(config, data)[0], cast(data, config.run.dtype)

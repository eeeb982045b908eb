"""The agreement of server and sites before the first round: the same config, encoding and algorithm.

Server and sites compare digests of the config's sections, which reveal nothing else. A problem takes shapes, classes
and class shares from data, but no participant has all rows. So each builds the algorithm from placeholder data: zeros
with the shapes of the shared encoding, and the class counts beside them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.config.build import build_algorithm, cast, precision
from fedsaddle.config.named_code import module_digests
from fedsaddle.config.schema import Config
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.files.agreed_encoding import Agreed, encoding_of
from fedsaddle.data.store import Stacked
from fedsaddle.runs.fingerprint import versions

VERSIONS = "versions"  # the key of the versions among the digests
SITE_KEYS = {
    "path",
    "test_path",
    "folder",
    "test_share",
    "validation_share",
}  # keys of [data] that may differ between sites


def digests(config: Config) -> dict[str, str]:
    """Section -> digest of the keys that affect a task; and the versions here, in words."""
    sections: dict[str, Any] = {
        "data": {k: v for k, v in config.data.model_dump(mode="json").items() if k not in SITE_KEYS},
        "model": config.model.model_dump(mode="json"),
        "problem": config.problem.model_dump(mode="json"),
        "algorithm": config.algorithm.model_dump(mode="json"),
        "run": {"seed": config.run.seed, "dtype": config.run.dtype},
        "privacy": config.privacy.model_dump(mode="json"),
    }
    if config.privacy.epsilon is not None:
        sections["privacy"] = config.privacy.model_dump(mode="json")
    if modules := module_digests(config):  # all must run the same code
        sections["modules"] = modules
    found = {k: hashlib.sha256(json.dumps(v, sort_keys=True).encode()).hexdigest()[:16] for k, v in sections.items()}
    return {VERSIONS: versions()[:64], **found}


def difference(own: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first section that differs; empty if all are equal."""
    return next((section for section in own if own[section] != other.get(section)), "")


def placeholder_data(agreed: Agreed, names: tuple[str, ...]) -> FederatedData:
    """A row of zeros for each class, however many rows the sites say they have."""
    encoding, classes = encoding_of(agreed), agreed["classes"]
    shape = (len(encoding),) if encoding else tuple(agreed["array"]["shape"])
    y = torch.zeros(2) if classes is None else torch.arange(len(classes))
    x = torch.zeros(1, *shape).expand(len(y), *shape)
    rows = Stacked(x, y, np.array([0, len(y)], dtype=np.int64))
    features = tuple(feature.name for feature in encoding)
    return FederatedData("sites", rows, None, names, tuple(classes or ()), features, encoding=encoding)


def build_from(config: Config, agreed: Agreed, names: tuple[str, ...]) -> tuple[Algorithm[Any], FederatedData]:
    """Build the algorithm from the shared encoding; return it with its placeholder data."""
    data = placeholder_data(agreed, names)
    if config.data.positives_per_batch is not None:
        data = data.balanced(config.data.positives_per_batch)
    with precision(config.run.dtype):
        return build_algorithm(config, data, agreed["counts"])[0], cast(data, config.run.dtype)

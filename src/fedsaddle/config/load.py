"""Data by name: `load("digits", split="by-class", clients=10)`."""

from __future__ import annotations

from typing import Any

from fedsaddle.config.registry import DATASETS, SPLITS, find
from fedsaddle.config.validate import checked
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.noise import Noise


def load(
    name: str, *, split: str = "iid", seed: int = 0, test_share: float = 0.2, options: dict[str, Any] | None = None,
    noise: Noise | None = None, stratify: bool = False, **split_options: Any,
) -> FederatedData:  # fmt: skip
    """A data set, dealt out to clients.

    `options` go to the loader (`{"images": True}`), all other keywords to the split (`clients`, `alpha`, `column` ...).
    `noise` makes the training rows worse; `stratify` holds out test rows class by class.
    """
    make_data, make_split = find(DATASETS, "name", name), find(SPLITS, "split", split)
    rule = make_split(**checked("split", make_split, split_options))
    data = federate(make_data(**checked("options", make_data, options or {})), rule, seed, test_share, stratify)
    return data if noise is None else noise.apply(data, seed)

"""The report of missing cells: how many were filled, by column and site."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.federated import FederatedData
from fedsaddle.data.table import ROW, Dataset


def missing_cells(dataset: Dataset, data: FederatedData) -> dict[str, Any]:
    """The share of cells that were filled, by column: of all rows that are used, and of each site's."""
    shares, numbers = getattr(dataset.pending, "missing_shares", None), dataset.train.columns.get(ROW)
    if shares is None or data.train_rows is None:
        return {}
    at = data.train_rows if numbers is None else np.searchsorted(numbers, data.train_rows)  # rows may be left out
    parts: list[NDArray[np.int64]] = np.split(at, data.train.offsets[1:-1])
    found: dict[str, list[float]] = shares(parts)
    sizes = data.train.sizes
    return {
        column: {
            "share": float(np.average(own, weights=sizes)),
            "sites": {name: round(share, 4) for name, share in zip(data.names, own, strict=True) if share},
        }
        for column, own in found.items()
    }

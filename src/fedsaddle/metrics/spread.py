"""How a measure is spread over the clients: the average hides what the worst client sees."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

STATISTICS = ("global", "mean", "worst", "best", "std", "bottom10")


def spread(values: ArrayLike, sizes: ArrayLike, *, higher_is_better: bool) -> dict[str, float]:
    """Statistics of a measure over clients; clients without rows are left out.

    `global` weighs clients by their rows, as one pooled data set would; `mean`, `std`, `worst` and `best` count each
    client once; `bottom10` is the mean over the worst tenth of the clients (at least one).
    """
    n = np.asarray(sizes, dtype=np.float64)
    v = np.asarray(values, dtype=np.float64)[n > 0]
    n = n[n > 0]
    worst_first = np.sort(v) if higher_is_better else np.sort(v)[::-1]
    tenth = int(np.ceil(len(v) / 10))
    with np.errstate(over="ignore"):  # of a run that diverges
        std = float(v.std())
    return {
        "global": float(v @ n / n.sum()),
        "mean": float(v.mean()),
        "worst": float(worst_first[0]),
        "best": float(worst_first[-1]),
        "std": std,
        "bottom10": float(worst_first[:tenth].mean()),
    }

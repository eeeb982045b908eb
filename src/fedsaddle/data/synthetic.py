"""Made-up rows of the papers' simulations."""

from __future__ import annotations

import numpy as np
import torch

from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput


def nonconvex_pl(clients: int = 500, rows: int = 100, dimension: int = 100, seed: int = 0) -> Stacked:
    """The paper's data: w_i ~ N(0, 0.5 I) in R^{3p}, and a client's rows (a, b, c) ~ N(w_i, 0.1 I)."""
    for key, value in {"clients": clients, "rows": rows, "dimension": dimension}.items():
        if value < 1:
            raise BadInput(key, value, "must be at least 1")
    if seed < 0:
        raise BadInput("seed", seed, "must be 0 or more")
    rng = np.random.default_rng([seed, 61])
    centres = rng.normal(0, np.sqrt(0.5), (clients, 1, 3 * dimension))
    x = centres + rng.normal(0, np.sqrt(0.1), (clients, rows, 3 * dimension))
    flat = torch.from_numpy(x.reshape(clients * rows, -1)).to(torch.get_default_dtype())
    return Stacked(flat, torch.zeros(len(flat)), np.arange(clients + 1) * rows)

"""Synthetic rows of the papers' simulations."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from fedsaddle.arguments import whole
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Dataset, Table
from fedsaddle.errors import BadInput

MOST_VALUES = 2_000_000_000  # 16 GB of float64


def nonconvex_pl(clients: int = 500, rows: int = 100, dimension: int = 100, seed: int = 0) -> Stacked:
    """Synthetic rows of FedSGDA's simulation: w_i ~ N(0, 0.5 I) in R^{3p}, a client's rows (a, b, c) ~ N(w_i, 0.1 I).

    Args:
        clients: Number of clients, as in the paper by default.
        rows: Number of rows of each client.
        dimension: p, of x and of y.
        seed: Random seed.
    """
    x = _drawn(clients, rows, dimension, seed)
    flat = torch.from_numpy(x.reshape(clients * rows, -1)).to(torch.get_default_dtype())
    return Stacked(flat, torch.zeros(len(flat)), np.arange(clients + 1) * rows)


def nonconvex_pl_table(clients: int = 500, rows: int = 100, dimension: int = 100, seed: int = 0) -> Dataset:
    """The same rows as a table with the column "client", for a config: split = natural and test_share = 0.

    Args:
        clients: Number of clients.
        rows: Number of rows of each client.
        dimension: p, of x and of y.
        seed: Random seed.
    """
    x = _drawn(clients, rows, dimension, seed).reshape(clients * rows, -1)
    table = Table.of(x, np.zeros(len(x)), {"client": np.repeat(np.arange(clients), rows)})
    return Dataset("nonconvex-pl", table, None, "drawn by `seed`, FedSGDA's simulation (section 6.1)", "none needed")


def _drawn(clients: int, rows: int, dimension: int, seed: int) -> NDArray[np.float64]:
    values = 3 * whole("clients", clients) * whole("rows", rows) * whole("dimension", dimension)
    whole("seed", seed, least=0)
    if values > MOST_VALUES:
        raise BadInput(
            "clients, rows, dimension", (clients, rows, dimension), f"make more than {MOST_VALUES:,} numbers"
        )
    rng = np.random.default_rng([seed, 61])
    centres = rng.normal(0, np.sqrt(0.5), (clients, 1, 3 * dimension))
    return np.asarray(centres + rng.normal(0, np.sqrt(0.1), (clients, rows, 3 * dimension)))

"""The loss and the accuracy of one model at every client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.metrics.spread import spread
from fedsaddle.problems.protocols import MeasuresClients, Problem

Floats = NDArray[np.float64]


HIGHER_IS_BETTER = {"accuracy": True}  # everything else is taken for a loss


@dataclass(frozen=True)
class Measured:
    """Each client's mean of every measure."""

    sizes: NDArray[np.int64]
    values: dict[str, Floats]

    def spread(self) -> dict[str, dict[str, float]]:
        """Statistics over clients, by measure."""
        return {
            k: spread(v, self.sizes, higher_is_better=HIGHER_IS_BETTER.get(k, False)) for k, v in self.values.items()
        }

    def listed(self, most: int) -> dict[str, Any]:
        """Rows and figures of each client, for JSON; of more than `most` clients, the deciles of the figures."""
        if len(self.sizes) <= most:
            return {"rows": self.sizes.tolist(), "measures": {k: to_json(v) for k, v in self.values.items()}}
        there = self.sizes > 0
        deciles = {k: np.quantile(v[there], np.linspace(0, 1, 11)).tolist() for k, v in self.values.items()}
        return {"rows": int(self.sizes.sum()), "clients": int(there.sum()), "deciles": deciles}


def evaluate(
    problem: Problem,
    w: Tensor,
    rows: Stacked | Lazy,
    dual: Tensor | None = None,
    most_clients: int = 1000,
    block: int = 4096,
) -> Measured:
    """Measure the model `w` at every client, in blocks of rows; of lazy clients, at the first `most_clients`."""
    if isinstance(rows, Lazy):
        rows = first_clients(rows, most_clients)
    if isinstance(problem, MeasuresClients):  # the loss of a row depends on the other rows
        return Measured(*problem.client_measures(w, rows.x, rows.y, rows.offsets))
    parts: dict[str, list[Tensor]] = {}
    with torch.no_grad():
        for a in range(0, len(rows.x), block):
            for name, values in problem.row_measures(w, rows.x[a : a + block], rows.y[a : a + block], dual).items():
                parts.setdefault(name, []).append(values.double().cpu())
    sizes = rows.sizes
    return Measured(sizes, {name: client_means(torch.cat(p).numpy(), rows.offsets) for name, p in parts.items()})


def client_means(values: Floats, offsets: NDArray[np.int64]) -> Floats:
    """The mean of each client's stretch of rows; NaN for a client without rows."""
    sizes = np.diff(offsets)
    there = sizes > 0
    means = np.full(len(sizes), np.nan)
    if there.any():  # each client's rows on their own: a huge loss must not swallow the small ones of others
        means[there] = np.add.reduceat(values, offsets[:-1][there]) / sizes[there]
    return means


def to_json(values: Floats) -> list[float | None]:
    """A list, with None for a client without rows."""
    return [None if np.isnan(v) else float(v) for v in values]


def first_clients(rows: Lazy, most: int) -> Stacked:
    """The rows of the first so many clients."""
    both = [rows.client(i) for i in range(min(most, rows.count))]
    offsets = np.concatenate([[0], np.cumsum(rows.sizes[: len(both)])]).astype(np.int64)
    return Stacked(torch.cat([x for x, _ in both]), torch.cat([y for _, y in both]), offsets)

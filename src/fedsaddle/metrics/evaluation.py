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
from fedsaddle.threads import in_parallel

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
    block: int = 1024,
) -> Measured:
    """Measure the model `w` at every client, in blocks of rows; of lazy clients, at the first `most_clients`."""
    if isinstance(rows, Lazy):
        rows = first_clients(rows, most_clients)
    if isinstance(problem, MeasuresClients):  # the loss of a row depends on the other rows
        return Measured(*problem.client_measures(w, rows.x, rows.y, rows.offsets))

    @torch.no_grad()
    def measured(at: slice) -> dict[str, Tensor]:
        found = problem.row_measures(w, rows.x[at], rows.y[at], dual)
        return {name: values.double().cpu() for name, values in found.items()}

    parts = [*in_parallel(measured, (slice(a, a + block) for a in range(0, len(rows.x), block)))]
    means = {
        n: client_means(torch.cat([p[n] for p in parts]).numpy(), rows.offsets) for n in (parts[0] if parts else ())
    }
    return Measured(rows.sizes, means)


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

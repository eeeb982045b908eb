"""What a private step costs: processor time of a local step with clipped rows and noise, against a plain one.

Both sides are interleaved in one process, on one thread: the ratio of medians is what counts. `python
benchmarks/dp_steps.py` prints a table; `measure()` gives the rows of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.data.store import Stacked
from fedsaddle.engines.site import LocalSite
from fedsaddle.federation.randomness import ClientKeys

STEPS, REPEATS, CLIENTS, ROWS = 10, 15, 10, 600


class Convolutional(nn.Module):
    """A small network that is no chain of linear layers: it goes row by row through vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2), nn.ReLU())
        self.head = nn.Linear(16 * 16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.unflatten(1, (1, 28, 28))).flatten(1))


@dataclass(frozen=True)
class Work:
    name: str
    algorithm: Callable[[], Any]
    features: int = 784
    classes: int = 10


def supervised(model: Callable[[], nn.Module]) -> Callable[[], Any]:
    return lambda: fs.FedAvg(problem=fs.Supervised(model()), local_steps=STEPS, batch_size=50)


def auc(model: Callable[[], nn.Module]) -> Callable[[], Any]:
    def make() -> Any:
        problem = fs.MinimaxAuc(model=model(), positive_share=0.1)
        return fs.LocalSgda(problem=problem, local_steps=STEPS, batch_size=50)

    return make


def fair(model: Callable[[], nn.Module]) -> Callable[[], Any]:
    def make() -> Any:
        return fs.LocalSgda(problem=fs.ClassFair(model=model(), classes=10), local_steps=STEPS, batch_size=50)

    return make


WORK = (
    Work("FedAvg, logistic 784-10", supervised(lambda: fs.models.logistic_regression(784, 10))),
    Work("FedAvg, 784-200-200-10", supervised(lambda: fs.models.mlp(784, [200, 200], 10))),
    Work("Local SGDA, AUC, 44-32-1", auc(lambda: fs.models.mlp(44, [32], 1)), 44, 2),
    Work("Local SGDA, AUC, 784-128-1", auc(lambda: fs.models.mlp(784, [128], 1)), 784, 2),
    Work("Local SGDA, fair, 784-10", fair(lambda: fs.models.logistic_regression(784, 10))),
    Work("FedAvg, convolutions (vmap)", supervised(Convolutional)),
)


def rows_of(work: Work) -> Stacked:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(CLIENTS * ROWS, work.features, generator=g)
    y = torch.randint(work.classes, (CLIENTS * ROWS,), generator=g)
    return Stacked(x, y, np.arange(CLIENTS + 1, dtype=np.int64) * ROWS)


def once(algorithm: Any, rows: Stacked, clients: int, round: int) -> float:
    """Processor seconds of one exchange's local steps at a block of clients, for each step."""
    numbers = np.arange(clients, dtype=np.int64)
    site = LocalSite(rows, numbers, ClientKeys.of(0, round, 0, numbers))
    inner = getattr(algorithm, "algorithm", algorithm)
    task = algorithm.local_sgd if isinstance(inner, fs.FedAvg) else algorithm.local_sgda
    start = inner.problem.initial()
    if isinstance(inner, fs.FedAvg):
        from fedsaddle.algorithms.fedavg import Start

        sent: Any = Start(start)
    else:
        from fedsaddle.algorithms.sgda.local_sgda import Start as Both

        sent = Both(*start, 0.02, 0.016, 0, STEPS)
    began = time.process_time()
    task(None, sent, site)
    return (time.process_time() - began) / STEPS


def measure(repeats: int = REPEATS) -> list[dict[str, Any]]:
    """One row for each piece of work: milliseconds of a plain and of a private step of a block, and the ratio."""
    torch.set_num_threads(1)
    found = []
    for work in WORK:
        torch.manual_seed(0)
        plain, rows = work.algorithm(), rows_of(work)
        private = fs.Private(algorithm=plain, privacy=fs.Privacy(epsilon=8, rounds=20))
        for clients in (CLIENTS, 1):
            sides: tuple[list[float], list[float]] = ([], [])
            for r in range(repeats + 2):
                for side, algorithm in zip(sides, (plain, private), strict=True):
                    took = once(algorithm, rows, clients, r)
                    if r >= 2:  # the first ones warm up
                        side.append(took)
            a, b = (1e3 * median(side) for side in sides)
            found.append({"work": work.name, "clients": clients, "plain_ms": a, "private_ms": b, "ratio": b / a})
    return found


def main() -> None:
    print(f"{'a local step of':32} {'clients':>7} {'plain ms':>9} {'private ms':>10} {'ratio':>6}")
    for row in measure():
        told = f"{row['plain_ms']:9.3f} {row['private_ms']:10.3f} {row['ratio']:6.2f}"
        print(f"{row['work']:32} {row['clients']:7d} {told}")


if __name__ == "__main__":
    main()

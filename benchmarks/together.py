"""Processor time of clients that take local steps together against one after the other: BatchNorm and recurrent layers.

    OMP_NUM_THREADS=1 python benchmarks/together.py [--clients 8 16 32] [--repeats 5]

Both sides are timed in turn, in one process with one thread; a line has the median over the repeats.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.engines.choose import chunk_and_workers, keep_freed_memory
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine

ROWS, STEPS = 100, 4


class Reader(nn.Module):
    """Embedding, a recurrent layer of 64 units, scores of the next of 80 characters."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.embed, self.body, self.read = nn.Embedding(80, 8), kind(8, 64, batch_first=True), nn.Linear(64, 80)

    def forward(self, x: Tensor) -> Tensor:
        """Of the last step."""
        out: Tensor = self.read(self.body(self.embed(x))[0][:, -1])
        return out


def mlp() -> nn.Module:
    first = nn.Sequential(nn.Linear(784, 200), nn.BatchNorm1d(200), nn.ReLU())
    return nn.Sequential(nn.Flatten(), *first, nn.Linear(200, 200), nn.BatchNorm1d(200), nn.ReLU(), nn.Linear(200, 10))


def cnn() -> nn.Module:
    first = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
    second = nn.Sequential(nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(1568, 10))


def pictures(clients: int) -> fs.Stacked:
    n = clients * ROWS
    return fs.Stacked(torch.randn(n, 1, 28, 28), torch.randint(10, (n,)), np.arange(clients + 1) * ROWS)


def text(clients: int) -> fs.Stacked:
    n = clients * ROWS
    return fs.Stacked(torch.randint(80, (n, 80)), torch.randint(80, (n,)), np.arange(clients + 1) * ROWS)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], fs.Stacked], int, torch.dtype]] = {
    "mlp, BatchNorm1d, batch 32": (mlp, pictures, 32, torch.float32),
    "cnn, BatchNorm2d, batch 32": (cnn, pictures, 32, torch.float32),
    "LSTM, batch 10": (lambda: Reader(nn.LSTM), text, 10, torch.float32),
    "LSTM, batch 32": (lambda: Reader(nn.LSTM), text, 32, torch.float32),
    "LSTM, batch 10, float64": (lambda: Reader(nn.LSTM), text, 10, torch.float64),
    "LSTM, batch 32, float64": (lambda: Reader(nn.LSTM), text, 32, torch.float64),
    "GRU, batch 10": (lambda: Reader(nn.GRU), text, 10, torch.float32),
    "GRU, batch 32": (lambda: Reader(nn.GRU), text, 32, torch.float32),
    "RNN, batch 10": (lambda: Reader(nn.RNN), text, 10, torch.float32),
    "RNN, batch 32": (lambda: Reader(nn.RNN), text, 32, torch.float32),
}


def measure(name: str, clients: int, repeats: int) -> tuple[float, float, int]:
    """Milliseconds of the processor for a client's step, together and alone, and the chunk by the rule."""
    make, rows, batch, dtype = CASES[name]
    torch.manual_seed(0)
    data, problem = rows(clients), fs.Supervised(make().to(dtype))
    if data.x.is_floating_point():
        data = fs.Stacked(data.x.to(dtype), data.y, data.offsets)
    algorithm = fs.FedAvg(problem=problem, local_steps=STEPS, batch_size=batch, primal_step=0.01)
    engines = VectorisedEngine(data, chunk=clients), SerialEngine(data)
    states = [algorithm.start(e) for e in engines]
    times: list[list[float]] = [[], []]
    for r in range(repeats + 1):  # the first warms up
        for side, engine in enumerate(engines):
            engine.begin(r)
            began = time.process_time()
            states[side] = algorithm.round(states[side], engine, np.random.default_rng(r))
            times[side].append((time.process_time() - began) / (clients * STEPS) * 1000)
            engine.commit()
    together, alone = (statistics.median(t[1:]) for t in times)
    return together, alone, chunk_and_workers(problem, data)[0]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    print("| model | clients | together, ms | one after the other, ms | gain | chunk by the rule |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in (n for n in CASES if given.only in n):
        for clients in given.clients:
            together, alone, chunk = measure(name, clients, given.repeats)
            print(
                f"| {name} | {clients} | {together:.2f} | {alone:.2f} | {alone / together:.1f} | {chunk} |", flush=True
            )


if __name__ == "__main__":
    main()
